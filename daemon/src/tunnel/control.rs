//! The task that owns the configuration: timers, routes, endpoints, switches, reloads, and the end. It sleeps until one of them
//! has something to do.

use std::{
    future::pending,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::sleep_until,
};

use super::{
    Config, Error, Offload,
    attention::Attention,
    changes::{self, Changes},
    engine::Engine,
    link::Link,
    peers::{self, Peers},
    post::Post,
};
use crate::{
    lifecycle::CancellationToken,
    routes::{Board, Watcher},
};

/// Longest pause between two snapshots; short of this, the pause is as long as the last one took to build.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A packet thread; it ends when the engine stops, or says why it could not go on.
pub(super) type Thread = JoinHandle<std::io::Result<()>>;

/// What the control task can be asked for, and where the answer goes.
pub(super) enum Request {
    /// Take this configuration.
    Apply(Config, oneshot::Sender<Result<Vec<String>, Error>>),
    /// Use an offload, or don't.
    Offload(Offload, bool, oneshot::Sender<Result<(), Error>>),
}

/// Everything that changes outside the packet threads.
pub(super) struct Control {
    pub(super) engine: Arc<Engine>,
    pub(super) config: Config,
    pub(super) board: Board,
    pub(super) watcher: Watcher,
    /// When the next snapshot may be built.
    pub(super) not_before: Instant,
    pub(super) link: Link,
    pub(super) peers: Peers,
    pub(super) attention: Arc<Attention>,
    pub(super) threads: Vec<Thread>,
    /// A packet thread has ended.
    pub(super) ended: Arc<Notify>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// Stops this tunnel.
    pub(super) stop: CancellationToken,
    /// Stops the daemon: the tunnel cannot go on.
    pub(super) shutdown: CancellationToken,
    pub(super) done: watch::Sender<bool>,
    /// Keeps the metrics up to date.
    pub(super) _metrics: crate::scrape::Update,
}

impl Control {
    /// Runs until told to stop, then ends the packet threads; sockets and device go with them, before `done` is true.
    pub(super) async fn run(mut self) {
        self.serve().await;
        self.end().await;
        let (interface, done) = (self.config.interface.clone(), self.done.clone());
        drop(self);
        tracing::info!(interface, "tunnel stopped");
        done.send_replace(true);
    }

    async fn serve(&mut self) {
        let mut post = Post::new(Arc::clone(&self.engine));
        loop {
            let due = self.peers.next_due();
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = until(due) => self.peers.look_at_due(&mut post),
                indices = self.attention.next() => self.look_at(&indices, &mut post),
                () = changed(&mut self.watcher, self.not_before) => self.routes_changed(),
                Some(request) = self.requests.recv() => self.answer(request).await,
                () = self.ended.notified() => self.thread_ended(),
            }
            post.send();
        }
    }

    fn look_at(&mut self, indices: &[u32], post: &mut Post) {
        for index in indices {
            self.peers.look_at(*index, post);
        }
        if self.peers.any_named(indices) {
            self.peers.announce_endpoints(&self.board);
        }
    }

    fn thread_ended(&mut self) {
        if !self.stop.is_cancelled() {
            tracing::error!("a packet thread ended (was the TUN device deleted?): stopping isthmusd");
            self.shutdown.cancel();
            self.stop.cancel();
        }
    }

    /// Changes that come while a snapshot is built, or in the pause after it, share the next one.
    fn routes_changed(&mut self) {
        let started = Instant::now();
        self.rebuild();
        self.not_before = Instant::now() + started.elapsed().min(LONGEST_PAUSE);
    }

    fn rebuild(&mut self) {
        self.watcher.skip();
        let snapshot = self.peers.snapshot(&self.config, &self.board);
        tracing::debug!(
            prefixes = snapshot.table.len(),
            peers = snapshot.peers.len(),
            "new routing snapshot"
        );
        self.engine.snapshot.store(Arc::new(snapshot));
    }

    /// Whoever asked may have gone; the change stands.
    async fn answer(&mut self, request: Request) {
        match request {
            Request::Apply(config, answer) => {
                let _ = answer.send(self.apply(config).await);
            }
            Request::Offload(offload, on, answer) => {
                let _ = answer.send(self.engine.switch(offload, on));
            }
        }
    }

    /// All or nothing: whatever can fail comes before the first change that cannot be taken back.
    async fn apply(&mut self, mut config: Config) -> Result<Vec<String>, Error> {
        // A configuration that was read before the first start made the key, and is gone back to now, does not know the key.
        if config.private_key.is_none() && config.private_key_file.exists() {
            config.private_key = self.config.private_key.clone();
        }
        let changes = changes::between(&self.config, &config)?;
        self.apply_addresses(&config, &changes).await?;
        let words = changes.words.clone();
        apply_peers(&mut self.peers, &self.engine, config.mtu, &changes);
        self.apply_offloads(&changes);
        self.peers.sort(&config);
        std::mem::swap(&mut self.config, &mut config);
        peers::announce(&self.board, &self.config);
        self.peers.announce_endpoints(&self.board);
        self.rebuild();
        Ok(words)
    }

    /// Sets every address anew, also those that did not change: the kernel may have dropped them (the interface went down, the first
    /// address of a subnet took the others along).
    async fn apply_addresses(&self, config: &Config, changes: &Changes<'_>) -> Result<(), Error> {
        let result = self.replace_addresses(config, changes).await;
        if result.is_err() {
            for undone in &changes.addresses_added {
                let _ = self.link.remove(*undone).await;
            }
            if let Err(error) = self.link.add_all(&self.config.addresses).await {
                tracing::error!(%error, "old address not set again");
            }
        }
        result
    }

    async fn replace_addresses(&self, config: &Config, changes: &Changes<'_>) -> Result<(), Error> {
        // First what the kernel may refuse, while all is there still.
        self.link.add_all(&changes.addresses_added).await?;
        for address in &changes.addresses_removed {
            // It may be gone already, which is what was asked for.
            if let Err(error) = self.link.remove(*address).await {
                tracing::warn!(%address, %error, "old address not removed");
            }
        }
        self.link.add_all(&config.addresses).await
    }

    fn apply_offloads(&self, changes: &Changes<'_>) {
        for (offload, on) in &changes.offloads {
            // What the kernel refuses stays off, with the reason in the switch's state.
            if let Err(error) = self.engine.switch(*offload, *on) {
                tracing::warn!(offload = offload.as_str(), %error, "offload not switched");
            }
        }
    }

    async fn end(&mut self) {
        self.engine.stop();
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(join));
        if let Err(error) = joined.await {
            tracing::error!(%error, "the packet threads could not be joined");
        }
    }
}

impl Drop for Control {
    /// Packet threads must not go on without timers and reloads, in a daemon that believes that they do not run.
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            tracing::error!(
                "the tunnel's control task broke off (a panic?): stopping its threads and isthmusd"
            );
            self.engine.stop();
            self.shutdown.cancel();
        }
    }
}

fn apply_peers(peers: &mut Peers, engine: &Engine, mtu: u16, changes: &Changes<'_>) {
    let leaving =
        changes.removed.iter().copied().chain(changes.replaced.iter().map(|peer| peer.name.as_str()));
    for name in leaving {
        let Some(peer) = peers.remove(name) else { continue };
        // The totals over all peers do not forget.
        peer.counters.drops.iter().for_each(|(reason, packets)| engine.drops.add(reason, packets));
    }
    for config in changes.added.iter().chain(&changes.replaced) {
        peers.add(config, mtu);
    }
    changes.changed.iter().for_each(|config| peers.reconfigure(config));
}

/// Waits for a change of the routes, but not before a time.
async fn changed(watcher: &mut Watcher, not_before: Instant) {
    sleep_until(not_before.into()).await;
    watcher.changed().await;
}

/// Waits for a time that may never come.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => pending().await,
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

#[cfg(test)]
mod tests;
