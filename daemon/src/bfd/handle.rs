//! How the rest of the daemon talks to the thread.

use std::{
    collections::{BTreeSet, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use nix::sys::eventfd::EventFd;
use tokio::sync::{broadcast, oneshot};

use super::{Error, Event, Route, SessionConfig, SessionStatus, inner};
use crate::lifecycle::CancellationToken;

/// Packets of tunnel peers that wait for the thread; whatever is beyond is lost, as in a socket.
const WAITING: usize = 1024;

/// Cheap handle to the BFD thread.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
}

/// What the thread and the handles share. Every lock is held for a push or a swap only: the thread never waits for who was interrupted
/// in the middle of work.
pub(super) struct Shared {
    commands: Mutex<VecDeque<Command>>,
    delivered: Mutex<VecDeque<Delivered>>,
    /// Both ends of the sessions through tunnels: what of a tunnel's packets is ours.
    pub(super) tunnels: ArcSwap<BTreeSet<(Route, IpAddr)>>,
    pub(super) wake: EventFd,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) ended: CancellationToken,
}

/// A BFD packet that came out of a tunnel.
pub(super) struct Delivered {
    pub(super) route: Route,
    pub(super) payload: Vec<u8>,
}

pub(super) enum Command {
    Apply(Vec<SessionConfig>, oneshot::Sender<Result<Vec<String>, Error>>),
    Sessions(oneshot::Sender<Vec<SessionStatus>>),
    Stop,
}

impl Handle {
    /// Wants these sessions and no others; what changed, in words. A session whose timing differs goes on and tells its peer by a Poll
    /// Sequence; one that is not wanted any more ends with AdminDown.
    ///
    /// # Errors
    /// When a port is not to be had or there are too many; then nothing has changed.
    pub async fn apply(&self, sessions: Vec<SessionConfig>) -> Result<Vec<String>, Error> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Apply(sessions, answer));
        self.answer(answered).await.ok_or(Error::Stopped)?
    }

    /// Every session, by name; none once BFD is stopped.
    pub async fn sessions(&self) -> Vec<SessionStatus> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Sessions(answer));
        self.answer(answered).await.unwrap_or_default()
    }

    /// Changes of state from now on. Who does not listen for long loses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Takes an inner packet from a tunnel peer if it is for one of the sessions; true: it needs no other delivery. Never waits.
    pub fn deliver(&self, peer: &str, packet: &[u8]) -> bool {
        let Some(found) = inner::parse(packet) else { return false };
        let route = Route::Tunnel { peer: peer.into(), remote: found.source };
        let key = (route, found.destination);
        if !self.shared.tunnels.load().contains(&key) {
            return false;
        }
        let mut delivered = lock(&self.shared.delivered);
        if delivered.len() < WAITING {
            delivered.push_back(Delivered { route: key.0, payload: found.payload.to_vec() });
        }
        drop(delivered);
        self.wake();
        true
    }

    pub(super) fn stop(&self) {
        self.command(Command::Stop);
    }

    pub(super) async fn stopped(&self) {
        self.shared.ended.cancelled().await;
    }

    fn command(&self, command: Command) {
        lock(&self.shared.commands).push_back(command);
        self.wake();
    }

    async fn answer<T>(&self, answered: oneshot::Receiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = answered => answer.ok(),
            () = self.shared.ended.cancelled() => None,
        }
    }

    fn wake(&self) {
        // It fails only when the counter is about to overflow, and then the thread is awake already.
        let _ = self.shared.wake.write(1);
    }
}

impl Shared {
    pub(super) fn new(wake: EventFd) -> Self {
        Self {
            commands: Mutex::default(),
            delivered: Mutex::default(),
            tunnels: ArcSwap::default(),
            wake,
            events: broadcast::Sender::new(256),
            ended: CancellationToken::new(),
        }
    }

    pub(super) fn take_commands(&self) -> VecDeque<Command> {
        std::mem::take(&mut lock(&self.commands))
    }

    pub(super) fn take_delivered(&self) -> VecDeque<Delivered> {
        std::mem::take(&mut lock(&self.delivered))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A queue is whole after every push.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
