//! A reader of the board.

use ipnet::IpNet;
use tokio::sync::watch;

use super::{Board, Route};

/// What a reader has missed.
#[derive(Debug)]
pub enum Changes {
    /// The whole table, in no order: the reader starts, or fell too far behind.
    All(Vec<Route>),
    /// Prefixes that changed, in order, each with its route now; `None`: gone.
    Some(Vec<(IpNet, Option<Route>)>),
}

/// A reader of the board.
pub struct Watcher {
    board: Board,
    version: watch::Receiver<u64>,
    number: u64,
    seen: Option<u64>,
}

impl Watcher {
    pub(super) fn new(board: Board, version: watch::Receiver<u64>, number: u64) -> Self {
        Self { board, version, number, seen: None }
    }

    /// Waits until something changed since the last [`Watcher::take`]; returns at once for a new reader. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.seen.is_some() {
            // The board holds the sender and we hold the board: this cannot fail.
            let _ = self.version.changed().await;
        }
    }

    /// What changed since the last call.
    pub fn take(&mut self) -> Changes {
        self.version.mark_unchanged();
        let mut state = self.board.lock();
        let changes = match self.seen.and_then(|seen| state.log.since(seen)) {
            Some(prefixes) => {
                let now = |prefix| (prefix, state.table.get(prefix));
                Changes::Some(prefixes.into_iter().map(now).collect())
            }
            None => Changes::All(state.table.all()),
        };
        state.log.read(self.number);
        self.seen = Some(state.log.version());
        changes
    }

    /// Like [`Watcher::take`], for a reader that looks at the whole board anyway.
    pub fn skip(&mut self) {
        self.version.mark_unchanged();
        let mut state = self.board.lock();
        state.log.read(self.number);
        self.seen = Some(state.log.version());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.board.lock().log.remove_reader(self.number);
    }
}
