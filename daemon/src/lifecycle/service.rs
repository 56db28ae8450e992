//! Whether the node carries others' traffic, and how it stops doing so.
//!
//! ```text
//!             drain                 sessions ended
//!   Serving ─────────► Draining ─────────────────────► Drained
//!    │   ▲    undo        │              undo             │
//!    │   └────────────────┴───────────────────────────────┘
//!    └──► Suspended: the process ends, the kernel goes on forwarding
//! ```
//! An operator's order is written here; BGP, the FIB and the node follow it, each for its own part.

use std::time::Instant;

use tokio::sync::watch;

/// Where the node is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not on the way. A stop from here takes everything back.
    Serving,
    /// Neighbors are asked to take other ways (RFC 8326).
    Draining {
        /// When the sessions end.
        until: Instant,
    },
    /// Nobody sends anything here any more; the process stays.
    Drained,
    /// The process ends and is expected back: kernel routes stay, neighbors keep ours (RFC 4724).
    Suspended,
}

/// The stage, for those who change it and those who follow. Cheap to clone.
#[derive(Clone)]
pub struct Service(watch::Sender<Stage>);

impl Default for Service {
    fn default() -> Self {
        Self::new()
    }
}

impl Service {
    /// In service.
    pub fn new() -> Self {
        Self(watch::Sender::new(Stage::Serving))
    }

    /// Now.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Changes from now on.
    pub fn subscribe(&self) -> watch::Receiver<Stage> {
        self.0.subscribe()
    }

    /// An operator wants the node empty by then. A second order changes the time; what is drained stays so.
    pub fn drain(&self, until: Instant) {
        self.change(|stage| match stage {
            Stage::Serving | Stage::Draining { .. } => Some(Stage::Draining { until }),
            Stage::Drained | Stage::Suspended => None,
        });
    }

    /// The sessions have ended.
    pub fn drained(&self) {
        self.change(|stage| matches!(stage, Stage::Draining { .. }).then_some(Stage::Drained));
    }

    /// An operator wants the node back.
    pub fn undo(&self) {
        let out = |stage| matches!(stage, Stage::Draining { .. } | Stage::Drained);
        self.change(|stage| out(stage).then_some(Stage::Serving));
    }

    /// The process is about to end and to come back. A drain is stronger: whoever ordered it wants the node gone.
    pub fn suspend(&self) {
        self.change(|stage| (stage == Stage::Serving).then_some(Stage::Suspended));
    }

    fn change(&self, next: impl Fn(Stage) -> Option<Stage>) {
        self.0.send_if_modified(|stage| {
            let next = next(*stage).filter(|next| next != stage);
            next.inspect(|next| *stage = *next).is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_order_in_every_stage() {
        use Stage::{Drained, Draining, Serving, Suspended};
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        let draining = Draining { until: now };
        type Order = fn(&Service, Instant);
        let drain: Order = |service, later| service.drain(later);
        let drained: Order = |service, _| service.drained();
        let undo: Order = |service, _| service.undo();
        let suspend: Order = |service, _| service.suspend();
        let table = [
            (Serving, drain, Draining { until: later }),
            (draining, drain, Draining { until: later }),
            (Drained, drain, Drained),
            (Suspended, drain, Suspended),
            (Serving, drained, Serving),
            (draining, drained, Drained),
            (Suspended, drained, Suspended),
            (Serving, undo, Serving),
            (draining, undo, Serving),
            (Drained, undo, Serving),
            (Suspended, undo, Suspended),
            (Serving, suspend, Suspended),
            (draining, suspend, draining),
            (Drained, suspend, Drained),
        ];
        for (row, (from, order, to)) in table.into_iter().enumerate() {
            let service = Service(watch::Sender::new(from));
            let mut watcher = service.subscribe();
            order(&service, later);
            assert_eq!(service.stage(), to, "row {row}");
            assert_eq!(watcher.has_changed().unwrap(), from != to, "row {row}");
            watcher.mark_unchanged();
        }
    }
}
