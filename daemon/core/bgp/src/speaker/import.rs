//! From received attributes to paths of the table.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Event, PeerId, Speaker};
use crate::{
    Family,
    rib::{Bundle, ImportRules, Imported, Ineligible, Rib, Source},
    wire::Attributes,
};

/// The last class of prefixes that were imported with some attributes, and what became of them.
#[derive(Default)]
pub(super) struct Known {
    class: Option<(Family, u64)>,
    bundle: Option<Arc<Bundle>>,
    ineligible: Option<Ineligible>,
}

impl Known {
    /// All calls must be with the same rules and attributes.
    pub(super) fn import(
        &mut self,
        rib: &mut Rib,
        rules: &ImportRules,
        prefix: IpNet,
        received: &Arc<Attributes>,
    ) -> (Arc<Bundle>, Option<Ineligible>) {
        let class = rules.prefix_class(&prefix);
        if let Some(bundle) = self.bundle.as_ref().filter(|_| class.is_some() && self.class == class) {
            return (Arc::clone(bundle), self.ineligible);
        }
        let Imported { effective, ineligible } = rules.import_attributes(prefix, received);
        let effective = effective.map(|changed| rib.intern(changed));
        let source = Source::Peer(Arc::clone(&rules.neighbor));
        let bundle = rib.bundle(source, Arc::clone(received), effective);
        *self = Self { class, bundle: Some(Arc::clone(&bundle)), ineligible };
        (bundle, ineligible)
    }
}

/// What a person should hear of an UPDATE, or of a look at all of a peer's paths: each once.
pub(super) struct Refusals {
    peer: Arc<str>,
    next_hop: Option<Event>,
    too_many: Option<Event>,
}

impl Refusals {
    pub(super) fn new(peer: Arc<str>) -> Self {
        Self { peer, next_hop: None, too_many: None }
    }

    /// Keeps the first path that is not used because of its next hop.
    pub(super) fn look_at(&mut self, prefix: IpNet, bundle: &Bundle, ineligible: Option<Ineligible>) {
        self.look_at_next_hop(prefix, bundle.attributes(), ineligible);
    }

    fn look_at_next_hop(&mut self, prefix: IpNet, attributes: &Attributes, ineligible: Option<Ineligible>) {
        let Some(why) = ineligible.filter(|why| why.is_next_hop() && self.next_hop.is_none()) else { return };
        let (peer, next_hop) = (Arc::clone(&self.peer), attributes.next_hop);
        self.next_hop = Some(Event::NextHopRefused { peer, prefix, next_hop, why });
    }

    pub(super) fn too_many(&mut self, prefix: IpNet) {
        let peer = Arc::clone(&self.peer);
        self.too_many.get_or_insert(Event::TooManyPaths { peer, prefix });
    }

    pub(super) fn events(self) -> impl Iterator<Item = Event> {
        self.next_hop.into_iter().chain(self.too_many)
    }
}

impl Speaker {
    /// What a peer's paths are judged by changed: makes the rules anew.
    pub(super) fn renew_rules(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let rules = peer.import_rules(&self.config, &self.topology).map(Arc::new);
        peer.up.iter_mut().for_each(|up| up.rules.clone_from(&rules));
    }

    /// The same, and imports every path of the peer again.
    pub(super) fn judge_again(&mut self, id: PeerId) {
        self.renew_rules(id);
        let Some(peer) = self.peers.get(&id) else { return };
        let mut refused = Refusals::new(Arc::clone(&peer.config.name));
        let Some(rules) = peer.up.as_ref().and_then(|up| up.rules.clone()) else { return };
        let changed = self.rib.reconsider(id, |prefix, received| {
            let imported = rules.import(prefix, received);
            let attributes = imported.effective.as_ref().unwrap_or(received);
            refused.look_at_next_hop(prefix, attributes, imported.ineligible);
            imported
        });
        self.note_all(changed);
        self.events.extend(refused.events());
    }
}
