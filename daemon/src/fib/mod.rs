//! The forwarding information base: the board's routes as kernel routes, reconciled for as long as the daemon runs.
//!
//! [`start`] spawns one task that owns everything; a [`Handle`] asks it. Our routes carry protocol number 73 and metric 1073 in the
//! configured table; no other route is ever changed. `plan` decides (pure), `netlink` reads and writes, `task` drives.

mod config;
mod lock;
mod netlink;
pub mod plan;
mod schedule;
mod state;
mod task;
mod view;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ipnet::IpNet;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    lifecycle::{CancellationToken, Readiness, Service},
    routes::Board,
};

pub use config::*;
pub use netlink::SocketError;
pub use state::{KernelState, Summary};

use lock::Lock;
use state::States;

/// Why the FIB cannot start, or cannot take a configuration. Each says everything in its own line and has no `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Without a netlink socket there is no way to the kernel's routes.
    #[error("kernel routes: {0}; check that AF_NETLINK is allowed (RestrictAddressFamilies=, seccomp)")]
    Socket(SocketError),
    /// Two daemons would remove each other's routes.
    #[error(
        "another isthmusd manages the routes of table {0} in this network namespace; \
         set another [fib] table, or install = false"
    )]
    Taken(u32),
    /// It cannot be seen whether another daemon is there.
    #[error(
        "kernel routes: cannot claim table {table}: {reason}; check that AF_UNIX is allowed (RestrictAddressFamilies=, seccomp)"
    )]
    Lock {
        /// The table.
        table: u32,
        /// What the kernel said.
        reason: std::io::Error,
    },
}

/// A request to the task: a new configuration and where the answer goes.
type Request = (Config, oneshot::Sender<Result<(), Error>>);

/// Asks the FIB's task. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    states: Arc<Mutex<States>>,
    apply: mpsc::Sender<Request>,
    adopted: watch::Receiver<Option<Adopted>>,
}

/// Families in which the kernel still forwards by routes that the daemon before us left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Some are IPv4 routes.
    pub v4: bool,
    /// Some are IPv6 routes.
    pub v6: bool,
}

impl Handle {
    /// What became of a prefix in the kernel.
    pub fn state(&self, prefix: &IpNet) -> KernelState {
        let unknown = || KernelState::NotWanted("no such route".into());
        self.lock().get(*prefix).unwrap_or_else(unknown)
    }

    /// What became of these prefixes in the kernel; those that nothing is known about yet are left out.
    pub fn states_of(&self, prefixes: impl Iterator<Item = IpNet>) -> HashMap<IpNet, KernelState> {
        let states = self.lock();
        prefixes.filter_map(|prefix| states.get(prefix).map(|state| (prefix, state))).collect()
    }

    /// Every prefix with its state; with `install` off, only those that there is more to say about.
    pub fn states(&self) -> HashMap<IpNet, KernelState> {
        self.lock().all()
    }

    /// How long until everything is looked at again at the latest, and what the kernel refused is offered to it again.
    pub fn next_pass(&self) -> Duration {
        self.lock().next_pass(Instant::now())
    }

    /// How many prefixes are in each state.
    pub fn summary(&self) -> Summary {
        self.lock().summary()
    }

    /// Applies a new configuration; returns when the kernel has been reconciled with it, or the FIB has stopped.
    ///
    /// # Errors
    /// When another daemon manages the routes of the table. Then nothing was applied.
    pub async fn apply(&self, config: Config) -> Result<(), Error> {
        let (done, applied) = oneshot::channel();
        if self.apply.send((config, done)).await.is_err() {
            return Ok(());
        }
        // No answer means that the task has stopped and removed its routes: there is nothing left to apply to.
        applied.await.unwrap_or(Ok(()))
    }

    /// What was found in the kernel and waits to be announced again. Answers after the first reconciliation; nothing if that failed, or
    /// the FIB has stopped.
    pub async fn adopted(&self) -> Adopted {
        let mut adopted = self.adopted.clone();
        let found = adopted.wait_for(Option::is_some).await;
        found.map(|found| *found).ok().flatten().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        // Each change of a state is complete before anything can panic.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts reconciling. Readiness waits for the first pass. On shutdown the task removes our routes and ends; where the service is suspended
/// it leaves them to whoever comes next.
///
/// # Errors
/// The netlink sockets cannot be opened, or another daemon manages the routes of the table. Whatever else goes wrong later is shown as
/// a route's state and tried again.
pub async fn start(
    config: Config,
    board: Board,
    readiness: &Readiness,
    service: Service,
    shutdown: CancellationToken,
) -> Result<(Handle, JoinHandle<()>), Error> {
    let lock = match Lock::take(config.table) {
        Ok(lock) => Some(lock),
        Err(error) if config.install => return Err(error),
        // It was only to remove what an earlier run left.
        Err(_) => None,
    };
    let (netlink, events) = netlink::Netlink::open().map_err(Error::Socket)?;
    let (apply, applications) = mpsc::channel(1);
    let (found, adopted) = watch::channel(None);
    let handle = Handle { states: Arc::default(), apply, adopted };
    let pending = readiness.wait_for("fib: first reconciliation");
    let task = task::Task::new(config, board, lock, (netlink, events), handle.states.clone());
    let join = tokio::spawn(task.run(applications, (pending, found), service, shutdown));
    Ok((handle, join))
}

#[cfg(test)]
mod figures;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod tests;
