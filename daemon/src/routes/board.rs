//! The board's state behind its lock.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use tokio::sync::watch;

use super::{DownLink, DownLinks, Group, PeerName, Route, Statics, Watcher, log::Log, table::Table};

/// Cheap handle to the board.
#[derive(Clone)]
pub struct Board {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
    statics: watch::Sender<Statics>,
    down_links: watch::Sender<DownLinks>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) table: Table,
    pub(super) log: Log,
    settled: bool,
    underlay: Arc<[IpAddr]>,
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl Board {
    /// An empty board.
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            version: watch::Sender::new(0),
            statics: watch::Sender::new(Arc::new([])),
            down_links: watch::Sender::new(Arc::new([])),
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

    /// BGP's candidates for these prefixes; an empty group withdraws.
    pub fn update_bgp(&self, changes: Vec<(IpNet, Group)>) {
        self.write(|state| state.table.update_bgp(changes));
    }

    /// The interfaces that carry nothing now; replaces what was said before.
    pub fn set_down_links(&self, links: Vec<DownLink>) {
        self.down_links.send_if_modified(|old| {
            let differ = **old != *links;
            *old = links.into();
            differ
        });
    }

    /// Interfaces that carry nothing, as last set; a receiver wakes when they change.
    pub fn down_links(&self) -> watch::Receiver<DownLinks> {
        self.down_links.subscribe()
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
            state.underlay = addresses.into();
            Vec::new()
        });
    }

    /// True once [`Board::set_settled`] was called.
    pub fn settled(&self) -> bool {
        self.lock().settled
    }

    /// Outer addresses of the tunnel peers, as configured.
    pub fn underlay(&self) -> Arc<[IpAddr]> {
        Arc::clone(&self.lock().underlay)
    }

    /// How many prefixes have a route.
    pub fn len(&self) -> usize {
        self.lock().table.len()
    }

    /// True if no prefix has a route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The route of exactly this prefix.
    pub fn get(&self, prefix: IpNet) -> Option<Route> {
        self.lock().table.get(prefix.trunc())
    }

    /// Longest-prefix route for an address.
    pub fn lookup(&self, address: IpAddr) -> Option<Route> {
        self.lock().table.lookup(address)
    }

    /// Every route, v4 before v6, in prefix order.
    pub fn snapshot(&self) -> Vec<Route> {
        let mut routes = self.lock().table.all();
        routes.sort_unstable_by_key(|route| route.prefix);
        routes
    }

    /// A reader that first sees everything.
    pub fn subscribe(&self) -> Watcher {
        let number = self.lock().log.add_reader();
        Watcher::new(self.clone(), self.version.subscribe(), number)
    }

    fn write(&self, change: impl FnOnce(&mut State) -> Vec<IpNet>) {
        let mut state = self.lock();
        let changed = change(&mut state);
        state.log.push(changed);
        // Announced under the lock, so that versions are announced in order.
        self.version.send_replace(state.log.version());
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while writing can only have lost that one write: what is there is still a consistent table.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
