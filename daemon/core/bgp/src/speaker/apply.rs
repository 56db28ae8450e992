//! A new configuration: only what differs is touched, and a session whose peer did not change does not notice.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{Config, Event, Peer, PeerConfig, PeerId, Speaker};
use crate::{
    Families,
    adj_out::AdjOut,
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
        self.apply_multipath(&old, &mut changes);
        self.apply_announce(&mut changes);
        for wanted in self.config.peers.clone() {
            let known = self.peers.values().find(|peer| peer.config.name == wanted.name).map(|peer| peer.id);
            match known {
                Some(id) => self.change_peer(id, wanted, identity_changed, &mut changes, now),
                None => self.add_peer(wanted, &mut changes, now),
            }
        }
        self.propagate();
        changes
    }

    /// A peer is the same one if name and address are.
    fn remove_peers(&mut self, changes: &mut Vec<String>, now: Instant) {
        let wanted: BTreeSet<_> =
            self.config.peers.iter().map(|peer| (peer.name.clone(), peer.address)).collect();
        let gone = self
            .peers
            .values()
            .filter(|peer| !wanted.contains(&(peer.config.name.clone(), peer.config.address)));
        for id in gone.map(|peer| peer.id).collect::<Vec<_>>() {
            let notification = Notification::new(code::CEASE, code::cease::DECONFIGURED);
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.stop(&notification, "removed from the configuration", now);
                changes.push(format!("neighbor {} removed", peer.config.name));
            }
            self.settle(id);
            self.peers.remove(&id);
        }
    }

    fn apply_multipath(&mut self, old: &Config, changes: &mut Vec<String>) {
        if old.multipath != self.config.multipath {
            changes.push("multipath changed".into());
            self.dirty.extend(self.rib.set_multipath(self.config.multipath));
        }
    }

    fn apply_announce(&mut self, changes: &mut Vec<String>) {
        let wanted: BTreeSet<_> = self.config.announce.iter().map(|prefix| prefix.trunc()).collect();
        let known: BTreeSet<_> = self.rib.originated().collect();
        for prefix in known.difference(&wanted) {
            changes.push(format!("{prefix} is not announced any more"));
            self.rib.withdraw(*prefix, None);
            self.dirty.insert(*prefix);
        }
        for prefix in wanted.difference(&known) {
            changes.push(format!("{prefix} is announced"));
            self.originate(*prefix);
        }
    }

    fn add_peer(&mut self, config: PeerConfig, changes: &mut Vec<String>, now: Instant) {
        changes.push(format!("neighbor {} added", config.name));
        let id = PeerId(self.next_peer);
        self.next_peer += 1;
        let mut session = Session::new(self.session_config(&config), self.jitter.split(), now);
        session.start(now);
        let peer = Peer {
            id,
            config,
            session,
            links: Vec::new(),
            up: None,
            out: AdjOut::default(),
            messages_received: 0,
            messages_sent: 0,
        };
        self.peers.insert(id, peer);
        self.settle(id);
    }

    fn change_peer(
        &mut self,
        id: PeerId,
        wanted: PeerConfig,
        restart: bool,
        changes: &mut Vec<String>,
        now: Instant,
    ) {
        let session_config = self.session_config(&wanted);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let old = std::mem::replace(&mut peer.config, wanted);
        let new = &peer.config;
        let name = new.name.clone();
        if restart || (old.asn, old.hold_time) != (new.asn, new.hold_time) {
            let notification = Notification::new(code::CEASE, code::cease::CONFIGURATION);
            peer.session.restart(session_config, &notification, "its configuration changed", now);
            changes.push(format!("neighbor {name}: session starts over"));
            return self.settle(id);
        }
        let (import, export) = (old.import != new.import, old.export != new.export);
        let (limit, port) = (old.max_prefixes != new.max_prefixes, old.port != new.port);
        if import {
            changes.push(format!("neighbor {name}: import policy changed"));
            self.judge_again(id);
        }
        if export {
            changes.push(format!("neighbor {name}: export policy changed"));
            for prefix in self.rib.prefixes().collect::<Vec<_>>() {
                self.tell(id, prefix);
            }
        }
        if limit {
            changes.push(format!("neighbor {name}: prefix limit changed"));
            self.check_prefix_limit(id, now);
        }
        if port {
            changes.push(format!("neighbor {name}: port changed, for the next connection"));
        }
        self.settle(id);
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
            }
            self.judge_again(id);
        }
        self.propagate();
    }

    pub(super) fn judge_again(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else { return };
        let name = Arc::clone(&peer.config.name);
        let rules = peer.import_rules(self.config.asn, self.config.router_id, &self.topology);
        let Some(rules) = rules else { return };
        let mut refused = None;
        let changed = self.rib.reconsider(id, |prefix, attributes| {
            let ineligible = rules.judge(prefix, attributes);
            if refused.is_none() {
                refused = Event::next_hop_refused(&name, *prefix, attributes, ineligible);
            }
            ineligible
        });
        self.dirty.extend(changed);
        self.events.extend(refused);
    }

    pub(super) fn session_config(&self, peer: &PeerConfig) -> SessionConfig {
        SessionConfig {
            local_asn: self.config.asn,
            router_id: self.config.router_id,
            remote_asn: peer.asn,
            hold_time: peer.hold_time,
            families: Families::ALL,
            offer: Offer::default(),
        }
    }
}
