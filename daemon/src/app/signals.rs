//! Signals in, service-manager notifications out.

use nix::sys::signal::{SigSet, Signal as Number};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::lifecycle::Readiness;

/// What a signal asks for.
pub(super) enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT, by name.
    Stop(&'static str),
}

/// The signals the daemon listens to. Made before anything starts, so that none is lost to the default action.
pub(super) struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
    /// A reload was asked for while there was nothing to reload yet.
    owed: bool,
}

/// Keeps a SIGHUP that comes before [`Signals::new`] pending: its default action would end the process. To be called by the main
/// thread before it starts others, which inherit it.
pub fn hold_hangup() {
    // It fails only for a signal number that does not exist.
    let _ = hangup().thread_block();
}

fn hangup() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Number::SIGHUP);
    set
}

impl Signals {
    /// Installs the handlers, then lets this thread take a SIGHUP that was held.
    pub(super) fn new() -> std::io::Result<Self> {
        let signals = Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            owed: false,
        };
        hangup().thread_unblock()?;
        Ok(signals)
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        if std::mem::take(&mut self.owed) {
            return Signal::Reload;
        }
        self.receive().await
    }

    /// The next signal that asks to stop. A reload has nothing to apply to yet: [`Signals::next`] returns it later. Cancel-safe.
    pub(super) async fn stop(&mut self) -> &'static str {
        loop {
            match self.receive().await {
                Signal::Reload => self.owed = true,
                Signal::Stop(name) => return name,
            }
        }
    }

    async fn receive(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Signal::Stop("SIGINT"),
        }
    }
}

/// Tells the service manager when the node is ready, then keeps its watchdog fed.
pub(super) async fn announce(readiness: Readiness) {
    readiness.ready().await;
    tracing::info!("ready");
    notify(&[NotifyState::Ready, NotifyState::Status("ready")]);
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // Half the limit, as sd_watchdog_enabled(3) advises.
    let mut interval = tokio::time::interval(limit / 2);
    loop {
        interval.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Tells the service manager that a reload begins; [`reloaded`] must follow.
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Tells the service manager how a reload ended.
pub(super) fn reloaded(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells the service manager that the node stops.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
