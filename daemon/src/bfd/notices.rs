//! What the thread has to say, and the task that writes it into the log.

use std::{net::SocketAddr, time::Instant};

use tokio::sync::mpsc;

use super::{Event, State};
use crate::log_limit::Limit;

/// Lines that wait for a log that blocks; the thread drops what is beyond.
const WAITING: usize = 256;

pub(super) enum Notice {
    Started { priority: String },
    Changed(Event),
    Stranger { from: SocketAddr, why: String, not_shown: u64 },
    Unsent { session: String, error: String, not_shown: u64 },
}

/// The thread's end.
pub(super) struct Notices {
    sender: mpsc::Sender<Notice>,
    strangers: Limit,
    unsent: Limit,
}

pub(super) fn channel() -> (Notices, mpsc::Receiver<Notice>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Notices { sender, strangers: Limit::default(), unsent: Limit::default() }, receiver)
}

impl Notices {
    pub(super) fn say(&self, notice: Notice) {
        // Full: the log is stuck, and packets matter more.
        let _ = self.sender.try_send(notice);
    }

    /// Somebody sent what is not for us.
    pub(super) fn stranger(&mut self, from: SocketAddr, why: impl ToString, now: Instant) {
        if let Some(not_shown) = self.strangers.pass(now) {
            self.say(Notice::Stranger { from, why: why.to_string(), not_shown });
        }
    }

    pub(super) fn unsent(&mut self, session: &str, error: impl ToString, now: Instant) {
        if let Some(not_shown) = self.unsent.pass(now) {
            self.say(Notice::Unsent { session: session.to_owned(), error: error.to_string(), not_shown });
        }
    }
}

/// Writes until the thread has ended.
pub(super) async fn write(mut inbox: mpsc::Receiver<Notice>) {
    while let Some(notice) = inbox.recv().await {
        log(&notice);
    }
}

fn log(notice: &Notice) {
    match notice {
        Notice::Started { priority } => tracing::info!(priority, "BFD started"),
        Notice::Changed(event) => changed(event),
        Notice::Stranger { from, why, not_shown } => {
            tracing::debug!(%from, why, not_shown, "BFD packet discarded");
        }
        Notice::Unsent { session, error, not_shown } => {
            tracing::debug!(session, error, not_shown, "BFD packet not sent");
        }
    }
}

fn changed(event: &Event) {
    let (session, reason) = (&*event.session.name, event.reason());
    let (from, to) = (event.change.from, event.change.to);
    match to {
        _ if event.change.is_failure() => tracing::warn!(session, %from, %to, reason, "BFD session"),
        State::Up | State::Down if from != State::Init => {
            tracing::info!(session, %from, %to, reason, "BFD session");
        }
        State::Up => tracing::info!(session, %from, %to, "BFD session"),
        _ => tracing::debug!(session, %from, %to, reason, "BFD session"),
    }
}
