//! The thread that does what need not be done before a result leaves. It sleeps while nothing is recorded.

use std::{
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use super::log::Shared;

/// From a record to its upkeep, and between two tries to write again: what `sync = "batch"` promises.
const PERIOD: Duration = Duration::from_secs(1);

/// Until the log is dropped, which hangs up `woken`.
pub(super) fn run(shared: &Shared, woken: &Receiver<()>) {
    let mut again = false;
    while again || woken.recv().is_ok() {
        // A second message of this second can only be a leftover: it changes nothing.
        let ended = wait(woken);
        shared.dirty.store(false, Ordering::Release);
        again = shared.upkeep() && !ended;
        if ended {
            return;
        }
    }
    shared.upkeep();
}

/// True: the log was dropped.
fn wait(woken: &Receiver<()>) -> bool {
    let first = woken.recv_timeout(PERIOD);
    let second = if first.is_ok() { woken.recv_timeout(PERIOD) } else { first };
    second == Err(RecvTimeoutError::Disconnected)
}
