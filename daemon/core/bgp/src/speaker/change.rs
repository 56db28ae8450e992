//! Another configuration of a peer that stays: what the session does not notice, and what ends it.

use std::time::Instant;

use super::{Guards, PeerConfig, PeerId, Speaker};
use crate::wire::{Notification, code};

impl Speaker {
    /// `restart`: our own identity is another one.
    pub(super) fn change_peer(
        &mut self,
        id: PeerId,
        wanted: PeerConfig,
        restart: bool,
        changes: &mut Vec<String>,
        now: Instant,
    ) {
        let (session_config, keeper) = (self.session_config(&wanted), self.config.restart.keeper);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let old = std::mem::replace(&mut peer.config, wanted);
        peer.keeper.set_config(keeper);
        peer.session.set_config(session_config);
        if peer.config.shutdown.is_some() {
            self.change_shutdown(id, &old, changes, now);
        } else if restart || renegotiates(&old, &peer.config) {
            self.start_over(id, changes, now);
        } else {
            self.change_settings(id, &old, changes, now);
        }
        self.settle(id, now);
    }

    /// There is to be no session. One that is gone already may have left routes behind.
    fn change_shutdown(&mut self, id: PeerId, old: &PeerConfig, changes: &mut Vec<String>, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(text) = peer.config.shutdown.clone().filter(|_| old.shutdown != peer.config.shutdown) else {
            return;
        };
        peer.session.stop(&shutdown(&text), &shut_down(&text), now);
        changes.push(format!("neighbor {}: shut down", peer.config.name));
        self.settle_actions(id, now);
        self.give_up(id);
    }

    /// What was learned under the old settings is not kept, whether its session stands or is gone.
    fn start_over(&mut self, id: PeerId, changes: &mut Vec<String>, now: Instant) {
        let left = self.departure.is_over();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !left {
            let notification = Notification::new(code::CEASE, code::cease::CONFIGURATION);
            peer.session.restart(&notification, "its configuration changed", now);
        }
        changes.push(format!("neighbor {}: session starts over", peer.config.name));
        self.settle_actions(id, now);
        self.abandon(id);
    }

    /// What a session that stands need not notice.
    fn change_settings(&mut self, id: PeerId, old: &PeerConfig, changes: &mut Vec<String>, now: Instant) {
        let Some(new) = self.peers.get(&id).map(|peer| &peer.config) else { return };
        let differences = Differences::between(old, new);
        let name = &new.name;
        changes.extend(differences.words().map(|what| format!("neighbor {name}: {what} changed")));
        if old.port != new.port {
            changes.push(format!("neighbor {name}: port changed, for the next connection"));
        }
        let limit_out = new.max_prefixes_out;
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

pub(super) fn shutdown(text: &str) -> Notification {
    Notification::shutdown(code::cease::SHUTDOWN, text)
}

/// Why the session is idle, for a person.
pub(super) fn shut_down(text: &str) -> String {
    if text.is_empty() {
        "shut down by the configuration".into()
    } else {
        format!("shut down by the configuration: {text}")
    }
}
