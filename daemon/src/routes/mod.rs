//! Board 2: which prefixes exist, who could carry them, and who does.
//!
//! The tunnel writes the static prefixes (its peers' `allowed_ips`), BGP writes what it learned; the tunnel's packet table, the FIB
//! and the control API read. Writers replace, never append. A reader gets numbered changes, or everything if it fell too far
//! behind, so that a slow reader costs memory to nobody.

mod table;

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use tokio::sync::watch;

use table::Table;

/// A tunnel peer's configured name.
pub type PeerName = Arc<str>;

/// The tunnel peers' own prefixes.
pub type Statics = Arc<[(IpNet, PeerName)]>;

/// Changes remembered for readers; one that is further behind gets the whole table.
const LOG_LENGTH: usize = 16_384;

/// Who says that a prefix exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A peer's `allowed_ips`.
    Static,
    /// Learned from a BGP neighbor.
    Bgp,
}

/// One way to a prefix, as its source states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where packets should go.
    pub next_hop: NextHop,
    /// The BGP neighbor it was learned from; `None` for static prefixes.
    pub neighbor: Option<Arc<str>>,
    /// True: the source wants it to carry traffic (best path, or equal to it under multipath).
    pub selected: bool,
    /// Why it is or is not selected, for a person.
    pub reason: String,
    /// AS_PATH as text, empty for static prefixes.
    pub as_path: String,
}

/// A candidate's next hop before resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A tunnel peer, named by the configuration.
    Peer(PeerName),
    /// An address, to be resolved.
    Address(IpAddr),
}

/// A resolved next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Through our TUN device to this peer.
    Peer(PeerName),
    /// Through the kernel to this neighbor.
    Gateway(IpAddr),
}

/// A candidate with its resolved hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where it leads.
    pub hop: Hop,
    /// What the source said.
    pub candidate: Candidate,
}

/// A prefix with every path of its winning source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub prefix: IpNet,
    /// The winning source.
    pub source: Source,
    /// All candidates; those with `selected` carry traffic, all of them are feasible sources (RFC 3704 section 2.3).
    pub paths: Vec<Path>,
}

impl Route {
    /// Hops that carry traffic.
    pub fn selected(&self) -> impl Iterator<Item = &Hop> {
        self.paths.iter().filter(|path| path.candidate.selected).map(|path| &path.hop)
    }
}

/// What a reader has missed.
#[derive(Debug)]
pub enum Changes {
    /// The whole table: the reader starts, or fell too far behind.
    All(Vec<Arc<Route>>),
    /// Prefixes that changed, each with its route now; `None`: gone.
    Some(Vec<(IpNet, Option<Arc<Route>>)>),
}

/// Cheap handle to the board.
#[derive(Clone)]
pub struct Board {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
    statics: watch::Sender<Statics>,
}

struct State {
    table: Table,
    /// (version, prefix), oldest first.
    log: VecDeque<(u64, IpNet)>,
    version: u64,
    /// The last version no longer in the log.
    forgotten: u64,
    settled: bool,
    underlay: Vec<IpAddr>,
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl Board {
    /// An empty board.
    pub fn new() -> Self {
        let state = State {
            table: Table::default(),
            log: VecDeque::new(),
            version: 0,
            forgotten: 0,
            settled: false,
            underlay: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            version: watch::Sender::new(0),
            statics: watch::Sender::new(Arc::new([])),
        }
    }

    /// The tunnel's peers and their prefixes; replaces what was said before, and resolves BGP's next hops again.
    pub fn set_static(&self, prefixes: Vec<(IpNet, PeerName)>) {
        self.write(|state| {
            self.statics.send_if_modified(|statics| {
                let differ = **statics != *prefixes;
                *statics = prefixes.as_slice().into();
                differ
            });
            state.table.set_static(prefixes)
        });
    }

    /// The tunnel peers' prefixes, as last set; a receiver wakes when they change.
    pub fn statics(&self) -> watch::Receiver<Statics> {
        self.statics.subscribe()
    }

    /// BGP's candidates for these prefixes; an empty list withdraws.
    pub fn update_bgp(&self, changes: Vec<(IpNet, Vec<Candidate>)>) {
        self.write(|state| state.table.update_bgp(changes));
    }

    /// BGP has heard End-of-RIB (or given up waiting) from every neighbor: what is not on the board now is really gone.
    pub fn set_settled(&self) {
        self.write(|state| {
            state.settled = true;
            Vec::new()
        });
    }

    /// Outer addresses of the tunnel peers as configured (learned ones are not the operator's word): no route into the tunnel may cover
    /// them, or the tunnel would carry itself.
    pub fn set_underlay(&self, mut addresses: Vec<IpAddr>) {
        addresses.sort();
        addresses.dedup();
        self.write(|state| {
            state.underlay = addresses;
            Vec::new()
        });
    }

    /// True once [`Board::set_settled`] was called.
    pub fn settled(&self) -> bool {
        self.lock().settled
    }

    /// Outer addresses of the tunnel peers, as configured.
    pub fn underlay(&self) -> Vec<IpAddr> {
        self.lock().underlay.clone()
    }

    /// Longest-prefix route for an address.
    pub fn lookup(&self, address: IpAddr) -> Option<Arc<Route>> {
        self.lock().table.lookup(address)
    }

    /// Every route, v4 before v6, in prefix order.
    pub fn snapshot(&self) -> Vec<Arc<Route>> {
        self.lock().table.all()
    }

    /// A reader that first sees everything.
    pub fn subscribe(&self) -> Watcher {
        Watcher { board: self.clone(), version: self.version.subscribe(), seen: None }
    }

    fn write(&self, change: impl FnOnce(&mut State) -> Vec<IpNet>) {
        let mut state = self.lock();
        let changed = change(&mut state);
        state.version += 1;
        let version = state.version;
        state.log.extend(changed.into_iter().map(|prefix| (version, prefix)));
        while state.log.len() > LOG_LENGTH {
            if let Some((forgotten, _)) = state.log.pop_front() {
                state.forgotten = forgotten;
            }
        }
        // Announced under the lock, so that versions are announced in order.
        self.version.send_replace(version);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while writing can only have lost that one write: what is there is still a consistent table.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of the board.
pub struct Watcher {
    board: Board,
    version: watch::Receiver<u64>,
    seen: Option<u64>,
}

impl Watcher {
    /// Waits until something changed since the last [`Watcher::take`]; returns at once for a new reader. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.seen.is_some() {
            // The board holds the sender and we hold the board: this cannot fail.
            let _ = self.version.changed().await;
        }
    }

    /// What changed since the last call.
    pub fn take(&mut self) -> Changes {
        self.version.mark_unchanged();
        let state = self.board.lock();
        let seen = self.seen.replace(state.version);
        match seen {
            Some(seen) if seen >= state.forgotten => Changes::Some(recent(&state, seen)),
            _ => Changes::All(state.table.all()),
        }
    }
}

fn recent(state: &State, seen: u64) -> Vec<(IpNet, Option<Arc<Route>>)> {
    let first = state.log.partition_point(|(version, _)| *version <= seen);
    let mut prefixes: Vec<IpNet> = state.log.range(first..).map(|(_, prefix)| *prefix).collect();
    prefixes.sort();
    prefixes.dedup();
    prefixes.into_iter().map(|prefix| (prefix, state.table.get(&prefix))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn via(address: &str) -> Candidate {
        Candidate {
            next_hop: NextHop::Address(address.parse().unwrap()),
            neighbor: Some("n".into()),
            selected: true,
            reason: "only path".into(),
            as_path: "65001".into(),
        }
    }

    fn hops(board: &Board, address: &str) -> Vec<Hop> {
        board.lookup(address.parse().unwrap()).map(|r| r.selected().cloned().collect()).unwrap_or_default()
    }

    #[test]
    fn next_hop_resolves_through_allowed_ips_only() {
        let board = Board::new();
        board.set_static(vec![(net("10.99.0.2/32"), "azure".into())]);
        board.update_bgp(vec![
            (net("10.20.0.0/16"), vec![via("10.99.0.2")]),
            (net("192.0.2.0/24"), vec![via("10.20.0.9")]),
        ]);
        assert_eq!(hops(&board, "10.20.1.1"), [Hop::Peer("azure".into())]);
        assert_eq!(hops(&board, "192.0.2.1"), [Hop::Gateway("10.20.0.9".parse().unwrap())]);
    }

    #[test]
    fn static_prefix_wins_over_bgp() {
        let board = Board::new();
        board.update_bgp(vec![(net("10.20.0.0/16"), vec![via("10.0.0.1")])]);
        board.set_static(vec![(net("10.20.0.0/16"), "azure".into())]);
        assert_eq!(hops(&board, "10.20.1.1"), [Hop::Peer("azure".into())]);
        board.set_static(vec![]);
        assert_eq!(hops(&board, "10.20.1.1"), [Hop::Gateway("10.0.0.1".parse().unwrap())]);
    }

    #[test]
    fn host_bits_do_not_make_a_second_prefix() {
        let board = Board::new();
        board.update_bgp(vec![(net("10.20.5.1/16"), vec![via("10.0.0.1")])]);
        board.update_bgp(vec![(net("10.20.0.0/16"), vec![])]);
        assert!(board.snapshot().is_empty());
    }

    #[test]
    fn new_reader_sees_all_then_only_changes() {
        let board = Board::new();
        board.update_bgp(vec![(net("10.1.0.0/16"), vec![via("10.0.0.1")])]);
        let mut reader = board.subscribe();
        assert!(matches!(reader.take(), Changes::All(routes) if routes.len() == 1));
        board.update_bgp(vec![(net("10.2.0.0/16"), vec![via("10.0.0.1")])]);
        board.update_bgp(vec![(net("10.1.0.0/16"), vec![])]);
        board.update_bgp(vec![(net("10.2.0.0/16"), vec![via("10.0.0.1")])]);
        let Changes::Some(changes) = reader.take() else { panic!("a reader that kept up gets changes") };
        let summary: Vec<_> = changes.iter().map(|(p, r)| (p.to_string(), r.is_some())).collect();
        assert_eq!(summary, [("10.1.0.0/16".to_string(), false), ("10.2.0.0/16".to_string(), true)]);
        assert!(matches!(reader.take(), Changes::Some(none) if none.is_empty()));
    }

    #[test]
    fn reader_that_fell_behind_gets_everything() {
        let board = Board::new();
        let mut reader = board.subscribe();
        reader.take();
        for n in 0..=LOG_LENGTH {
            let prefix =
                IpNet::new(std::net::Ipv4Addr::from(u32::try_from(n).unwrap() << 8).into(), 24).unwrap();
            board.update_bgp(vec![(prefix, vec![via("10.0.0.1")])]);
        }
        assert!(matches!(reader.take(), Changes::All(routes) if routes.len() == LOG_LENGTH + 1));
    }

    #[test]
    fn statics_are_told_when_they_change() {
        let board = Board::new();
        let mut statics = board.statics();
        let set = |name: &str| board.set_static(vec![(net("10.99.0.2/32"), name.into())]);
        set("azure");
        assert!(statics.has_changed().unwrap());
        assert_eq!(**statics.borrow_and_update(), [(net("10.99.0.2/32"), "azure".into())]);
        set("azure");
        board.update_bgp(vec![(net("10.20.0.0/16"), vec![via("10.99.0.2")])]);
        assert!(!statics.has_changed().unwrap(), "nothing of them did");
        set("onprem");
        assert!(statics.has_changed().unwrap());
    }

    #[tokio::test]
    async fn reader_wakes_on_change() {
        let board = Board::new();
        let mut reader = board.subscribe();
        reader.changed().await;
        reader.take();
        board.set_settled();
        tokio::time::timeout(std::time::Duration::from_secs(5), reader.changed()).await.unwrap();
        assert!(board.settled());
    }
}
