//! The last line against a tunnel that carries itself: a datagram of our own that the kernel routed back into the TUN device.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use isthmus_tunnel::{packet::Packet, table::Slot};

use crate::tunnel::snapshot::Snapshot;

/// Places of peers are looked up again this often at most: packets from our own port to anywhere must not cost a look at each peer.
const REFRESH: Duration = Duration::from_millis(100);

/// Where the peers were when that was last asked.
#[derive(Default)]
pub(super) struct Guard {
    places: HashMap<(IpAddr, u16), Slot>,
    refreshed: Option<Instant>,
}

impl Guard {
    /// The peer that this packet was sealed for, if it is a datagram of ours: from our port to where a peer is now.
    pub(super) fn sealed_for(
        &mut self,
        snapshot: &Snapshot,
        port: u16,
        packet: &Packet<'_>,
        now: Instant,
    ) -> Option<Slot> {
        let (source, destination) = packet.udp_ports()?;
        if source != port {
            return None;
        }
        let place = (packet.destination, destination);
        self.known(snapshot, place).or_else(|| {
            self.refresh(snapshot, now);
            self.known(snapshot, place)
        })
    }

    /// A peer that is still where it was.
    fn known(&self, snapshot: &Snapshot, at: (IpAddr, u16)) -> Option<Slot> {
        let slot = *self.places.get(&at)?;
        let endpoint = snapshot.peer(slot)?.session.endpoint()?;
        (place(endpoint) == at).then_some(slot)
    }

    fn refresh(&mut self, snapshot: &Snapshot, now: Instant) {
        if self.refreshed.is_some_and(|at| now.saturating_duration_since(at) < REFRESH) {
            return;
        }
        self.refreshed = Some(now);
        self.places.clear();
        let peers = snapshot.peers.iter().zip(0..);
        self.places.extend(peers.filter_map(|(peer, slot)| Some((place(peer.session.endpoint()?), slot))));
    }
}

fn place(endpoint: SocketAddr) -> (IpAddr, u16) {
    (endpoint.ip().to_canonical(), endpoint.port())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use isthmus_tunnel::{packet, table::Underlay};

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
            bfd: None,
        };
        crate::tunnel::peer::tests::peer_of(&config, key.into())
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
        let (mut guard, start) = (Guard::default(), Instant::now());
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
            let found = guard.sealed_for(&snapshot, PORT, &packet::parse(&bytes).unwrap(), start);
            assert_eq!(found, expected, "{source} -> {to}");
        }
        // Who roams takes the rule along.
        snapshot.peers[1].session.set_endpoint("203.0.113.3:9".parse().unwrap());
        let mut ours =
            |to, at| guard.sealed_for(&snapshot, PORT, &packet::parse(&udp(PORT, to)).unwrap(), at);
        assert_eq!(ours("192.0.2.3:51820", start), None);
        assert_eq!(ours("203.0.113.3:9", start + REFRESH), Some(1));
    }
}
