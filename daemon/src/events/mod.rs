//! What happened on this node: the last events of its log, kept in memory for `isthmusctl events`.
//!
//! Changes of state are logged with their reasons already, so no subsystem reports anything twice: a layer of `tracing` keeps what our own
//! code says at INFO and above, whatever ISTHMUS_LOG lets through to stderr. Memory is bounded by [`CAPACITY`] and by what one event may
//! hold; the oldest go first, and whoever reads is told how many it missed.

mod event;
mod layer;
mod ring;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub use event::{Event, Field, Level};
pub use layer::layer;
use ring::Ring;
pub use ring::{Page, Query};

/// Events that are kept.
pub const CAPACITY: usize = 4096;

/// Cheap handle to the journal of this process.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    grown: watch::Sender<()>,
}

impl Journal {
    /// An empty one.
    pub fn new() -> Self {
        let ring = Mutex::new(Ring::new(CAPACITY));
        Self(Arc::new(Shared { ring, grown: watch::Sender::new(()) }))
    }

    /// The next events that `query` asks for, and where to go on.
    pub fn page(&self, query: &Query) -> Page {
        self.ring().page(query)
    }

    /// Tells when there are more. Subscribe first, then read: nothing is missed.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.0.grown.subscribe()
    }

    fn keep(&self, event: Event) {
        self.ring().push(event);
        self.0.grown.send_replace(());
    }

    /// A panic elsewhere leaves whole events behind.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}
