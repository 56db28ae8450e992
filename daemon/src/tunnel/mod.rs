//! The tunnel: one TUN device, encrypted paths to peers, and the packet threads between them.
//!
//! [`start`] opens everything and returns a [`Handle`]. Inside:
//! - `transmit` and `receive` are threads that only move packets; they read `snapshot` and lock one peer at a time; `guard` keeps
//!   `transmit` from sealing what was sealed already;
//! - `control` is the task that owns the configuration: it runs the peers' timers, builds snapshots from the routes board, applies
//!   reloads and ends the threads;
//! - what packets look like and who they belong to is decided in the crate `isthmus-tunnel`, without any of the above.

mod changes;
mod config;
mod control;
mod engine;
mod error;
mod guard;
mod key;
mod link;
mod metrics;
mod peer;
mod receive;
mod resolve;
mod snapshot;
mod sys;
mod transmit;
mod tun;
mod udp;

use std::{collections::BTreeMap, io, sync::Arc};

use isthmus_tunnel::x25519::PublicKey;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{lifecycle::CancellationToken, routes::Board};
pub use config::*;
use control::{Control, Peers, Request, Thread};
use engine::Engine;
pub use error::Error;
pub use isthmus_tunnel::peer::State;
pub use peer::PeerStatus;
use tun::Tun;
use udp::Sockets;

/// A running tunnel. Cheap to clone; dropping it stops nothing.
#[derive(Clone)]
pub struct Handle {
    engine: Arc<Engine>,
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
    let public_key = PublicKey::from(&private).to_bytes();
    let config = with_key(config, &private);
    let sockets = Sockets::bind(config.listen)?;
    let tun = Arc::new(Tun::open(&config.interface)?);
    let link = link::Link::find(&config.interface)?;
    link.configure(config.mtu, &config.addresses).await?;

    let mut peers = Peers::default();
    config.peers.iter().for_each(|peer| peers.add(&private, peer, config.mtu));
    control::announce(&board, &config);
    peers.announce_endpoints(&board);
    let watcher = board.subscribe();
    let snapshot = peers.snapshot(&config, &board);
    let engine = Arc::new(Engine::new(snapshot, sockets)?);
    metrics::describe();

    let (requests, inbox) = mpsc::channel(4);
    let (done, is_done) = watch::channel(false);
    let stop = shutdown.child_token();
    let handle = Handle {
        engine: Arc::clone(&engine),
        public_key,
        interface: config.interface.as_str().into(),
        requests,
        stop: stop.clone(),
        done: is_done,
    };
    let threads = start_threads(&engine, &tun, &config, private.clone())?;
    tracing::info!(
        interface = config.interface,
        port = handle.listen_port(),
        peers = config.peers.len(),
        "tunnel started"
    );
    let control = Control {
        engine,
        private,
        config,
        board,
        watcher,
        link,
        peers,
        threads,
        requests: inbox,
        stop,
        shutdown,
        done,
    };
    tokio::spawn(control.run());
    Ok(handle)
}

/// From here on the configuration holds the key in use, so that a reload can tell whether it changed.
fn with_key(mut config: Config, private: &isthmus_tunnel::x25519::StaticSecret) -> Config {
    config.private_key = Some(crate::secret::Secret32::new(private.to_bytes()));
    config
}

fn start_threads(
    engine: &Arc<Engine>,
    tun: &Arc<Tun>,
    config: &Config,
    private: isthmus_tunnel::x25519::StaticSecret,
) -> Result<Vec<Thread>, Error> {
    let mtu = config.mtu;
    let transmit = {
        let (engine, tun) = (Arc::clone(engine), Arc::clone(tun));
        spawn("isthmus-tx", move || transmit::run(&engine, &tun, mtu))
    };
    let transmit = transmit.map_err(|reason| Error::System { what: "start the transmit thread", reason })?;
    let receive = {
        let (engine, tun) = (Arc::clone(engine), Arc::clone(tun));
        spawn("isthmus-rx", move || receive::run(&engine, &tun, private))
    };
    match receive {
        Ok(receive) => Ok(vec![transmit, receive]),
        Err(reason) => {
            engine.stop();
            Err(Error::System { what: "start the receive thread", reason })
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<Thread> {
    std::thread::Builder::new().name(name.into()).spawn(body)
}

impl Handle {
    /// Every peer as it is now, in configuration order.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.engine.snapshot.load().peers.iter().map(|peer| peer.status()).collect()
    }

    /// Packets dropped before they could be told to belong to a peer, by reason; zeros are left out.
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        let all = self.engine.drops.iter().map(|(reason, packets)| (reason.as_str(), packets));
        all.filter(|(_, packets)| *packets > 0).collect()
    }

    /// This node's X25519 public key.
    pub fn public_key(&self) -> [u8; 32] {
        self.public_key
    }

    /// The UDP port that is bound.
    pub fn listen_port(&self) -> u16 {
        self.engine.sockets.port()
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
        self.requests.send((config, answer)).await.map_err(|_| Error::Stopped)?;
        result.await.map_err(|_| Error::Stopped)?
    }

    /// Stops the tunnel; returns when its threads have ended and the device is gone.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.stopped().await;
    }

    /// Waits until the tunnel has ended, for whatever reason.
    pub async fn stopped(&self) {
        // An error means that the control task is gone, and everything with it.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }
}
