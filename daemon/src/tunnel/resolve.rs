//! Endpoints by DNS name: resolved in the background, again and again while the peer does not answer.

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use tokio_util::task::AbortOnDropHandle;

use super::{Endpoint, attention::Attention, peer::Peer};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(60);
/// How often a silent peer's name is asked for again after it did resolve.
const REFRESH: Duration = Duration::from_secs(30);
/// A peer that is silent for so long may be at another of its name's addresses: two handshakes had no reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Resolves for as long as the handle is held; `None` if the endpoint is no name.
pub(super) fn spawn(peer: &Arc<Peer>, attention: &Arc<Attention>) -> Option<AbortOnDropHandle<()>> {
    let Some(Endpoint::Name(host, port)) = peer.config().endpoint.clone() else { return None };
    let (peer, attention) = (Arc::downgrade(peer), Arc::clone(attention));
    let name = Name { host, port, silent: Vec::new() };
    Some(AbortOnDropHandle::new(tokio::spawn(async move { run(peer, &attention, name).await })))
}

async fn run(peer: Weak<Peer>, attention: &Attention, mut name: Name) {
    let mut retry = FIRST_RETRY;
    loop {
        let Some(peer) = peer.upgrade() else { return };
        let pause = if peer.session.answers() && peer.configured_endpoint().is_some() {
            REFRESH
        } else if let Some(pause) = name.attempt(&peer).await {
            retry = FIRST_RETRY;
            attention.ask(peer.index);
            pause
        } else {
            let pause = retry;
            retry = (retry * 2).min(SLOWEST);
            pause
        };
        drop(peer);
        // Not in step with the other peers.
        tokio::time::sleep(pause.mul_f64(1.0 + rand::random::<f64>() / 10.0)).await;
    }
}

/// An endpoint's name.
struct Name {
    host: String,
    port: u16,
    /// The addresses of the last answer at which the peer was silent.
    silent: Vec<SocketAddr>,
}

impl Name {
    /// Asks once; when to ask again if there was an address.
    async fn attempt(&mut self, peer: &Peer) -> Option<Duration> {
        let answer = tokio::net::lookup_host((&*self.host, self.port)).await;
        let problem = match answer.map(Iterator::collect::<Vec<_>>) {
            Ok(addresses) => match self.take(peer, &addresses, Instant::now()) {
                Some(pause) => return Some(pause),
                None => "it has no address".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let reason = format!("endpoint {:?} does not resolve: {problem}", self.host);
        tracing::warn!(peer = &*peer.name, "{reason}");
        peer.unresolved(reason);
        None
    }

    /// Gives the peer one of the addresses; when to ask again.
    fn take(&mut self, peer: &Peer, addresses: &[SocketAddr], now: Instant) -> Option<Duration> {
        let silent = peer.session.silence(now).is_some_and(|silence| silence >= PATIENCE);
        let address = self.choose(addresses, peer.session.endpoint(), silent)?;
        tracing::debug!(peer = &*peer.name, host = self.host, %address, "endpoint resolved");
        peer.resolved(address);
        Some(if addresses.len() > 1 { PATIENCE } else { REFRESH })
    }

    /// Where the peer is as long as that is one of the addresses; when it is silent there, the next one at which it was not silent yet.
    /// Servers may give the addresses in another order each time.
    fn choose(
        &mut self,
        addresses: &[SocketAddr],
        current: Option<SocketAddr>,
        silent: bool,
    ) -> Option<SocketAddr> {
        let current = current.filter(|current| addresses.contains(current));
        if !silent {
            self.silent.clear();
            return current.or_else(|| addresses.first().copied());
        }
        self.silent.retain(|other| addresses.contains(other) && Some(*other) != current);
        self.silent.extend(current);
        if addresses.iter().all(|address| self.silent.contains(address)) {
            self.silent.clear();
            self.silent.extend(current);
        }
        let next = addresses.iter().find(|address| !self.silent.contains(address));
        next.copied().or(current)
    }
}

#[cfg(test)]
mod tests {
    use isthmus_tunnel::{
        Identity,
        buffer::{Datagram, Outbox},
        counters::Counters,
        peer::{Peer as Session, Settings},
        x25519::{PublicKey, StaticSecret},
    };

    use super::*;
    use crate::tunnel::{PeerConfig, engine};

    fn peer(endpoint: Endpoint) -> Arc<Peer> {
        let config = PeerConfig {
            name: "azure".into(),
            public_key: PublicKey::from(&StaticSecret::from([2; 32])).to_bytes(),
            preshared_key: None,
            endpoint: Some(endpoint),
            allowed_ips: vec![],
            persistent_keepalive: Some(Duration::from_secs(25)),
            bfd: None,
        };
        crate::tunnel::peer::tests::peer_of(&config, 7)
    }

    fn name(host: &str) -> Name {
        Name { host: host.into(), port: 51820, silent: vec![] }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn open(session: &Session, sent: &Outbox, from: SocketAddr, out: &mut Outbox) {
        let mut datagrams: Vec<Vec<u8>> = sent.iter().map(|(bytes, ..)| bytes.to_vec()).collect();
        let batch = datagrams.iter_mut().map(|bytes| Datagram {
            bytes,
            path: from.into(),
            ecn: isthmus_tunnel::ecn::Ecn::NotEct,
        });
        session.open(batch, |_| false, engine::now(), out, &mut Vec::new());
    }

    /// The initiation that a peer's endpoint gets.
    fn call(peer: &Peer) -> Outbox {
        let (mut out, mut probes) = (Outbox::new(), Outbox::new());
        peer.session.tick(engine::now(), &mut out, &mut probes);
        assert_eq!(out.len(), 1);
        out
    }

    /// An initiation is answered from there.
    fn answers_from(peer: &Peer, initiation: &Outbox, place: SocketAddr) {
        let identity = Arc::new(Identity::new(StaticSecret::from([2; 32])));
        let settings = Settings {
            public_key: PublicKey::from(&StaticSecret::from([1; 32])),
            preshared_key: None,
            index: 8,
            mtu: 1420,
            keepalive: None,
        };
        let counters = Arc::<Counters>::default();
        let other = Session::new(&identity, settings, Arc::default(), counters, [3; 32]);
        let (mut response, mut rest) = (Outbox::new(), Outbox::new());
        open(&other, initiation, at("192.0.2.1:1"), &mut response);
        open(&peer.session, &response, place, &mut rest);
        assert!(peer.session.answers() && peer.session.endpoint() == Some(place));
    }

    #[tokio::test]
    async fn name_becomes_an_address() {
        let peer = peer(Endpoint::Name("localhost".into(), 51820));
        assert!(name("localhost").attempt(&peer).await.is_some());
        let endpoint = peer.status().endpoint.unwrap();
        assert!(endpoint.ip().is_loopback() && endpoint.port() == 51820);
        assert_eq!(peer.configured_endpoint(), Some(endpoint));
        // Where it calls from is nothing that was configured.
        peer.session.set_endpoint(at("192.0.2.9:7"));
        assert_eq!(peer.configured_endpoint(), Some(endpoint));
        peer.unresolved("the server is silent".into());
        assert_eq!(peer.configured_endpoint(), Some(endpoint));
        let mut config = (*peer.config()).clone();
        config.endpoint = Some(Endpoint::Name("other.example".into(), 51820));
        peer.reconfigure(&config);
        assert_eq!(peer.configured_endpoint(), None);
    }

    #[tokio::test]
    async fn name_that_does_not_resolve_is_the_reason_shown() {
        // Not a legal name, so that no server is asked.
        let peer = peer(Endpoint::Name("no such host".into(), 51820));
        assert_eq!(name("no such host").attempt(&peer).await, None);
        let status = peer.status();
        assert_eq!(status.endpoint, None);
        assert!(
            status.state_reason.starts_with("endpoint \"no such host\" does not resolve"),
            "{}",
            status.state_reason
        );
    }

    #[test]
    fn working_endpoint_is_not_replaced() {
        let peer = peer(Endpoint::Address(at("192.0.2.9:7")));
        peer.resolved(at("192.0.2.8:1"));
        assert_eq!(peer.session.endpoint(), Some(at("192.0.2.8:1")));
        answers_from(&peer, &call(&peer), at("192.0.2.9:7"));
        peer.resolved(at("192.0.2.1:1"));
        assert_eq!(peer.session.endpoint(), Some(at("192.0.2.9:7")));
        // Nor is that of a peer whom somebody holds down though it answers.
        peer.session.hold_down(Some("maintenance".into()));
        assert!(!peer.is_up());
        peer.resolved(at("192.0.2.1:1"));
        assert_eq!(peer.session.endpoint(), Some(at("192.0.2.9:7")));
    }

    #[test]
    fn silent_peer_is_looked_for_at_all_its_addresses() {
        let peer = peer(Endpoint::Name("azure.example".into(), 1));
        let (mut name, now) = (name("azure.example"), Instant::now());
        let [a, b, c] = ["[2001:db8::1]:1", "192.0.2.1:1", "192.0.2.2:1"].map(at);
        let mut take = |addresses: &[SocketAddr], seconds| {
            let pause = name.take(&peer, addresses, now + Duration::from_secs(seconds));
            assert_eq!(pause.is_some(), !addresses.is_empty());
            peer.session.endpoint()
        };
        assert_eq!(take(&[], 0), None);
        assert_eq!(take(&[a, b, c], 0), Some(a));
        // Nothing was sent yet, so nothing is known against it.
        assert_eq!(take(&[b, a, c], 30), Some(a));
        let initiation = call(&peer);
        assert_eq!(take(&[a, b, c], 5), Some(a));
        assert_eq!(take(&[a, b, c], 15), Some(b));
        assert_eq!(take(&[b, a, c], 25), Some(c));
        assert_eq!(take(&[c, a, b], 35), Some(a));
        assert_eq!(take(&[c, b], 45), Some(b));
        assert_eq!(take(&[c], 55), Some(c));
        answers_from(&peer, &initiation, c);
        assert_eq!(take(&[a, b, c], 65), Some(c));
    }
}
