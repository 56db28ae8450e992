//! What the table is made of. Prefixes that came with the same attributes share a [`Bundle`]; of its own a prefix with one path has 16
//! bytes and its key.

use std::{
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr},
    slice,
    sync::Arc,
};

use super::Verdict;
use crate::{PeerId, wire::Attributes};

/// What the decision process needs to know about the peer that a path came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Its number here.
    pub id: PeerId,
    /// Its configured name.
    pub name: Arc<str>,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its AS number.
    pub asn: u32,
    /// Its AS is not ours.
    pub external: bool,
    /// We reflect its routes (RFC 4456).
    pub client: bool,
}

/// Where a path comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Originated here.
    Local,
    /// Learned from a peer.
    Peer(Arc<Neighbor>),
}

impl Source {
    /// The peer's number.
    pub fn peer(&self) -> Option<PeerId> {
        self.neighbor().map(|neighbor| neighbor.id)
    }

    /// The peer.
    pub fn neighbor(&self) -> Option<&Arc<Neighbor>> {
        match self {
            Self::Local => None,
            Self::Peer(neighbor) => Some(neighbor),
        }
    }

    fn pointer(&self) -> Option<*const Neighbor> {
        self.neighbor().map(Arc::as_ptr)
    }
}

/// What paths have in common that came from one source with the same attributes. Made by [`super::Rib::bundle`], one of a kind: equal if
/// it is the same.
#[derive(Debug)]
pub struct Bundle {
    pub(super) source: Source,
    pub(super) received: Arc<Attributes>,
    /// Where import changed them.
    pub(super) effective: Option<Arc<Attributes>>,
}

impl Bundle {
    /// Where the paths come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The attributes as they came.
    pub fn received(&self) -> &Arc<Attributes> {
        &self.received
    }

    /// The attributes that count: as they came, changed by the rules of import.
    pub fn attributes(&self) -> &Arc<Attributes> {
        self.effective.as_ref().unwrap_or(&self.received)
    }

    /// Attributes and neighbors are each one of a kind, so their addresses say which they are.
    fn identity(&self) -> [Option<usize>; 3] {
        let effective = self.effective.as_ref().map(|attributes| Arc::as_ptr(attributes).addr());
        let source = self.source.pointer().map(<*const Neighbor>::addr);
        [source, Some(Arc::as_ptr(&self.received).addr()), effective]
    }
}

impl PartialEq for Bundle {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Bundle {}

impl Hash for Bundle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// One way to a prefix.
#[derive(Clone, Debug)]
pub struct Path {
    pub(super) bundle: Arc<Bundle>,
    received_id: u32,
    tag: Tag,
    pub(super) verdict: Verdict,
}

/// The number that tells a path from the others to its prefix, in 14 bits, and two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag(u16);

impl Tag {
    const STALE: u16 = 1 << 15;
    const UNCONFIRMED: u16 = 1 << 14;
    const MARKS: u16 = Self::STALE | Self::UNCONFIRMED;
}

impl Path {
    pub(super) fn new(bundle: Arc<Bundle>, received_id: u32, verdict: Verdict) -> Self {
        Self { bundle, received_id, tag: Tag(1), verdict }
    }

    /// What it has in common with others.
    pub fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }

    /// Where it comes from.
    pub fn source(&self) -> &Source {
        &self.bundle.source
    }

    /// The attributes that count.
    pub fn attributes(&self) -> &Arc<Attributes> {
        self.bundle.attributes()
    }

    /// What the decision process made of it.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The path identifier that the peer gave it (RFC 7911); 0 where none was agreed on.
    pub fn received_id(&self) -> u32 {
        self.received_id
    }

    /// Its number among the paths to its prefix, which stays while it is announced: the path identifier that others are told. Not 0.
    pub fn local_id(&self) -> u16 {
        self.tag.0 & !Tag::MARKS
    }

    /// Its session is gone; it is kept because the peer said that it goes on forwarding (RFC 4724).
    pub fn is_stale(&self) -> bool {
        self.tag.0 & Tag::STALE != 0
    }

    /// It has not been announced again since the peer began to announce everything again (RFC 7313).
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.tag.0 & Tag::UNCONFIRMED != 0
    }

    pub(super) fn is_of(&self, peer: Option<PeerId>) -> bool {
        self.bundle.source.peer() == peer
    }

    pub(super) fn mark_stale(&mut self) {
        self.tag.0 |= Tag::STALE;
    }

    pub(super) fn mark_unconfirmed(&mut self) {
        self.tag.0 |= Tag::UNCONFIRMED;
    }

    /// Announced again: takes the new bundle and loses its marks. False if all was so already.
    pub(super) fn renew(&mut self, bundle: &Arc<Bundle>, ineligible: Option<super::Ineligible>) -> bool {
        let was_stale = self.is_stale();
        self.tag.0 &= !Tag::MARKS;
        let same = Arc::ptr_eq(&self.bundle, bundle) && self.verdict.ineligible() == ineligible;
        if !same {
            self.bundle = Arc::clone(bundle);
            self.verdict = ineligible.map_or(Verdict::Undecided, Verdict::Ineligible);
        }
        was_stale || !same
    }
}

/// The paths to one prefix: nearly always one.
#[derive(Debug)]
pub(super) enum Dest {
    One(Path),
    #[expect(clippy::box_collection, reason = "every prefix would pay for the room of a Vec")]
    Many(Box<Vec<Path>>),
}

impl Dest {
    /// Most paths to a prefix from one source, and from all: whoever sends more than this gains nothing by it but our time.
    pub(super) const MAX_PER_SOURCE: usize = 64;
    const MAX: usize = 4096;

    pub(super) fn paths(&self) -> &[Path] {
        match self {
            Self::One(path) => slice::from_ref(path),
            Self::Many(paths) => paths,
        }
    }

    pub(super) fn paths_mut(&mut self) -> &mut [Path] {
        match self {
            Self::One(path) => slice::from_mut(path),
            Self::Many(paths) => paths,
        }
    }

    pub(super) fn has_room_for(&self, peer: Option<PeerId>) -> bool {
        let paths = self.paths();
        paths.len() < Self::MAX && paths.iter().filter(|path| path.is_of(peer)).count() < Self::MAX_PER_SOURCE
    }

    /// Puts a path beside the others. It gets the least number that is free.
    pub(super) fn push(&mut self, mut path: Path) {
        let taken = |id: u16| self.paths().iter().any(|known| known.local_id() == id);
        let free = (1..).find(|id| !taken(*id));
        path.tag = Tag(free.expect("there are fewer paths than numbers"));
        match self {
            Self::Many(paths) => paths.push(path),
            Self::One(first) => *self = Self::Many(Box::new(vec![first.clone(), path])),
        }
    }

    /// Takes out every path for which `keep` says false. False: none is left, and then all are still there, to be dropped as a whole.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Path) -> bool) -> bool {
        let Self::Many(paths) = self else { return self.paths().iter().all(keep) };
        let mut kept: Vec<Path> = Vec::new();
        let mut keep = keep;
        kept.extend(paths.iter().filter(|path| keep(path)).cloned());
        match kept.len() {
            0 => return false,
            1 => *self = Self::One(kept.remove(0)),
            _ => **paths = kept,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_small() {
        assert_eq!((size_of::<Path>(), size_of::<Dest>()), (16, 16));
    }

    #[test]
    fn numbers_are_unique_and_stay() {
        let path = || {
            let received = Arc::new(Attributes::originated("10.0.0.1".parse().unwrap()));
            let bundle = Bundle { source: Source::Local, received, effective: None };
            Path::new(Arc::new(bundle), 0, Verdict::Undecided)
        };
        let ids = |dest: &Dest| dest.paths().iter().map(Path::local_id).collect::<Vec<_>>();
        let mut dest = Dest::One(path());
        dest.push(path());
        dest.push(path());
        assert_eq!(ids(&dest), [1, 2, 3]);
        assert!(dest.retain(|path| path.local_id() != 2));
        dest.push(path());
        assert_eq!(ids(&dest), [1, 3, 2]);
        assert!(dest.retain(|path| path.local_id() == 3));
        assert!(matches!(dest, Dest::One(_)));
        dest.paths_mut()[0].mark_stale();
        assert_eq!((ids(&dest), dest.paths()[0].is_stale()), (vec![3], true));
        assert!(!dest.retain(|_| false));
    }
}
