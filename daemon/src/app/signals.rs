//! Signals in, service-manager notifications out.

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
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Signal::Stop("SIGINT"),
        }
    }

    /// The next signal that asks to stop; a reload has nothing to apply to yet.
    pub(super) async fn stop(&mut self) -> &'static str {
        loop {
            if let Signal::Stop(name) = self.next().await {
                return name;
            }
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
