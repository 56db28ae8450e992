//! Sessions as others ask for them and see them.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use isthmus_bfd::{Change, Config, Diagnostic, Interval, State, Status};

use crate::config::Bfd;

/// A session that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Unique; appears in commands, metrics and logs.
    pub name: Arc<str>,
    /// Where the other end is.
    pub route: Route,
    /// Our end; `None`: the kernel chooses. A session through a tunnel needs one.
    pub local: Option<IpAddr>,
    /// How it is watched.
    pub timing: Bfd,
    /// BGP neighbors that the path is for.
    pub neighbors: Vec<Arc<str>>,
}

/// The way to the other end. There is one session to an address of each kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// Through the tunnel to this peer, to an overlay address of it.
    Tunnel {
        /// The peer's configured name.
        peer: Arc<str>,
        /// Its address.
        remote: IpAddr,
    },
    /// One hop away (RFC 5881).
    Direct {
        /// Its address.
        remote: IpAddr,
        /// Interface index of a link-local address, else zero.
        scope: u32,
    },
    /// Several hops away (RFC 5883).
    Multihop {
        /// Its address.
        remote: IpAddr,
    },
}

/// A session has changed its state, or its peer is held down by its administrator, or no longer.
#[derive(Clone, Debug)]
pub struct Event {
    /// What was asked for.
    pub session: Arc<SessionConfig>,
    /// State before, state now, why, when.
    pub change: Change,
}

/// A session as commands show it.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// What was asked for.
    pub config: Arc<SessionConfig>,
    /// How it is.
    pub status: Status,
    /// Since when it is in its state.
    pub since: SystemTime,
    /// Since the session was made.
    pub packets_sent: u64,
    /// Likewise.
    pub packets_received: u64,
    /// How often it went from Up to Down because the path failed.
    pub failures: u64,
}

impl SessionConfig {
    pub(super) fn core(&self) -> Config {
        let interval = Interval::from(self.timing.interval);
        Config { desired_min_tx: interval, required_min_rx: interval, multiplier: self.timing.multiplier }
    }
}

impl Route {
    /// The other end.
    pub fn remote(&self) -> IpAddr {
        match self {
            Self::Tunnel { remote, .. } | Self::Direct { remote, .. } | Self::Multihop { remote } => *remote,
        }
    }

    /// The tunnel peer that it leads through.
    pub fn tunnel_peer(&self) -> Option<&Arc<str>> {
        match self {
            Self::Tunnel { peer, .. } => Some(peer),
            Self::Direct { .. } | Self::Multihop { .. } => None,
        }
    }
}

impl Event {
    /// One clause for a person: "no packet for 900 ms from 10.99.0.2".
    pub fn reason(&self) -> String {
        let remote = self.session.route.remote();
        match (self.change.remote, self.change.diagnostic) {
            (_, Diagnostic::TIME_EXPIRED) => format!("nothing heard from {remote} for a detection time"),
            (Some(State::AdminDown), _) => format!("{remote} is administratively down"),
            (_, Diagnostic::NEIGHBOR_DOWN) => format!("{remote} signals that it does not hear us"),
            (_, other) => other.to_string(),
        }
    }
}

impl SessionStatus {
    /// Why it is in its state, for a person.
    pub fn reason(&self) -> String {
        let Status { state, diagnostic, remote, detection_time, .. } = self.status;
        let address = self.config.route.remote();
        match (state, remote) {
            (State::Up, _) => format!("heard within {:?}", detection_time.unwrap_or(Duration::ZERO)),
            (State::AdminDown, _) => diagnostic.to_string(),
            (_, Some(remote)) if remote.state == State::AdminDown => {
                format!("{address} is administratively down")
            }
            (_, Some(remote)) => format!("{address} is heard and says {}", remote.state),
            (_, None) if diagnostic == Diagnostic::NONE => format!("{address} has not been heard yet"),
            (_, None) => format!("{diagnostic}; {address} is silent"),
        }
    }
}

/// The wall clock's time of an instant.
pub(super) fn wall(at: Instant) -> SystemTime {
    SystemTime::now().checked_sub(at.elapsed()).unwrap_or(SystemTime::UNIX_EPOCH)
}
