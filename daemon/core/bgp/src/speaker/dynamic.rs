//! Peers that come by themselves (see [`crate::dynamic`]): sessions are made when they connect, and removed some time after they went.

use std::{net::IpAddr, sync::Arc, time::Instant};

use super::{DynamicPeers, Peer, PeerConfig, PeerId, Refused, Speaker};
use crate::{
    dynamic::{NotAdmitted, Remote},
    wire::{Notification, code},
};

impl Speaker {
    /// The peer that connects from this address: a configured one, or one that a template makes. One that is configured for every
    /// interface comes after the one of this interface.
    pub(super) fn peer_at(
        &mut self,
        address: IpAddr,
        scope: Option<u32>,
        now: Instant,
    ) -> Result<PeerId, Refused> {
        let remote = Remote::new(address, scope);
        let is_it = |peer: &&Peer| {
            let known = peer.remote();
            known == remote || (!peer.dynamic && known == Remote { scope: None, ..remote })
        };
        let known = self.peers.values().filter(is_it).max_by_key(|peer| peer.config.scope.is_some());
        let known = known.map(|peer| (peer.id, peer.dynamic));
        if let Some((id, false)) = known {
            return Ok(id);
        }
        let template = self.members.admit(remote, now).map_err(|why| match why {
            NotAdmitted::Unknown => Refused::Unknown,
            NotAdmitted::Full(template) => Refused::Full(template),
        })?;
        let template = Arc::clone(&template.name);
        match known {
            Some((id, _)) => Ok(id),
            None => {
                let config = self.dynamic_config(&template, remote).ok_or(Refused::Unknown)?;
                Ok(self.make_peer(config, true, now))
            }
        }
    }

    fn dynamic_config(&self, template: &str, remote: Remote) -> Option<PeerConfig> {
        let DynamicPeers { template, peer } =
            self.config.dynamic.iter().find(|model| *model.template.name == *template)?;
        Some(PeerConfig {
            name: template.peer_name(remote),
            address: remote.address,
            scope: remote.scope,
            asns: Some(template.asns.clone()),
            passive: true,
            ..peer.clone()
        })
    }

    /// Other templates: peers that these do not cover go.
    pub(super) fn apply_templates(&mut self, old: &[DynamicPeers], changes: &mut Vec<String>, now: Instant) {
        if *old == *self.config.dynamic {
            return;
        }
        changes.push("dynamic neighbors changed".into());
        let templates = self.config.dynamic.iter().map(|model| model.template.clone()).collect();
        let gone = self.members.set_templates(templates);
        self.remove_dynamic(&gone, now);
    }

    /// Those that stay get the settings of their template, as if each one had been configured. `restart`: our own identity is another
    /// one.
    pub(super) fn change_dynamic(&mut self, restart: bool, changes: &mut Vec<String>, now: Instant) {
        let wanted = |peer: &Peer| {
            let template = Arc::clone(&self.members.template(peer.remote())?.name);
            let config = self.dynamic_config(&template, peer.remote())?;
            (restart || config != peer.config).then_some((peer.id, config))
        };
        let wanted: Vec<_> = self.peers.values().filter(|peer| peer.dynamic).filter_map(wanted).collect();
        for (id, config) in wanted {
            self.change_peer(id, config, restart, changes, now);
        }
    }

    pub(super) fn dynamic_timeout(&mut self, now: Instant) {
        let gone = self.members.handle_timeout(now);
        self.remove_dynamic(&gone, now);
    }

    fn remove_dynamic(&mut self, gone: &[Remote], now: Instant) {
        let theirs = |id: &PeerId| {
            self.peers.get(id).is_some_and(|peer| peer.dynamic && gone.contains(&peer.remote()))
        };
        for id in self.ids().into_iter().filter(theirs).collect::<Vec<_>>() {
            self.remove_peer(id, &Notification::new(code::CEASE, code::cease::DECONFIGURED), now);
        }
    }
}
