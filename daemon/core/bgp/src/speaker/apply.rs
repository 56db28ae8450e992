//! A new configuration: only what differs is touched, and a session whose peer did not change does not notice.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{Config, Guards, Peer, PeerConfig, PeerId, Speaker};
use crate::{
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
        self.apply_dynamic(&old.dynamic, &mut changes, now);
        self.apply_multipath(&old, &mut changes);
        if old.cluster_id() != self.config.cluster_id() && !identity_changed {
            changes.push("cluster ID changed".into());
            self.review_all();
        }
        self.apply_announce(&mut changes);
        for wanted in self.config.peers.clone() {
            let known = self.peers.values().find(|peer| peer.config.name == wanted.name).map(|peer| peer.id);
            match known {
                Some(id) => self.change_peer(id, wanted, identity_changed, &mut changes, now),
                None => self.add_peer(wanted, &mut changes, now),
            }
        }
        self.stay_gone(now);
        self.trim();
        changes
    }

    /// A peer is the same one if name and address are.
    fn remove_peers(&mut self, changes: &mut Vec<String>, now: Instant) {
        let key = |peer: &PeerConfig| (Arc::clone(&peer.name), peer.address, peer.scope);
        let wanted: BTreeSet<_> = self.config.peers.iter().map(key).collect();
        let gone = self.peers.values().filter(|peer| !peer.dynamic && !wanted.contains(&key(&peer.config)));
        for (id, name) in gone.map(|peer| (peer.id, Arc::clone(&peer.config.name))).collect::<Vec<_>>() {
            changes.push(format!("neighbor {name} removed"));
            self.remove_peer(id, &Notification::new(code::CEASE, code::cease::DECONFIGURED), now);
        }
    }

    /// Ends a peer's session for good and forgets it with everything that it sent.
    pub(super) fn remove_peer(&mut self, id: PeerId, notification: &Notification, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.session.stop(notification, "removed from the configuration", now);
        }
        self.settle(id, now);
        let orders = self.peers.get_mut(&id).map(|peer| peer.keeper.abandon());
        self.keep(id, orders.unwrap_or_default());
        self.peers.remove(&id);
        if self.deferral.remove(id) {
            self.release();
        }
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

    pub(super) fn add_dynamic(&mut self, config: PeerConfig, now: Instant) -> PeerId {
        self.make_peer(config, true, now)
    }

    fn make_peer(&mut self, config: PeerConfig, dynamic: bool, now: Instant) -> PeerId {
        let id = PeerId(self.next_peer);
        self.next_peer += 1;
        let mut session = Session::new(self.session_config(&config), self.jitter.split(), now);
        match &config.shutdown {
            None => session.start(now),
            Some(text) => session.stop(&shutdown(text), &shut_down(text), now),
        }
        let peer = Peer::new(id, config, dynamic, session, self.config.restart.keeper);
        self.peers.insert(id, peer);
        self.settle(id, now);
        id
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
        let keeper = self.config.restart.keeper;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let old = std::mem::replace(&mut peer.config, wanted);
        peer.keeper.set_config(keeper);
        let new = &peer.config;
        let name = new.name.clone();
        if let Some(text) = new.shutdown.clone() {
            if old.shutdown != new.shutdown {
                peer.session.stop(&shutdown(&text), &shut_down(&text), now);
                changes.push(format!("neighbor {name}: shut down"));
            }
            peer.session.set_config(session_config);
            return self.settle(id, now);
        }
        if restart || renegotiates(&old, new) {
            let notification = Notification::new(code::CEASE, code::cease::CONFIGURATION);
            // What was learned under the old settings is not kept.
            peer.session.restart(session_config, &notification, "its configuration changed", now);
            changes.push(format!("neighbor {name}: session starts over"));
            return self.settle(id, now);
        }
        let differences = Differences::between(&old, new);
        changes.extend(differences.words().map(|what| format!("neighbor {name}: {what} changed")));
        let (limit_out, port) = (new.max_prefixes_out, old.port != new.port);
        if differences.import || differences.guards {
            self.judge_again(id);
        }
        if differences.export || differences.settings {
            self.set_export_limit(id, limit_out);
            self.review_exports(id);
        }
        if differences.limit {
            self.check_prefix_limit(id, now);
        }
        if port {
            changes.push(format!("neighbor {name}: port changed, for the next connection"));
        }
        self.settle(id, now);
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

    fn session_config(&self, peer: &PeerConfig) -> SessionConfig {
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

/// What may differ without the session noticing.
#[derive(Clone, Copy)]
struct Differences {
    import: bool,
    guards: bool,
    export: bool,
    settings: bool,
    limit: bool,
}

impl Differences {
    fn between(old: &PeerConfig, new: &PeerConfig) -> Self {
        let unlimited = |peer: &PeerConfig| Guards { max_prefixes: None, ..peer.guards };
        let settings =
            |peer: &PeerConfig| (peer.next_hop, peer.remove_private_as, peer.add_path, peer.max_prefixes_out);
        Self {
            import: old.import != new.import,
            guards: unlimited(old) != unlimited(new),
            export: old.export != new.export,
            settings: settings(old) != settings(new),
            limit: old.prefix_limit() != new.prefix_limit(),
        }
    }

    fn words(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.import, "import policy"),
            (self.guards, "what it may send"),
            (self.export, "export policy"),
            (self.settings, "what it is sent"),
            (self.limit, "prefix limit"),
        ];
        all.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what)
    }
}

/// True if a session under the old settings cannot go on under the new ones.
fn renegotiates(old: &PeerConfig, new: &PeerConfig) -> bool {
    let agreed = |peer: &PeerConfig| {
        let session = (peer.asn, peer.hold_time, peer.families, peer.scope, peer.route_reflector_client);
        (session, peer.restart, peer.passive, peer.shutdown.is_some())
    };
    agreed(old) != agreed(new) || (&old.offer, &old.asns) != (&new.offer, &new.asns)
}

fn shutdown(text: &str) -> Notification {
    Notification::shutdown(code::cease::SHUTDOWN, text)
}

/// Why the session is idle, for a person.
fn shut_down(text: &str) -> String {
    if text.is_empty() {
        "shut down by the configuration".into()
    } else {
        format!("shut down by the configuration: {text}")
    }
}
