//! How other threads tell the control task that a peer needs a look before it planned one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Indices of peers whose timers, state or endpoint changed.
#[derive(Default)]
pub(super) struct Attention {
    indices: Mutex<Vec<u32>>,
    notify: Notify,
}

impl Attention {
    /// Asks for a look at the peer with this index.
    pub(super) fn ask(&self, index: u32) {
        let mut indices = self.indices();
        // So it is never longer than the list of peers.
        if !indices.contains(&index) {
            indices.push(index);
        }
        drop(indices);
        self.notify.notify_one();
    }

    /// The peers that need a look, as soon as there are any.
    pub(super) async fn next(&self) -> Vec<u32> {
        loop {
            let indices = std::mem::take(&mut *self.indices());
            if !indices.is_empty() {
                return indices;
            }
            self.notify.notified().await;
        }
    }

    fn indices(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing panics while it is held.
        self.indices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_peer_is_named_once_and_nothing_is_missed() {
        let attention = Attention::default();
        for index in [7, 9, 7] {
            attention.ask(index);
        }
        assert_eq!(attention.next().await, [7, 9]);
        let waiting = attention.next();
        attention.ask(7);
        assert_eq!(waiting.await, [7]);
    }
}
