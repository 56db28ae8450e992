//! Sessions over a link that goes down end at once, rather than when their hold time is over.

use std::{sync::Arc, time::Instant};

use isthmus_bgp::{PeerStatus, Speaker};
use tokio::sync::watch;

use crate::routes::{Board, DownLink, DownLinks};

/// Knows which links are down.
pub(super) struct Links {
    board: watch::Receiver<DownLinks>,
    known: DownLinks,
}

impl Links {
    pub(super) fn new(board: &Board) -> Self {
        let board = board.down_links();
        let known = DownLinks::clone(&board.borrow());
        Self { board, known }
    }

    /// Waits until a link goes down or comes back. Cancel-safe; pending for ever once the board is gone.
    pub(super) async fn changed(&mut self) {
        if self.board.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Tells the speaker which peers are behind links that went down since the last call: their sessions end, and nothing of theirs is kept
    /// over a restart.
    pub(super) fn end_sessions(&mut self, speaker: &mut Speaker, now: Instant) {
        let links = DownLinks::clone(&self.board.borrow_and_update());
        let news: Vec<&DownLink> = links.iter().filter(|link| !self.known.contains(link)).collect();
        for (name, why) in behind(speaker, &news) {
            speaker.handle_link_down(&name, &why, now);
        }
        self.known = DownLinks::clone(&links);
    }
}

fn behind(speaker: &Speaker, links: &[&DownLink]) -> Vec<(Arc<str>, String)> {
    let over = |status: PeerStatus| {
        let link = links.iter().find(|link| link.has(status.address))?;
        Some((status.name, format!("{} is down", link.name)))
    };
    speaker.status().into_iter().filter_map(over).collect()
}
