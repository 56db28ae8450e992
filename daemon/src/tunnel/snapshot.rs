//! What the packet threads read: replaced as a whole, never changed.

use std::{collections::HashMap, sync::Arc};

use isthmus_tunnel::{
    receive::Demux,
    table::{Member, Slot, Table, Underlay},
};

use super::peer::Peer;
use crate::routes::{Hop, Route};

/// Peers by slot, and the two look-ups that lead to a slot.
pub(super) struct Snapshot {
    pub(super) peers: Vec<Arc<Peer>>,
    pub(super) table: Table,
    pub(super) demux: Demux,
}

impl Snapshot {
    /// Of the board's routes, the paths through our peers count; the kernel finds gateways by itself.
    pub(super) fn new(peers: Vec<Arc<Peer>>, routes: &[Route], underlay: Underlay) -> Self {
        let demux = Demux::new(peers.iter().map(|peer| (peer.config().public_key, peer.index)));
        let slots: HashMap<&str, Slot> = peers.iter().map(|peer| &*peer.name).zip(0..).collect();
        let mut builder = Table::builder(peers.iter().map(|peer| member(peer)).collect());
        for route in routes {
            let (selected, feasible) = slots_of(route, &slots);
            builder.route(route.prefix, &selected, &feasible);
        }
        builder.underlay(underlay);
        let table = builder.build();
        Self { peers, table, demux }
    }

    pub(super) fn peer(&self, slot: Slot) -> Option<&Arc<Peer>> {
        self.peers.get(usize::try_from(slot).ok()?)
    }
}

/// (those that carry traffic, all candidates)
fn slots_of(route: &Route, slots: &HashMap<&str, Slot>) -> (Vec<Slot>, Vec<Slot>) {
    let slot = |hop: &Hop| match hop {
        Hop::Peer(name) => slots.get(&**name).copied(),
        Hop::Gateway(_) | Hop::LinkLocal { .. } => None,
    };
    let selected = route.selected().filter_map(slot).collect();
    (selected, route.paths().iter().filter_map(|path| slot(&path.hop)).collect())
}

fn member(peer: &Peer) -> Member {
    let key = peer.config().public_key;
    let head = key.first_chunk().expect("a key has 32 bytes");
    Member { key: u64::from_le_bytes(*head), live: Arc::clone(&peer.live) }
}

#[cfg(test)]
mod tests {
    use isthmus_tunnel::packet;

    use super::*;
    use crate::{
        routes::{Board, Candidate, NextHop},
        tunnel::PeerConfig,
    };

    fn peer(name: &str, key: u8) -> Arc<Peer> {
        let config = PeerConfig {
            name: name.into(),
            public_key: [key; 32],
            preshared_key: None,
            endpoint: None,
            allowed_ips: vec![],
            persistent_keepalive: None,
        };
        crate::tunnel::peer::tests::peer_of(&config, key.into())
    }

    fn via(address: &str, selected: bool) -> Candidate {
        Candidate { next_hop: NextHop::Address(address.parse().unwrap()), neighbor: None, selected }
    }

    fn carrier(snapshot: &Snapshot, destination: [u8; 4]) -> Option<&str> {
        let mut bytes = [0; 20];
        (bytes[0], bytes[3]) = (0x45, 20);
        bytes[16..].copy_from_slice(&destination);
        let slot = snapshot.table.route(&packet::parse(&bytes).unwrap())?;
        snapshot.peer(slot).map(|peer| &*peer.name)
    }

    #[test]
    fn board_decides_who_carries_and_who_may_send() {
        let board = Board::new();
        let net = |text: &str| text.parse().unwrap();
        board.set_static(vec![(net("10.99.0.2/32"), "azure".into()), (net("10.99.0.3/32"), "onprem".into())]);
        board.update_bgp(vec![
            (net("10.20.0.0/16"), [via("10.99.0.2", true), via("10.99.0.3", false)].into()),
            (net("10.20.5.0/24"), [via("10.0.0.1", true)].into()),
        ]);
        let snapshot = Snapshot::new(
            vec![peer("azure", 2), peer("onprem", 3)],
            &board.snapshot(),
            Underlay { overlay: vec![net("10.99.0.1/24")], endpoints: board.underlay().to_vec() },
        );
        assert_eq!(carrier(&snapshot, [10, 99, 0, 3]), Some("onprem"));
        assert_eq!(carrier(&snapshot, [10, 20, 1, 1]), Some("azure"));
        assert_eq!(carrier(&snapshot, [10, 20, 5, 1]), None);
        let feasible = |address: &str, slot| snapshot.table.is_feasible(address.parse().unwrap(), slot);
        assert!(feasible("10.20.1.1", 0) && feasible("10.20.1.1", 1));
        assert!(feasible("10.99.0.2", 0) && !feasible("10.99.0.2", 1));
        assert!(!feasible("10.20.5.1", 0) && !feasible("8.8.8.8", 0));
        let captures = |address: &str| snapshot.table.captures(address.parse().unwrap());
        assert!(captures("10.20.1.1") && captures("10.99.0.77"));
        assert!(!captures("10.20.5.1") && !captures("8.8.8.8"));
    }
}
