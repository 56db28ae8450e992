//! The task that owns the configuration: timers, routes, endpoints, metrics, reloads, and the end.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use isthmus_tunnel::{buffer::Outbox, table::Underlay, x25519::StaticSecret};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Config, Error, PeerConfig,
    changes::{self, Changes},
    engine::Engine,
    link::Link,
    metrics,
    peer::Peer,
    resolve,
    snapshot::Snapshot,
    udp::WhenFull,
};
use crate::{
    lifecycle::CancellationToken,
    routes::{Board, PeerName, Watcher},
};

/// Resolution of the protocol's timers.
const TICK: Duration = Duration::from_millis(200);
/// Ticks from one look at the slow things to the next: a second.
const SLOW: u32 = 5;
/// Longest pause between two snapshots; short of this, the pause is as long as the last one took to build.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A packet thread; it ends when the engine stops, or says why it could not go on.
pub(super) type Thread = JoinHandle<std::io::Result<()>>;

/// A request to the control task: a new configuration and where the answer goes.
pub(super) type Request = (Config, oneshot::Sender<Result<Vec<String>, Error>>);

/// Everything that changes outside the packet threads.
pub(super) struct Control {
    pub(super) engine: Arc<Engine>,
    pub(super) private: StaticSecret,
    pub(super) config: Config,
    pub(super) board: Board,
    pub(super) watcher: Watcher,
    pub(super) link: Link,
    pub(super) peers: Peers,
    pub(super) threads: Vec<Thread>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// Stops this tunnel.
    pub(super) stop: CancellationToken,
    /// Stops the daemon: the tunnel cannot go on.
    pub(super) shutdown: CancellationToken,
    pub(super) done: watch::Sender<bool>,
}

/// The peers, in configuration order, and the tasks that resolve their endpoints.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) list: Vec<Arc<Peer>>,
    resolvers: HashMap<Arc<str>, AbortOnDropHandle<()>>,
    /// As last logged.
    up: HashMap<Arc<str>, bool>,
}

impl Peers {
    /// Adds a peer with a receiver index that no other peer has.
    pub(super) fn add(&mut self, private: &StaticSecret, config: &PeerConfig, mtu: u16) {
        let index = loop {
            let index = rand::random::<u32>() >> 8;
            if self.list.iter().all(|peer| peer.index != index) {
                break index;
            }
        };
        let peer = Arc::new(Peer::new(private, config, index, mtu));
        self.resolve(&peer);
        self.list.push(peer);
    }

    fn get(&self, name: &str) -> Option<Arc<Peer>> {
        self.list.iter().find(|peer| &*peer.name == name).cloned()
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Peer>> {
        let at = self.list.iter().position(|peer| &*peer.name == name)?;
        self.resolvers.remove(name);
        self.up.remove(name);
        Some(self.list.remove(at))
    }

    fn resolve(&mut self, peer: &Arc<Peer>) {
        self.resolvers.remove(&peer.name);
        if let Some(task) = resolve::spawn(peer) {
            self.resolvers.insert(Arc::clone(&peer.name), task);
        }
    }

    /// Tells the board the outer addresses that the configuration names; they change when a name resolves to another one. Where a
    /// peer calls from is not among them: no peer may take another's routes away by sending from inside them.
    pub(super) fn announce_endpoints(&self, board: &Board) {
        let endpoints = self.list.iter().filter_map(|peer| peer.configured_endpoint());
        let mut addresses: Vec<IpAddr> = endpoints.map(|endpoint| endpoint.ip()).collect();
        addresses.sort();
        addresses.dedup();
        if addresses != board.underlay() {
            board.set_underlay(addresses);
        }
    }

    /// What the packet threads read, as of now.
    pub(super) fn snapshot(&self, config: &Config, board: &Board) -> Snapshot {
        let underlay = Underlay { overlay: config.addresses.clone(), endpoints: board.underlay() };
        Snapshot::new(self.list.clone(), &board.snapshot(), underlay)
    }

    /// Logs what changed since the last call.
    fn log(&mut self) {
        for peer in &self.list {
            let up = peer.is_up();
            let before = self.up.insert(Arc::clone(&peer.name), up);
            if before == Some(up) || (before.is_none() && !up) {
                continue;
            }
            let state = if up { "up" } else { "down" };
            tracing::info!(
                peer = &*peer.name,
                state,
                reason = peer.status().state_reason,
                "tunnel peer changed state"
            );
        }
    }
}

/// Tells the board which prefixes are whose.
pub(super) fn announce(board: &Board, config: &Config) {
    let prefixes = config.peers.iter().flat_map(|peer| {
        let name: PeerName = peer.name.as_str().into();
        peer.allowed_ips.iter().map(move |prefix| (*prefix, Arc::clone(&name)))
    });
    board.set_static(prefixes.collect());
}

impl Control {
    /// Runs until told to stop, then ends the packet threads; the TUN device goes with them.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut outbox, mut slow) = (Outbox::new(), 0);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                _ = ticks.tick() => {
                    self.tick(&mut outbox);
                    slow = (slow + 1) % SLOW;
                    if slow == 1 {
                        self.look_around();
                    }
                }
                () = self.watcher.changed() => self.routes_changed().await,
                Some((config, answer)) = self.requests.recv() => {
                    // Whoever asked may have gone; the change stands.
                    let _ = answer.send(self.apply(config).await);
                }
            }
        }
        self.end().await;
    }

    fn tick(&mut self, outbox: &mut Outbox) {
        let now = Instant::now();
        for peer in &self.peers.list {
            peer.session().tick(now, outbox);
        }
        self.engine.send(outbox, WhenFull::Drop);
        self.peers.log();
    }

    fn look_around(&mut self) {
        metrics::update(&self.engine);
        self.peers.announce_endpoints(&self.board);
        if self.threads.iter().any(JoinHandle::is_finished) && !self.stop.is_cancelled() {
            tracing::error!("a packet thread ended (was the TUN device deleted?): stopping isthmusd");
            self.shutdown.cancel();
            self.stop.cancel();
        }
    }

    /// Changes that come while a snapshot is built, or in the pause after it, share the next one.
    async fn routes_changed(&mut self) {
        let started = Instant::now();
        self.rebuild();
        tokio::time::sleep(started.elapsed().min(LONGEST_PAUSE)).await;
    }

    fn rebuild(&mut self) {
        self.watcher.take();
        let snapshot = self.peers.snapshot(&self.config, &self.board);
        tracing::debug!(
            prefixes = snapshot.table.len(),
            peers = snapshot.peers.len(),
            "new routing snapshot"
        );
        self.engine.snapshot.store(Arc::new(snapshot));
    }

    /// All or nothing: whatever can fail comes before the first change that cannot be taken back.
    async fn apply(&mut self, mut config: Config) -> Result<Vec<String>, Error> {
        // A configuration that was read before the first start made the key, and is gone back to now, does not know the key.
        if config.private_key.is_none() && config.private_key_file.exists() {
            config.private_key = self.config.private_key.clone();
        }
        let changes = changes::between(&self.config, &config)?;
        self.apply_addresses(&changes).await?;
        let words = changes.words.clone();
        Self::apply_peers(&mut self.peers, &self.engine, &self.private, config.mtu, &changes);
        let order: HashMap<&str, usize> =
            config.peers.iter().map(|peer| peer.name.as_str()).zip(0..).collect();
        self.peers.list.sort_by_key(|peer| order.get(&*peer.name).copied());
        std::mem::swap(&mut self.config, &mut config);
        announce(&self.board, &self.config);
        self.peers.announce_endpoints(&self.board);
        self.rebuild();
        Ok(words)
    }

    async fn apply_addresses(&self, changes: &Changes<'_>) -> Result<(), Error> {
        for (n, address) in changes.addresses_added.iter().enumerate() {
            if let Err(error) = self.link.add(*address).await {
                for undone in &changes.addresses_added[..n] {
                    let _ = self.link.remove(*undone).await;
                }
                return Err(error);
            }
        }
        for address in &changes.addresses_removed {
            // It may be gone already, which is what was asked for.
            if let Err(error) = self.link.remove(*address).await {
                tracing::warn!(%address, %error, "old address not removed");
            }
        }
        Ok(())
    }

    fn apply_peers(
        peers: &mut Peers,
        engine: &Engine,
        private: &StaticSecret,
        mtu: u16,
        changes: &Changes<'_>,
    ) {
        let leaving =
            changes.removed.iter().copied().chain(changes.replaced.iter().map(|peer| peer.name.as_str()));
        for name in leaving {
            let Some(peer) = peers.remove(name) else { continue };
            metrics::removed(&peer);
            // The totals over all peers do not forget.
            peer.counters.drops.iter().for_each(|(reason, packets)| engine.drops.add(reason, packets));
        }
        for config in changes.added.iter().chain(&changes.replaced) {
            peers.add(private, config, mtu);
        }
        for config in &changes.changed {
            let Some(peer) = peers.get(&config.name) else { continue };
            peer.reconfigure(config);
            peers.resolve(&peer);
        }
    }

    async fn end(mut self) {
        self.engine.stop();
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(join));
        if let Err(error) = joined.await {
            tracing::error!(%error, "the packet threads could not be joined");
        }
        tracing::info!(interface = self.config.interface, "tunnel stopped");
        self.done.send_replace(true);
    }
}

fn join(thread: Thread) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(thread = name, %error, "packet thread failed"),
        Err(_) => tracing::error!(thread = name, "packet thread panicked"),
    }
}
