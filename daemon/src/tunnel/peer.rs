//! A configured peer: its session with what the shell knows about it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use base64::{Engine, prelude::BASE64_STANDARD};
use ipnet::IpNet;
use isthmus_tunnel::peer::State;
use isthmus_tunnel::{
    Identity,
    counters::Counters,
    path_mtu,
    peer::{PathMtu, Peer as Session, Settings},
    x25519::PublicKey,
};

use super::{Endpoint, PeerConfig};

/// Shared by the packet threads and the control task.
pub(super) struct Peer {
    pub(super) name: Arc<str>,
    /// 24 bits that its receiver indices begin with.
    pub(super) index: u32,
    pub(super) live: Arc<AtomicBool>,
    pub(super) counters: Arc<Counters>,
    /// Locks inside, briefly.
    pub(super) session: Session,
    config: ArcSwap<PeerConfig>,
    resolution: Mutex<Resolution>,
}

/// What is known of an endpoint's DNS name.
#[derive(Default)]
struct Resolution {
    /// What it stood for the last time it resolved.
    address: Option<SocketAddr>,
    /// Why it has no address now.
    problem: Option<String>,
}

/// A peer as commands show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Configured name.
    pub name: String,
    /// Base64, as `wg show` prints it.
    pub public_key: String,
    /// Outer address: configured, resolved or learned; `None` while unknown.
    pub endpoint: Option<SocketAddr>,
    /// Prefixes of the peer's own.
    pub allowed_ips: Vec<IpNet>,
    /// Whether it answers.
    pub state: State,
    /// Why it is in that state, and what is wrong with its path.
    pub state_reason: String,
    /// The largest outer packet that reaches it, in bytes; `None`: not known, or it is another implementation, which does not say.
    pub path_mtu: Option<u16>,
    /// Unix time in seconds of the last completed handshake; `None`: there was none yet.
    pub last_handshake_at: Option<i64>,
    /// Bytes of inner packets received.
    pub rx_bytes: u64,
    /// Bytes of inner packets sent.
    pub tx_bytes: u64,
    /// Inner packets received.
    pub rx_packets: u64,
    /// Inner packets sent.
    pub tx_packets: u64,
    /// Reason -> packets to or from this peer that were dropped, or under `endpoint_refused` carried; zeros are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Interval of unconditional keepalives.
    pub persistent_keepalive: Option<Duration>,
    /// True if a preshared key is mixed into the handshake.
    pub has_preshared_key: bool,
    /// Longest inner packet that is sent to the peer in one piece, in bytes.
    pub mtu: u16,
}

impl Peer {
    pub(super) fn new(identity: &Arc<Identity>, config: &PeerConfig, index: u32, mtu: u16) -> Self {
        let (live, counters) = (Arc::new(AtomicBool::new(false)), Arc::<Counters>::default());
        let settings = Settings {
            public_key: PublicKey::from(config.public_key),
            preshared_key: config.preshared_key.as_ref().map(|secret| *secret.expose()),
            index,
            mtu,
            keepalive: config.persistent_keepalive,
        };
        let session =
            Session::new(identity, settings, Arc::clone(&live), Arc::clone(&counters), rand::random());
        if let Some(Endpoint::Address(address)) = config.endpoint {
            session.set_endpoint(address);
        }
        Self {
            name: config.name.as_str().into(),
            index,
            live,
            counters,
            session,
            config: ArcSwap::from_pointee(config.clone()),
            resolution: Mutex::default(),
        }
    }

    pub(super) fn config(&self) -> Arc<PeerConfig> {
        self.config.load_full()
    }

    /// Takes what can change under a running session: prefixes, endpoint, keepalive.
    pub(super) fn reconfigure(&self, config: &PeerConfig) {
        self.session.set_keepalive(config.persistent_keepalive);
        let moved = self.config().endpoint != config.endpoint;
        if let (true, Some(Endpoint::Address(address))) = (moved, &config.endpoint) {
            self.session.set_endpoint(*address);
        }
        self.config.store(Arc::new(config.clone()));
        let mut resolution = self.resolution();
        resolution.problem = None;
        if moved {
            resolution.address = None;
        }
    }

    /// Where the configuration says that the peer is: the literal address, or what the name stood for last.
    pub(super) fn configured_endpoint(&self) -> Option<SocketAddr> {
        match &self.config().endpoint {
            Some(Endpoint::Address(address)) => Some(*address),
            Some(Endpoint::Name(..)) => self.resolution().address,
            None => None,
        }
    }

    /// Takes the address that the endpoint's name stands for, unless the peer answers where it is.
    pub(super) fn resolved(&self, address: SocketAddr) {
        *self.resolution() = Resolution { address: Some(address), problem: None };
        if !self.session.answers() {
            self.session.set_endpoint(address);
        }
    }

    /// Remembers why the endpoint's name has no address.
    pub(super) fn unresolved(&self, reason: String) {
        self.resolution().problem = Some(reason);
    }

    fn resolution(&self) -> MutexGuard<'_, Resolution> {
        // Nothing panics between two of its fields.
        self.resolution.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It answers, and nobody holds it down.
    pub(super) fn is_up(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    /// Unix time in seconds of the last handshake.
    pub(super) fn last_handshake_at(&self) -> Option<i64> {
        self.session.status(Instant::now()).handshake.map(unix_seconds)
    }

    pub(super) fn status(&self) -> PeerStatus {
        let session = self.session.status(Instant::now());
        let config = self.config();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let drops = self.counters.drops.iter().filter(|(_, packets)| *packets > 0);
        PeerStatus {
            name: config.name.clone(),
            public_key: BASE64_STANDARD.encode(config.public_key),
            endpoint: session.endpoint,
            allowed_ips: config.allowed_ips.clone(),
            state: session.state,
            state_reason: self.reason(session.reason, session.endpoint),
            path_mtu: self.session.path_mtu().found,
            last_handshake_at: session.handshake.map(unix_seconds),
            rx_bytes: count(&self.counters.received_bytes),
            tx_bytes: count(&self.counters.sent_bytes),
            rx_packets: count(&self.counters.received_packets),
            tx_packets: count(&self.counters.sent_packets),
            drops: drops.map(|(reason, packets)| (reason.as_str(), packets)).collect(),
            persistent_keepalive: config.persistent_keepalive,
            has_preshared_key: config.preshared_key.is_some(),
            mtu: self.session.mtu(),
        }
    }

    fn reason(&self, reason: String, endpoint: Option<SocketAddr>) -> String {
        match &self.resolution().problem {
            Some(why) if endpoint.is_none() => why.clone(),
            Some(why) if !self.is_up() => format!("{reason}; {why}"),
            _ if self.is_up() => with_path(reason, self.session.path_mtu()),
            _ => reason,
        }
    }
}

/// Adds what makes the path narrower than the tunnel could use.
fn with_path(reason: String, path: PathMtu) -> String {
    use path_mtu::State::{Floor, Limited, Refused};
    match (path.found, path.state) {
        (Some(found), why @ (Limited | Refused | Floor)) => {
            format!("{reason}; outer packets of up to {found} bytes reach it: {why}")
        }
        _ => reason,
    }
}

fn unix_seconds(at: Instant) -> i64 {
    let wall = SystemTime::now().checked_sub(at.elapsed()).unwrap_or(UNIX_EPOCH);
    // Rounded: the two clocks are read one after the other, and the second must not flicker.
    let since = (wall + Duration::from_millis(500)).duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use isthmus_tunnel::x25519::StaticSecret;

    use super::*;

    /// A peer of somebody.
    pub(in crate::tunnel) fn peer_of(config: &PeerConfig, index: u32) -> Arc<Peer> {
        let identity = Arc::new(Identity::new(StaticSecret::from([1; 32])));
        Arc::new(Peer::new(&identity, config, index, 1420))
    }
}
