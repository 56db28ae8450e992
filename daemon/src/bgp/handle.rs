//! How the rest of the daemon talks to BGP.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use ipnet::IpNet;
use isthmus_bgp::{PeerStatus, fsm::State};
use tokio::sync::{mpsc, oneshot};

use super::{Config, Error, PathNotes, ask::Errand, paths_watched::Watched};

/// Cheap handle to the BGP task.
#[derive(Clone)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) listening: Arc<[SocketAddr]>,
    pub(super) watched: Arc<Watched>,
}

pub(super) enum Command {
    Errand(Errand),
    Neighbors(oneshot::Sender<Vec<NeighborStatus>>),
    Paths(Vec<IpNet>, oneshot::Sender<PathNotes>),
    Apply(Box<Config>, oneshot::Sender<Result<Vec<String>, Error>>),
}

/// A neighbor's state, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborStatus {
    /// Configured name, or that of the template with its address.
    pub name: String,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its AS number, as configured.
    pub remote_asn: u32,
    /// State of the session (RFC 4271 section 8.2.2).
    pub state: State,
    /// Why it is in this state.
    pub state_reason: String,
    /// Since when.
    pub state_since: SystemTime,
    /// Agreed hold time; zero while not Established, or when there is none.
    pub hold_time: Duration,
    /// Interval between KEEPALIVEs; zero likewise.
    pub keepalive: Duration,
    /// The neighbor's BGP identifier, while Established.
    pub remote_router_id: Option<Ipv4Addr>,
    /// Agreed address families: "ipv4-unicast", "ipv6-unicast".
    pub families: Vec<String>,
    /// Prefixes it announced.
    pub prefixes_received: u64,
    /// Of these, usable under the import policy.
    pub prefixes_accepted: u64,
    /// Prefixes announced to it.
    pub prefixes_sent: u64,
    /// The last NOTIFICATION or transport error, in words.
    pub last_error: Option<String>,
    /// How often the session reached Established.
    pub established_count: u64,
    /// Our end of the session, while Established.
    pub local_address: Option<IpAddr>,
    /// Messages received since the neighbor was configured.
    pub messages_received: u64,
    /// Messages sent since the neighbor was configured.
    pub messages_sent: u64,
    /// It came by a template.
    pub dynamic: bool,
    /// Settings that fight what is known of its kind of router.
    pub warnings: Vec<String>,
}

impl NeighborStatus {
    /// True while routes flow.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    pub(super) fn new(status: PeerStatus, local_address: Option<IpAddr>, now: Instant) -> Self {
        let age = now.saturating_duration_since(status.since);
        Self {
            name: status.name.to_string(),
            address: status.address,
            remote_asn: status.asn,
            state: status.state,
            state_reason: status.reason,
            state_since: SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH),
            hold_time: status.hold_time,
            keepalive: status.keepalive,
            remote_router_id: status.remote_router_id,
            families: status.families.iter().map(|family| family.to_string()).collect(),
            prefixes_received: status.prefixes_received.into(),
            prefixes_accepted: status.prefixes_accepted.into(),
            prefixes_sent: u64::try_from(status.prefixes_sent).unwrap_or(u64::MAX),
            last_error: status.last_error,
            established_count: status.established_count,
            local_address,
            messages_received: status.messages_received,
            messages_sent: status.messages_sent,
            dynamic: status.dynamic,
            warnings: Vec::new(),
        }
    }
}

impl Handle {
    /// Every neighbor, by name; none once BGP is stopped.
    pub async fn neighbors(&self) -> Vec<NeighborStatus> {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Neighbors(answer)).await.is_err() {
            return Vec::new();
        }
        answered.await.unwrap_or_default()
    }

    /// Applies the difference to a new configuration; returns what changed, in words. Sessions of neighbors that did not change go on.
    ///
    /// # Errors
    /// [`Error::ListenChanged`] if `listen` differs (then nothing is applied), [`Error::Stopped`] after shutdown.
    pub async fn apply(&self, config: Config) -> Result<Vec<String>, Error> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Apply(Box::new(config), answer);
        self.commands.send(command).await.map_err(|_| Error::Stopped)?;
        answered.await.map_err(|_| Error::Stopped)?
    }

    /// The path to a neighbor, by name, is dead: its session ends with Cease/BFD Down (RFC 9384), and is tried again. Never waits.
    pub fn path_failed(&self, neighbor: &str, why: String) {
        self.watched.failed(neighbor, why);
    }

    /// The path to a neighbor, by name, is proved: if there is no session it is dialed at once. Never waits.
    pub fn path_proved(&self, neighbor: &str) {
        self.watched.proved(neighbor);
    }

    /// Addresses that are listened on, with the ports that the kernel chose for zero.
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.listening.to_vec()
    }
}
