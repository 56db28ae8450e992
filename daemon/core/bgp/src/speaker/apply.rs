//! A new configuration: only what differs is touched, and a session whose peer did not change does not notice.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{
    Config, Peer, PeerConfig, PeerId, Speaker,
    change::{shut_down, shutdown},
};
use crate::{
    dynamic::Remote,
    fsm::{Offer, Session, SessionConfig},
    rib::Topology,
    wire::{Notification, code},
};

impl Speaker {
    /// Applies the difference; returns what changed, in words.
    pub fn apply(&mut self, config: Config, now: Instant) -> Vec<String> {
        let mut changes = Vec::new();
        let old = std::mem::replace(&mut self.config, config);
        let identity_changed = (old.asn, old.router_id) != (self.config.asn, self.config.router_id);
        if identity_changed {
            changes.push("own AS number or router ID changed: every session starts over".into());
        }
        self.remove_peers(&mut changes, now);
        self.apply_templates(&old.dynamic, &mut changes, now);
        self.apply_multipath(&old, &mut changes);
        if old.cluster_id() != self.config.cluster_id() && !identity_changed {
            changes.push("cluster ID changed".into());
            self.review_all();
        }
        self.apply_announce(&mut changes);
        for wanted in self.config.peers.clone() {
            let same = |peer: &&Peer| !peer.dynamic && peer.config.name == wanted.name;
            match self.peers.values().find(same).map(|peer| peer.id) {
                Some(id) => self.change_peer(id, wanted, identity_changed, &mut changes, now),
                None => self.add_peer(wanted, &mut changes, now),
            }
        }
        self.change_dynamic(identity_changed, &mut changes, now);
        self.trim();
        changes
    }

    /// A peer is the same one if name and address are. One that came by a template goes where a configured one takes its place.
    fn remove_peers(&mut self, changes: &mut Vec<String>, now: Instant) {
        let key = |peer: &PeerConfig| (Arc::clone(&peer.name), Remote::new(peer.address, peer.scope));
        let wanted: BTreeSet<_> = self.config.peers.iter().map(key).collect();
        let taken = |peer: &Peer| {
            let (name, remote) = key(&peer.config);
            wanted.iter().any(|wanted| wanted.0 == name || wanted.1 == remote)
        };
        let goes =
            |peer: &&Peer| if peer.dynamic { taken(peer) } else { !wanted.contains(&key(&peer.config)) };
        let gone: Vec<_> = self.peers.values().filter(goes).map(|peer| (peer.id, peer.remote())).collect();
        for (id, remote) in gone {
            changes.extend(self.peer_name(id).map(|name| format!("neighbor {name} removed")));
            self.members.forget(remote);
            self.remove_peer(id, &Notification::new(code::CEASE, code::cease::DECONFIGURED), now);
        }
    }

    /// Ends a peer's session for good and forgets it with everything that it sent.
    pub(super) fn remove_peer(&mut self, id: PeerId, notification: &Notification, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.session.stop(notification, "removed from the configuration", now);
        }
        self.settle_actions(id, now);
        self.give_up(id);
        self.peers.remove(&id);
        self.trim();
    }

    fn apply_multipath(&mut self, old: &Config, changes: &mut Vec<String>) {
        if old.multipath != self.config.multipath {
            changes.push("multipath changed".into());
            let changed = self.rib.set_multipath(self.config.multipath);
            self.note_all(changed);
        }
    }

    fn apply_announce(&mut self, changes: &mut Vec<String>) {
        let wanted: BTreeSet<_> = self.config.announce.iter().map(|prefix| prefix.trunc()).collect();
        let known: BTreeSet<_> = self.rib.originated().collect();
        for prefix in known.difference(&wanted) {
            changes.push(format!("{prefix} is not announced any more"));
            let change = self.rib.withdraw(*prefix, None, 0);
            self.note(*prefix, change);
        }
        for prefix in wanted.difference(&known) {
            changes.push(format!("{prefix} is announced"));
            self.originate(*prefix);
        }
    }

    fn add_peer(&mut self, config: PeerConfig, changes: &mut Vec<String>, now: Instant) {
        changes.push(format!("neighbor {} added", config.name));
        self.make_peer(config, false, now);
    }

    pub(super) fn make_peer(&mut self, config: PeerConfig, dynamic: bool, now: Instant) -> PeerId {
        let id = PeerId(self.next_peer);
        self.next_peer += 1;
        let mut session = Session::new(self.session_config(&config), self.jitter.split(), now);
        match &config.shutdown {
            Some(text) => session.stop(&shutdown(text), &shut_down(text), now),
            // Who has left does not come back because of a reload.
            None if self.departure.is_over() => {}
            None => session.start(now),
        }
        let peer = Peer::new(id, config, dynamic, session, self.config.restart.keeper);
        self.peers.insert(id, peer);
        self.settle(id, now);
        id
    }

    /// What lies around this node has perhaps changed: judges every path by it, those already here too. To be called before the first
    /// connection, and whenever addresses or tunnel peers' prefixes change; what stayed the same costs nothing.
    pub fn set_topology(&mut self, topology: Topology) {
        if *self.topology == topology {
            return;
        }
        self.topology = Arc::new(topology);
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            if let Some(peer) = self.peers.get_mut(&id) {
                let over_tunnel = self.topology.tunnel_peer(peer.config.address).is_some();
                peer.up.iter_mut().for_each(|up| up.over_tunnel |= over_tunnel);
                peer.away.iter_mut().for_each(|away| away.over_tunnel |= over_tunnel);
            }
            self.judge_again(id);
        }
        self.trim();
    }

    /// Something that concerns every peer changed: what came from each, and what each is sent, is looked at again.
    fn review_all(&mut self) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.judge_again(id);
            self.review_exports(id);
        }
    }

    /// Sends a peer everything again that is different, and judges everything again that it sent, without asking it for anything: a
    /// soft reset in both directions. False: there is no such peer.
    pub fn soft_reset(&mut self, peer: &str) -> bool {
        let found = self.peers.values().find(|known| *known.config.name == *peer).map(|known| known.id);
        let Some(id) = found else { return false };
        self.judge_again(id);
        self.review_exports(id);
        self.trim();
        true
    }

    pub(super) fn session_config(&self, peer: &PeerConfig) -> SessionConfig {
        SessionConfig {
            local_asn: self.config.asn,
            router_id: self.config.router_id,
            remote_asn: peer.asns.clone().unwrap_or_else(|| peer.asn.into()),
            passive: peer.passive,
            hold_time: peer.hold_time,
            families: peer.families,
            offer: Offer { restart: self.restart_offer(peer), ..peer.offer.clone() },
        }
    }
}
