//! Routes: what each peer sent (Adj-RIB-In), which of it is used and why the rest is not (Loc-RIB), in one table.
//!
//! A prefix has one path for each source, or several where the source numbers them (RFC 7911). Paths that may not be used stay in the
//! table with the reason, and every path keeps its attributes as they came, so that a person can see them and a changed policy needs
//! nothing from the peer.

mod counts;
mod decision;
mod export;
mod guard;
mod import;
mod intern;
mod path;
mod topology;

use std::{net::IpAddr, net::Ipv4Addr, net::Ipv6Addr, sync::Arc};

use ipnet::IpNet;
use isthmus_prefix::{PrefixTable, Seed};

use crate::{Families, Family, PeerId, wire::Attributes};
pub use counts::Counts;
use counts::Tally;
pub use decision::{Comparison, Multipath, Step, Verdict};
pub use export::{ExportCache, ExportTarget, NextHopMode, Withheld, explain_export, export};
pub use guard::Guards;
pub use import::{ImportRules, Imported, Ineligible};
use intern::Interner;
use path::Dest;
pub use path::{Bundle, Neighbor, Path, Source};
pub use topology::{NextHopRule, Topology};

/// Own addresses of a session, one for each family: what "next hop self" means on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    /// For IPv4 prefixes.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 prefixes.
    pub v6: Option<Ipv6Addr>,
    /// Our link-local address on the interface of the session. It goes behind the other one where the peer is on that link (RFC 2545
    /// section 3).
    pub link_local: Option<Ipv6Addr>,
}

impl NextHops {
    /// The same as far as they mean something to this peer; `shared`: it is on the link of the session. Where the session itself is
    /// between link-local addresses, and there is no other, ours is the next hop, too.
    #[must_use]
    pub fn toward(self, peer: IpAddr, shared: bool) -> Self {
        let link_local = self.link_local.filter(|_| shared);
        let alone = link_local.filter(|_| matches!(peer, IpAddr::V6(v6) if v6.is_unicast_link_local()));
        Self { v6: self.v6.or(alone), link_local, ..self }
    }

    /// The next hop that is sent with our link-local address behind it.
    pub fn with_link_local(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        self.v6.zip(self.link_local)
    }

    /// The address for a family.
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::Ipv4Unicast => self.v4.map(IpAddr::V4),
            Family::Ipv6Unicast => self.v6.map(IpAddr::V6),
        }
    }
}

/// What became different about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing.
    None,
    /// Its paths, and the best is still the same.
    Paths,
    /// The best path.
    Best,
    /// There is no best path any more.
    Lost,
}

/// A source has more paths to one prefix than anybody needs; the new one is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {} paths to one prefix", Dest::MAX_PER_SOURCE)]
pub struct TooManyPaths;

/// What becomes of a path that is looked at again.
#[derive(Clone, Debug)]
enum Fate {
    Same,
    Changed,
    Gone,
}

/// What counts about the best path: the same twice means that nobody has to be told.
type BestKey = Option<(*const Bundle, u16)>;

/// The table.
#[derive(Debug)]
pub struct Rib {
    table: PrefixTable<Dest>,
    tally: Tally,
    interner: Interner,
    multipath: Multipath,
    /// Paths taken out since memory was last given back.
    removed: usize,
}

impl Rib {
    /// An empty table.
    pub fn new(multipath: Multipath, seed: Seed) -> Self {
        let (table, interner) = (PrefixTable::new(seed), Interner::new(seed));
        Self { table, tally: Tally::default(), interner, multipath, removed: 0 }
    }

    /// One shared copy of these attributes.
    pub fn intern(&mut self, attributes: Attributes) -> Arc<Attributes> {
        self.interner.attributes(attributes)
    }

    /// One shared copy of what such paths have in common. Attributes must come from [`Rib::intern`].
    pub fn bundle(
        &mut self,
        source: Source,
        received: Arc<Attributes>,
        effective: Option<Arc<Attributes>>,
    ) -> Arc<Bundle> {
        self.interner.bundle(source, received, effective)
    }

    /// Puts a path in the place of the source's former one with this identifier.
    ///
    /// # Errors
    /// The source has too many paths to this prefix. This one is not taken.
    pub fn announce(
        &mut self,
        prefix: IpNet,
        path_id: u32,
        bundle: &Arc<Bundle>,
        ineligible: Option<Ineligible>,
    ) -> Result<Change, TooManyPaths> {
        let mut new = false;
        let path = || {
            let verdict = ineligible.map_or(Verdict::Undecided, Verdict::Ineligible);
            Path::new(Arc::clone(bundle), path_id, verdict)
        };
        let dest = self.table.get_or_insert_with(prefix, || {
            new = true;
            Dest::One(path())
        });
        let before = if new { None } else { best_key(dest.paths()) };
        if !new {
            self.tally.forget(prefix, dest.paths());
            let outcome = place(dest, path_id, bundle, ineligible, path);
            if outcome != Ok(true) {
                self.tally.count(prefix, dest.paths());
                return outcome.map(|_| Change::None);
            }
        }
        decision::decide(dest.paths_mut(), self.multipath);
        self.tally.count(prefix, dest.paths());
        Ok(changed(before, best_key(dest.paths())))
    }

    /// Takes a path of a source out; `None` is ourselves.
    pub fn withdraw(&mut self, prefix: IpNet, peer: Option<PeerId>, path_id: u32) -> Change {
        let Some(dest) = self.table.get_mut(prefix) else { return Change::None };
        let is_it = |path: &Path| path.received_id() == path_id && path.is_of(peer);
        if !dest.paths().iter().any(is_it) {
            return Change::None;
        }
        self.tally.forget(prefix, dest.paths());
        self.removed += 1;
        let before = best_key(dest.paths());
        if !dest.retain(|path| !is_it(path)) {
            self.table.remove(prefix);
            return changed(before, None);
        }
        decision::decide(dest.paths_mut(), self.multipath);
        self.tally.count(prefix, dest.paths());
        changed(before, best_key(dest.paths()))
    }

    /// Takes everything of a peer out that is of these families; returns what changed.
    pub fn withdraw_peer(&mut self, peer: PeerId, families: Families) -> Vec<(IpNet, Change)> {
        self.review(peer, families, |_, _, _| Fate::Gone)
    }

    /// The peer's session is gone, and it said that it goes on forwarding: its paths of these families stay, behind all others
    /// (RFC 4724 section 4.2).
    pub fn mark_stale(&mut self, peer: PeerId, families: Families) -> Vec<(IpNet, Change)> {
        self.review(peer, families, |_, path, _| {
            if path.is_stale() {
                return Fate::Same;
            }
            path.mark_stale();
            Fate::Changed
        })
    }

    /// Takes out what is still stale.
    pub fn sweep_stale(&mut self, peer: PeerId, families: Families) -> Vec<(IpNet, Change)> {
        self.review(peer, families, |_, path, _| if path.is_stale() { Fate::Gone } else { Fate::Same })
    }

    /// The peer begins to announce everything of a family again (RFC 7313 section 4). Stale paths are not part of that: they wait for
    /// its End-of-RIB, which may come after the refresh has ended.
    pub fn begin_refresh(&mut self, peer: PeerId, family: Family) {
        self.review(peer, Families::from_iter([family]), |_, path, _| {
            if !path.is_stale() {
                path.mark_unconfirmed();
            }
            Fate::Same
        });
    }

    /// It has: takes out what it did not announce again.
    pub fn end_refresh(&mut self, peer: PeerId, family: Family) -> Vec<(IpNet, Change)> {
        self.review(peer, Families::from_iter([family]), |_, path, _| {
            if path.is_unconfirmed() { Fate::Gone } else { Fate::Same }
        })
    }

    /// Imports every path of a peer again, as `import` says from prefix and attributes as they came; returns what changed. A stale path
    /// whose next hop is not usable any more goes: there is nothing left to keep.
    pub fn reconsider(
        &mut self,
        peer: PeerId,
        mut import: impl FnMut(IpNet, &Arc<Attributes>) -> Imported,
    ) -> Vec<(IpNet, Change)> {
        self.review(peer, Families::ALL, |prefix, path, interner| {
            let Imported { effective, ineligible } = import(prefix, path.bundle.received());
            if path.is_stale() && ineligible.is_some_and(Ineligible::is_next_hop) {
                return Fate::Gone;
            }
            let effective = effective.map(|changed| interner.attributes(changed));
            let (source, received) = (path.source().clone(), Arc::clone(path.bundle.received()));
            let bundle = interner.bundle(source, received, effective);
            if Arc::ptr_eq(&bundle, &path.bundle) && ineligible == path.verdict.ineligible() {
                return Fate::Same;
            }
            path.bundle = bundle;
            path.verdict = ineligible.map_or(Verdict::Undecided, Verdict::Ineligible);
            Fate::Changed
        })
    }

    /// Decides everything again under another rule; returns what changed.
    pub fn set_multipath(&mut self, multipath: Multipath) -> Vec<(IpNet, Change)> {
        self.multipath = multipath;
        let mut several = Vec::new();
        for (prefix, dest) in self.table.iter_mut().filter(|(_, dest)| dest.paths().len() > 1) {
            self.tally.forget(prefix, dest.paths());
            decision::decide(dest.paths_mut(), multipath);
            self.tally.count(prefix, dest.paths());
            several.push((prefix, Change::Paths));
        }
        several
    }

    /// Gives memory back after many paths have gone. Cheap: it looks only once for as many removals as there are prefixes.
    pub fn tidy(&mut self) {
        if self.removed > self.table.len().max(1024) {
            self.removed = 0;
            self.table.shrink();
            self.interner.sweep();
            self.tally.tidy();
        }
    }

    /// Prefixes that start here.
    pub fn originated(&self) -> impl Iterator<Item = IpNet> {
        let local = |paths: &[Path]| paths.iter().any(|path| path.is_of(None));
        self.table.iter().filter(move |(_, dest)| local(dest.paths())).map(|(prefix, _)| prefix)
    }

    /// Every path to a prefix, used or not.
    pub fn paths(&self, prefix: IpNet) -> &[Path] {
        self.table.get(prefix).map_or(&[], Dest::paths)
    }

    /// Every prefix with its paths, in no order but IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &[Path])> {
        self.table.iter().map(|(prefix, dest)| (prefix, dest.paths()))
    }

    /// The path that is used and announced.
    pub fn best(&self, prefix: IpNet) -> Option<&Path> {
        self.paths(prefix).iter().find(|path| path.verdict == Verdict::Best)
    }

    /// What decided against each path that is not used, in the order of [`Rib::paths`].
    pub fn comparisons(&self, prefix: IpNet) -> Vec<Option<Comparison>> {
        decision::compare(self.paths(prefix))
    }

    /// Every prefix, IPv4 first.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.table.prefixes()
    }

    /// How many prefixes there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many paths a peer has here.
    pub fn counts(&self, peer: PeerId) -> Counts {
        self.tally.of(peer)
    }

    /// Looks at every path of a peer, and decides again where one changed.
    fn review(
        &mut self,
        peer: PeerId,
        families: Families,
        mut visit: impl FnMut(IpNet, &mut Path, &mut Interner) -> Fate,
    ) -> Vec<(IpNet, Change)> {
        let Self { table, tally, interner, multipath, removed } = self;
        let mut found = Vec::new();
        if tally.of(peer).total() == 0 {
            return found;
        }
        table.retain(|prefix, dest| {
            let concerned = families.contains(Family::of(&prefix));
            if !concerned || !dest.paths().iter().any(|path| path.is_of(Some(peer))) {
                return true;
            }
            let before = best_key(dest.paths());
            tally.forget(prefix, dest.paths());
            let (mut gone, mut touched) = (Vec::new(), false);
            for path in dest.paths_mut().iter_mut().filter(|path| path.is_of(Some(peer))) {
                match visit(prefix, path, interner) {
                    Fate::Same => {}
                    Fate::Changed => touched = true,
                    Fate::Gone => gone.push(path.local_id()),
                }
            }
            *removed += gone.len();
            if !gone.is_empty() && !dest.retain(|path| !gone.contains(&path.local_id())) {
                found.push((prefix, changed(before, None)));
                return false;
            }
            if touched || !gone.is_empty() {
                decision::decide(dest.paths_mut(), *multipath);
                found.push((prefix, changed(before, best_key(dest.paths()))));
            }
            tally.count(prefix, dest.paths());
            true
        });
        found
    }
}

/// Puts a path where its source's former one was, or beside the others. `Ok(false)`: nothing is different.
fn place(
    dest: &mut Dest,
    path_id: u32,
    bundle: &Arc<Bundle>,
    ineligible: Option<Ineligible>,
    path: impl FnOnce() -> Path,
) -> Result<bool, TooManyPaths> {
    let peer = bundle.source.peer();
    let mut known = dest.paths_mut().iter_mut();
    if let Some(known) = known.find(|known| known.received_id() == path_id && known.is_of(peer)) {
        return Ok(known.renew(bundle, ineligible));
    }
    if !dest.has_room_for(peer) {
        return Err(TooManyPaths);
    }
    dest.push(path());
    Ok(true)
}

fn best_key(paths: &[Path]) -> BestKey {
    let best = paths.iter().find(|path| path.verdict == Verdict::Best)?;
    Some((Arc::as_ptr(&best.bundle), best.local_id()))
}

fn changed(before: BestKey, after: BestKey) -> Change {
    match (before, after) {
        (Some(_), None) => Change::Lost,
        _ if before == after => Change::Paths,
        _ => Change::Best,
    }
}

#[cfg(test)]
mod tests;
