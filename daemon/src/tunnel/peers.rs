//! The set of peers: who there is, when each needs a look, and what the log and the board know of them.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use isthmus_tunnel::{Identity, path_mtu, table::Underlay};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Config, Endpoint, PeerConfig, attention::Attention, engine, peer::Peer, post::Post, resolve,
    snapshot::Snapshot,
};
use crate::routes::{Board, PeerName};

/// The peers, in configuration order.
pub(super) struct Peers {
    identity: Arc<Identity>,
    attention: Arc<Attention>,
    list: Vec<Arc<Peer>>,
    by_index: HashMap<u32, Entry>,
    schedule: BTreeSet<(Instant, u32)>,
}

struct Entry {
    peer: Arc<Peer>,
    _resolver: Option<AbortOnDropHandle<()>>,
    /// When its timers need a look; as in the schedule.
    due: Option<Instant>,
    /// As last logged.
    up: bool,
    path_mtu: Option<u16>,
}

impl Peers {
    pub(super) fn new(identity: Arc<Identity>, attention: Arc<Attention>) -> Self {
        Self { identity, attention, list: Vec::new(), by_index: HashMap::new(), schedule: BTreeSet::new() }
    }

    /// Adds a peer with a receiver index that no other peer has; it gets its first look at once.
    pub(super) fn add(&mut self, config: &PeerConfig, mtu: u16) {
        let index = loop {
            let index = rand::random::<u32>() >> 8;
            if !self.by_index.contains_key(&index) {
                break index;
            }
        };
        let peer = Arc::new(Peer::new(&self.identity, config, index, mtu));
        self.attach(Arc::clone(&peer));
        self.list.push(peer);
    }

    fn attach(&mut self, peer: Arc<Peer>) {
        let index = peer.index;
        let resolver = resolve::spawn(&peer, &self.attention);
        let up = peer.is_up();
        self.by_index.insert(index, Entry { peer, _resolver: resolver, due: None, up, path_mtu: None });
        self.attention.ask(index);
    }

    /// Removes a peer; what it counted is in the peer that is returned.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Peer>> {
        let at = self.list.iter().position(|peer| &*peer.name == name)?;
        let peer = self.list.remove(at);
        self.plan(peer.index, None);
        self.by_index.remove(&peer.index);
        Some(peer)
    }

    /// Gives a peer what can change under a running session.
    pub(super) fn reconfigure(&mut self, config: &PeerConfig) {
        let Some(peer) = self.list.iter().find(|peer| *peer.name == *config.name).cloned() else { return };
        peer.reconfigure(config);
        self.plan(peer.index, None);
        self.attach(peer);
    }

    /// Takes the order of the configuration.
    pub(super) fn sort(&mut self, config: &Config) {
        let order: HashMap<&str, usize> =
            config.peers.iter().map(|peer| peer.name.as_str()).zip(0..).collect();
        self.list.sort_by_key(|peer| order.get(&*peer.name).copied());
    }

    /// When the next peer needs a look.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.schedule.first().map(|(due, _)| *due)
    }

    /// Looks at every peer whose time has come.
    pub(super) fn look_at_due(&mut self, post: &mut Post) {
        let now = Instant::now();
        while let Some((due, index)) = self.schedule.first().copied()
            && due <= now
        {
            self.schedule.remove(&(due, index));
            self.look_at(index, post);
        }
    }

    /// Does what is due at a peer, plans the next look and logs what changed.
    pub(super) fn look_at(&mut self, index: u32, post: &mut Post) {
        let Some(entry) = self.by_index.get_mut(&index) else { return };
        let due = tick(&entry.peer, post);
        entry.log_path();
        let up = entry.peer.is_up();
        if std::mem::replace(&mut entry.up, up) != up {
            log(&entry.peer, up);
        }
        self.plan(index, due);
    }

    fn plan(&mut self, index: u32, due: Option<Instant>) {
        let Some(entry) = self.by_index.get_mut(&index) else { return };
        if let Some(before) = std::mem::replace(&mut entry.due, due) {
            self.schedule.remove(&(before, index));
        }
        self.schedule.extend(due.map(|due| (due, index)));
    }

    /// True if the endpoint of one of these is a name, so that it may stand for another address now.
    pub(super) fn any_named(&self, indices: &[u32]) -> bool {
        let config = |index| self.by_index.get(index).map(|entry: &Entry| entry.peer.config());
        indices.iter().filter_map(config).any(|config| matches!(config.endpoint, Some(Endpoint::Name(..))))
    }

    /// Tells the board the outer addresses that the configuration names; they change when a name resolves to another one. Where a
    /// peer calls from is not among them: no peer may take another's routes away by sending from inside them.
    pub(super) fn announce_endpoints(&self, board: &Board) {
        let endpoints = self.list.iter().filter_map(|peer| peer.configured_endpoint());
        let mut addresses: Vec<IpAddr> = endpoints.map(|endpoint| endpoint.ip()).collect();
        addresses.sort();
        addresses.dedup();
        if *addresses != *board.underlay() {
            board.set_underlay(addresses);
        }
    }

    /// What the packet threads read, as of now.
    pub(super) fn snapshot(&self, config: &Config, board: &Board) -> Snapshot {
        let underlay = Underlay { overlay: config.addresses.clone(), endpoints: board.underlay().to_vec() };
        Snapshot::new(self.list.clone(), &board.snapshot(), underlay)
    }
}

impl Entry {
    /// Tells when another size passes than before. That all is well at first is no news.
    fn log_path(&mut self) {
        let path = self.peer.session.path_mtu();
        if path.found.is_none() || path.found == self.path_mtu {
            return;
        }
        let is_news = self.path_mtu.is_some() || path.state != path_mtu::State::Whole;
        self.path_mtu = path.found;
        if is_news {
            let (name, mtu) = (&*self.peer.name, self.peer.session.mtu());
            tracing::info!(peer = name, path_mtu = path.found, mtu, reason = %path.state, "path MTU found");
        }
    }
}

/// Sizes that the kernel refuses at once are all there is to try in one go.
const REFUSALS: usize = 32;

/// Does what is due and sends probes, until none is refused; when to come again.
fn tick(peer: &Peer, post: &mut Post) -> Option<Instant> {
    for _ in 0..REFUSALS {
        let due = peer.session.tick(engine::now(), &mut post.outbox, &mut post.probes);
        if post.send_probes() {
            return due;
        }
        peer.session.probe_refused(Instant::now());
    }
    Some(Instant::now())
}

fn log(peer: &Peer, up: bool) {
    let state = if up { "up" } else { "down" };
    tracing::info!(
        peer = &*peer.name,
        state,
        reason = peer.status().state_reason,
        "tunnel peer changed state"
    );
}

/// Tells the board which prefixes are whose.
pub(super) fn announce(board: &Board, config: &Config) {
    let prefixes = config.peers.iter().flat_map(|peer| {
        let name: PeerName = peer.name.as_str().into();
        peer.allowed_ips.iter().map(move |prefix| (*prefix, Arc::clone(&name)))
    });
    board.set_static(prefixes.collect());
}
