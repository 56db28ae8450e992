//! Peers that come by themselves (see [`crate::dynamic`]): sessions are made when they connect, and removed some time after they went.

use std::{net::IpAddr, sync::Arc, time::Instant};

use super::{DynamicPeers, PeerConfig, PeerId, Refused, Speaker};
use crate::{
    dynamic::NotAdmitted,
    wire::{Notification, code},
};

impl Speaker {
    /// The peer that connects from this address: a configured one, or one that a template makes.
    pub(super) fn peer_at(
        &mut self,
        remote: IpAddr,
        scope: Option<u32>,
        now: Instant,
    ) -> Result<PeerId, Refused> {
        let is_it =
            |peer: &PeerConfig| peer.address == remote && (peer.scope.is_none() || peer.scope == scope);
        let configured = self.peers.values().find(|peer| !peer.dynamic && is_it(&peer.config));
        if let Some(peer) = configured {
            return Ok(peer.id);
        }
        if self.departure.is_gone() {
            return Err(Refused::Unwanted("this node is drained"));
        }
        let template = self.members.admit(remote, now).map_err(|why| match why {
            NotAdmitted::Unknown => Refused::Unknown,
            NotAdmitted::Full(template) => Refused::Full(template),
        })?;
        let (template, name) = (Arc::clone(&template.name), template.peer_name(remote));
        if let Some(known) = self.peers.values().find(|peer| peer.dynamic && peer.config.address == remote) {
            return Ok(known.id);
        }
        let model = self.config.dynamic.iter().find(|model| model.template.name == template);
        let model = model.ok_or(Refused::Unknown)?;
        let config = PeerConfig { name, address: remote, scope, passive: true, ..model.peer.clone() };
        Ok(self.add_dynamic(config, now))
    }

    /// Other templates: peers that these do not cover go. Those that stay keep the settings that their session was made with.
    pub(super) fn apply_dynamic(&mut self, old: &[DynamicPeers], changes: &mut Vec<String>, now: Instant) {
        if *old == *self.config.dynamic {
            return;
        }
        changes.push("dynamic neighbors changed".into());
        let templates = self.config.dynamic.iter().map(|model| model.template.clone()).collect();
        let gone = self.members.set_templates(templates);
        self.remove_dynamic(&gone, now);
    }

    pub(super) fn dynamic_timeout(&mut self, now: Instant) {
        let gone = self.members.handle_timeout(now);
        self.remove_dynamic(&gone, now);
    }

    fn remove_dynamic(&mut self, addresses: &[IpAddr], now: Instant) {
        let theirs = |id: &PeerId| {
            self.peers.get(id).is_some_and(|peer| peer.dynamic && addresses.contains(&peer.config.address))
        };
        for id in self.ids().into_iter().filter(theirs).collect::<Vec<_>>() {
            self.remove_peer(id, &Notification::new(code::CEASE, code::cease::DECONFIGURED), now);
        }
    }
}
