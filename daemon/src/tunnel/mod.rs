//! The tunnel: one TUN device, encrypted paths to peers, and the packet threads between them.
//!
//! [`start`] opens everything and returns a [`Handle`]. Inside:
//! - `workers` are pairs of threads that only move packets: `transmit` from the device to the network (through `send`), `receive` from
//!   the network to the device (through `deliver`); they read `snapshot` and the switches in `offload`;
//! - `control` is the task that owns the configuration: it looks at the `peers` when their timers are due (what they then have to send
//!   leaves by the `post`), builds snapshots from the routes board, applies reloads and ends the threads;
//! - what packets look like and who they belong to is decided in the crate `isthmus-tunnel`, without any of the above.

mod attention;
mod changes;
mod config;
mod control;
mod deliver;
mod engine;
mod error;
mod histogram;
mod key;
mod link;
mod metrics;
mod offload;
mod peer;
mod peers;
mod post;
mod receive;
mod resolve;
mod send;
mod snapshot;
mod sockets;
mod sys;
mod tap;
mod transmit;
mod tun;
mod waiter;
mod workers;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use isthmus_tunnel::Identity;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::{lifecycle::CancellationToken, routes::Board};
use attention::Attention;
pub use config::*;
use control::{Control, Request};
use engine::{Batches, Engine};
pub use error::Error;
pub use histogram::BatchSizes;
pub use isthmus_tunnel::peer::State;
use offload::Offloads;
pub use offload::{Offload, OffloadStatus};
pub use peer::PeerStatus;
use peers::Peers;
pub use tap::{Injector, TapHook};
use tun::Tun;

/// A running tunnel. Cheap to clone; dropping it stops nothing.
#[derive(Clone)]
pub struct Handle {
    /// Weak, so that sockets and device go with the threads and the control task, however many handles there are.
    engine: Weak<Engine>,
    port: u16,
    workers: usize,
    public_key: [u8; 32],
    interface: Arc<str>,
    requests: mpsc::Sender<Request>,
    stop: CancellationToken,
    done: watch::Receiver<bool>,
}

/// Opens sockets and device, announces the peers' prefixes on the board and starts to carry packets. Ends when `shutdown` is
/// cancelled; cancels it itself if the device disappears.
///
/// # Errors
/// See [`Error`]. Nothing is left behind, except a private key that was made.
pub async fn start(config: Config, board: Board, shutdown: CancellationToken) -> Result<Handle, Error> {
    let private = key::load_or_create(&config)?;
    let config = with_key(config, &private);
    let identity = Arc::new(Identity::new(private));
    let workers = workers::number(config.workers);
    let offloads = Offloads::new(|offload| !config.offloads_off.contains(&offload));
    let sockets = sockets::bind(config.listen, workers)?;
    let tun = Tun::open(&config.interface, workers, &offloads)?;
    let link = link::Link::find(&config.interface)?;
    link.configure(config.mtu, &config.addresses).await?;

    let attention = Arc::<Attention>::default();
    let mut peers = Peers::new(Arc::clone(&identity), Arc::clone(&attention));
    config.peers.iter().for_each(|peer| peers.add(peer, config.mtu));
    peers::announce(&board, &config);
    peers.announce_endpoints(&board);
    let watcher = board.subscribe();
    let snapshot = peers.snapshot(&config, &board);
    let engine = Arc::new(Engine::new(snapshot, sockets, tun, offloads, Arc::clone(&attention))?);
    engine.accept_merged();
    deliver::self_test(&engine);
    metrics::describe();
    let published = metrics::publish(&engine);

    let (requests, inbox) = mpsc::channel(4);
    let (done, is_done) = watch::channel(false);
    let stop = shutdown.child_token();
    let handle = Handle {
        engine: Arc::downgrade(&engine),
        port: engine.port(),
        workers: engine.sockets.len(),
        public_key: identity.public().to_bytes(),
        interface: config.interface.as_str().into(),
        requests,
        stop: stop.clone(),
        done: is_done,
    };
    let ended = Arc::<Notify>::default();
    let threads = workers::start(&engine, &identity, &ended)?;
    tracing::info!(
        interface = config.interface,
        port = handle.listen_port(),
        peers = config.peers.len(),
        workers,
        "tunnel started"
    );
    let control = Control {
        engine,
        config,
        board,
        watcher,
        not_before: std::time::Instant::now(),
        link,
        peers,
        attention,
        threads,
        ended,
        requests: inbox,
        stop,
        shutdown,
        done,
        _metrics: published,
    };
    tokio::spawn(control.run());
    Ok(handle)
}

/// From here on the configuration holds the key in use, so that a reload can tell whether it changed.
fn with_key(mut config: Config, private: &isthmus_tunnel::x25519::StaticSecret) -> Config {
    config.private_key = Some(crate::secret::Secret32::new(private.to_bytes()));
    config
}

impl Handle {
    /// Every peer as it is now, in configuration order; none once the tunnel has stopped.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let Some(engine) = self.engine.upgrade() else { return Vec::new() };
        engine.snapshot.load().peers.iter().map(|peer| peer.status()).collect()
    }

    /// Packets dropped before they could be told to belong to a peer, by reason; zeros are left out.
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        let Some(engine) = self.engine.upgrade() else { return BTreeMap::new() };
        let all = engine.drops.iter().map(|(reason, packets)| (reason.as_str(), packets));
        all.filter(|(_, packets)| *packets > 0).collect()
    }

    /// The state of every offload; none once the tunnel has stopped.
    pub fn offloads(&self) -> Vec<OffloadStatus> {
        self.engine.upgrade().map(|engine| engine.offloads.status()).unwrap_or_default()
    }

    /// Uses an offload, or doesn't, from the next batch on; until the next start, or until a reload changes it.
    ///
    /// # Errors
    /// When the kernel refuses it. Then it is off.
    pub async fn set_offload(&self, offload: Offload, on: bool) -> Result<(), Error> {
        let (answer, result) = oneshot::channel();
        self.requests.send(Request::Offload(offload, on, answer)).await.map_err(|_| Error::Stopped)?;
        result.await.map_err(|_| Error::Stopped)?
    }

    /// Holds a peer down for a reason ("BFD: path down"), or no longer (`None`). One bit in the packet path flips, however many prefixes
    /// lead to the peer: when this returns, no flow goes to it any more while its path group has another live member. False: there is
    /// no such peer (any more).
    pub fn hold_down(&self, peer: &str, reason: Option<&str>) -> bool {
        let Some(engine) = self.engine.upgrade() else { return false };
        let snapshot = engine.snapshot.load();
        let Some(peer) = snapshot.peers.iter().find(|other| *other.name == *peer) else { return false };
        peer.session.hold_down(reason.map(Arc::from));
        engine.look_at(peer);
        true
    }

    /// Shows every sound UDP packet to this port to the hook, before it is delivered; the last one that was set counts.
    pub fn tap(&self, port: u16, hook: TapHook) {
        if let Some(engine) = self.engine.upgrade() {
            engine.tap.store(Some(Arc::new(tap::Tap { port, hook })));
        }
    }

    /// A way to send inner packets to peers past the device; for one thread.
    pub fn injector(&self) -> Injector {
        Injector::new(self.engine.clone())
    }

    /// How many packets each kind of system call carried: "tun_read", "tun_write", "udp_send", "udp_receive".
    pub fn batches(&self) -> [(&'static str, BatchSizes); 4] {
        self.engine.upgrade().map_or_else(|| Batches::default().sizes(), |engine| engine.batches.sizes())
    }

    /// Pairs of packet threads.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// This node's X25519 public key.
    pub fn public_key(&self) -> [u8; 32] {
        self.public_key
    }

    /// The UDP port that is bound.
    pub fn listen_port(&self) -> u16 {
        self.port
    }

    /// The name of the TUN device.
    pub fn interface_name(&self) -> &str {
        &self.interface
    }

    /// Applies the difference to another configuration and tells it in words. A peer that does not differ keeps its session,
    /// endpoint and counters.
    ///
    /// # Errors
    /// When the change needs a restart or the kernel refuses an address. Then nothing was applied.
    pub async fn apply(&self, config: Config) -> Result<Vec<String>, Error> {
        let (answer, result) = oneshot::channel();
        self.requests.send(Request::Apply(config, answer)).await.map_err(|_| Error::Stopped)?;
        result.await.map_err(|_| Error::Stopped)?
    }

    /// Stops the tunnel; returns when its threads have ended and sockets and device are gone.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.stopped().await;
    }

    /// Waits until the tunnel has ended, for whatever reason.
    pub async fn stopped(&self) {
        // An error means that the control task panicked, and told the packet threads to stop when it did.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }
}
