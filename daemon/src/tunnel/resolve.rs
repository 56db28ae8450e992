//! Endpoints by DNS name: resolved in the background, again and again while the peer does not answer.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio_util::task::AbortOnDropHandle;

use super::{Endpoint, attention::Attention, peer::Peer};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(60);
/// How often a silent peer's name is asked for again after it did resolve.
const REFRESH: Duration = Duration::from_secs(30);

/// Resolves for as long as the handle is held; `None` if the endpoint is no name.
pub(super) fn spawn(peer: &Arc<Peer>, attention: &Arc<Attention>) -> Option<AbortOnDropHandle<()>> {
    let Some(Endpoint::Name(host, port)) = peer.config().endpoint.clone() else { return None };
    let (peer, attention) = (Arc::downgrade(peer), Arc::clone(attention));
    Some(AbortOnDropHandle::new(tokio::spawn(async move { run(peer, &attention, host, port).await })))
}

async fn run(peer: Weak<Peer>, attention: &Attention, host: String, port: u16) {
    let mut retry = FIRST_RETRY;
    loop {
        let Some(peer) = peer.upgrade() else { return };
        let pause = if peer.is_up() && peer.configured_endpoint().is_some() {
            REFRESH
        } else if attempt(&peer, &host, port).await {
            retry = FIRST_RETRY;
            attention.ask(peer.index);
            REFRESH
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

/// Asks once; true if there was an address.
async fn attempt(peer: &Peer, host: &str, port: u16) -> bool {
    let problem = match tokio::net::lookup_host((host, port)).await {
        Ok(mut addresses) => match addresses.next() {
            Some(address) => {
                tracing::debug!(peer = &*peer.name, host, %address, "endpoint resolved");
                peer.resolved(address);
                return true;
            }
            None => "it has no address".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let reason = format!("endpoint {host:?} does not resolve: {problem}");
    tracing::warn!(peer = &*peer.name, "{reason}");
    peer.unresolved(reason);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::PeerConfig;

    fn peer(endpoint: Endpoint) -> Arc<Peer> {
        let config = PeerConfig {
            name: "azure".into(),
            public_key: [2; 32],
            preshared_key: None,
            endpoint: Some(endpoint),
            allowed_ips: vec![],
            persistent_keepalive: None,
        };
        crate::tunnel::peer::tests::peer_of(&config, 7)
    }

    #[tokio::test]
    async fn name_becomes_an_address() {
        let peer = peer(Endpoint::Name("localhost".into(), 51820));
        assert!(attempt(&peer, "localhost", 51820).await);
        let endpoint = peer.status().endpoint.unwrap();
        assert!(endpoint.ip().is_loopback() && endpoint.port() == 51820);
        assert_eq!(peer.configured_endpoint(), Some(endpoint));
        // Where it calls from is nothing that was configured.
        peer.session.set_endpoint("192.0.2.9:7".parse().unwrap());
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
        assert!(!attempt(&peer, "no such host", 51820).await);
        let status = peer.status();
        assert_eq!(status.endpoint, None);
        assert!(
            status.state_reason.starts_with("endpoint \"no such host\" does not resolve"),
            "{}",
            status.state_reason
        );
    }

    #[tokio::test]
    async fn working_endpoint_is_not_replaced() {
        let peer = peer(Endpoint::Address("192.0.2.9:7".parse().unwrap()));
        peer.live.store(true, std::sync::atomic::Ordering::Relaxed);
        peer.resolved("192.0.2.1:1".parse().unwrap());
        assert_eq!(peer.status().endpoint, Some("192.0.2.9:7".parse().unwrap()));
        peer.live.store(false, std::sync::atomic::Ordering::Relaxed);
        peer.resolved("192.0.2.1:1".parse().unwrap());
        assert_eq!(peer.status().endpoint, Some("192.0.2.1:1".parse().unwrap()));
    }
}
