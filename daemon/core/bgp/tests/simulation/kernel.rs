//! A node's kernel: the routes that its process has written. They outlive the process, but not the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use isthmus_bgp::{Families, Speaker, rib::Source};

/// Where packets to a prefix go; `None`: they are at home.
pub(crate) type Hops = BTreeSet<Option<IpAddr>>;

#[derive(Default)]
pub(crate) struct Kernel {
    routes: BTreeMap<IpNet, Hops>,
    /// Some are from an earlier process, and nobody has said yet that they are still right.
    adopted: bool,
}

impl Kernel {
    pub(crate) fn hops(&self, prefix: &IpNet) -> Hops {
        self.routes.get(prefix).cloned().unwrap_or_default()
    }

    pub(crate) fn routes(&self) -> &BTreeMap<IpNet, Hops> {
        &self.routes
    }

    /// What a process that starts finds: the families that were forwarded all along.
    pub(crate) fn adopt(&mut self) -> Families {
        self.adopted = true;
        if self.routes.is_empty() { Families::NONE } else { Families::ALL }
    }

    pub(crate) fn clear(&mut self) {
        self.routes.clear();
    }

    /// Writes what the process says; takes out what is left of an earlier one when this one knows better.
    pub(crate) fn follow(&mut self, speaker: &mut Speaker) {
        let mut changed = speaker.take_changed();
        if self.adopted && !speaker.defers() {
            self.adopted = false;
            changed.extend(self.routes.keys());
        }
        for prefix in changed {
            let hops = selected(speaker, &prefix);
            if hops.is_empty() {
                self.routes.remove(&prefix);
            } else {
                self.routes.insert(prefix, hops);
            }
        }
    }
}

/// Where the table sends packets to a prefix.
pub(crate) fn selected(speaker: &Speaker, prefix: &IpNet) -> Hops {
    let selected = speaker.paths(prefix).iter().filter(|path| path.verdict().selected());
    let hop = |path: &isthmus_bgp::rib::Path| match path.source() {
        Source::Local => None,
        Source::Peer(_) => Some(path.attributes().next_hop),
    };
    selected.map(hop).collect()
}
