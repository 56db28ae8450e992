//! The last line against a tunnel that carries itself: a datagram of our own that the kernel routed back into the TUN device.

use std::net::SocketAddr;

use isthmus_tunnel::{packet::Packet, table::Slot};

use super::snapshot::Snapshot;

/// Recognises our own datagrams within one batch.
pub(super) struct Guard<'a> {
    snapshot: &'a Snapshot,
    /// UDP port that our datagrams come from.
    port: u16,
    /// The last address that was looked for, so that a batch to one place looks once.
    last: Option<(SocketAddr, Option<Slot>)>,
}

impl<'a> Guard<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, port: u16) -> Self {
        Self { snapshot, port, last: None }
    }

    /// The peer that this packet was sealed for, if it is a datagram of ours: from our port to where a peer is now.
    pub(super) fn sealed_for(&mut self, packet: &Packet<'_>) -> Option<Slot> {
        let (source, destination) = packet.udp_ports()?;
        if source != self.port {
            return None;
        }
        let to = SocketAddr::new(packet.destination, destination);
        match self.last {
            Some((address, peer)) if address == to => peer,
            _ => self.last.insert((to, self.peer_at(to))).1,
        }
    }

    fn peer_at(&self, address: SocketAddr) -> Option<Slot> {
        let there = |endpoint: SocketAddr| {
            (endpoint.ip().to_canonical(), endpoint.port()) == (address.ip(), address.port())
        };
        let peers = self.snapshot.peers.iter().zip(0..);
        peers.filter(|(peer, _)| peer.session().endpoint().is_some_and(there)).map(|(_, slot)| slot).next()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use isthmus_tunnel::{packet, table::Underlay, x25519::StaticSecret};

    use super::*;
    use crate::tunnel::{Endpoint, PeerConfig, peer::Peer};

    const PORT: u16 = 51820;

    fn peer(key: u8, endpoint: &str) -> Arc<Peer> {
        let config = PeerConfig {
            name: key.to_string(),
            public_key: [key; 32],
            preshared_key: None,
            endpoint: (!endpoint.is_empty()).then(|| Endpoint::Address(endpoint.parse().unwrap())),
            allowed_ips: vec![],
            persistent_keepalive: None,
        };
        Arc::new(Peer::new(&StaticSecret::from([1; 32]), &config, key.into(), 1420))
    }

    fn udp(source: u16, to: &str) -> Vec<u8> {
        let to: SocketAddr = to.parse().unwrap();
        let mut bytes = match to.ip() {
            IpAddr::V4(address) => {
                let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
                bytes.extend(address.octets());
                bytes
            }
            IpAddr::V6(address) => {
                let mut bytes = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
                bytes.extend([0xfd; 16]);
                bytes.extend(address.octets());
                bytes
            }
        };
        bytes.extend(source.to_be_bytes().iter().chain(&to.port().to_be_bytes()).chain(&[0, 8, 0, 0]));
        bytes
    }

    #[test]
    fn only_our_port_to_a_peers_place_is_ours() {
        let peers = vec![peer(2, ""), peer(3, "192.0.2.3:51820"), peer(4, "[2001:db8::4%7]:7000")];
        let snapshot = Snapshot::new(peers, &[], Underlay::default());
        let mut guard = Guard::new(&snapshot, PORT);
        for (source, to, expected) in [
            (PORT, "192.0.2.3:51820", Some(1)),
            (PORT, "192.0.2.3:51820", Some(1)),
            (PORT, "[2001:db8::4]:7000", Some(2)),
            (PORT, "192.0.2.3:51821", None),
            (PORT, "192.0.2.4:51820", None),
            (PORT, "[2001:db8::4]:7001", None),
            (40000, "192.0.2.3:51820", None),
            (40000, "[2001:db8::4]:7000", None),
        ] {
            let bytes = udp(source, to);
            assert_eq!(guard.sealed_for(&packet::parse(&bytes).unwrap()), expected, "{source} -> {to}");
        }
        // Who roams takes the rule along.
        snapshot.peers[1].session().set_endpoint("203.0.113.3:9".parse().unwrap());
        let mut guard = Guard::new(&snapshot, PORT);
        let mut ours = |to| guard.sealed_for(&packet::parse(&udp(PORT, to)).unwrap());
        assert_eq!((ours("192.0.2.3:51820"), ours("203.0.113.3:9")), (None, Some(1)));
    }
}
