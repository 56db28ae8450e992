//! One caller: whether it is still entitled, to what, and when to look again.
//!
//! ```text
//!            +-> attest again, find entries -- none, or gone --> PermissionDenied, end
//!            |            |
//!            |   something changed, or due? -- no --+
//!            |            | yes                     |
//!            |       issue and push                 |
//!            |            v                         v
//!            +---- wait: supply changed, renewal due, process ended, shutdown
//! ```
//!
//! A stream is polled by the gRPC server, and only while the client's window has room: there is no task and no queue for it, and a client
//! that does not read gets the latest state once it does, not all that it missed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use futures_util::stream;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{Supply, connection::Peer, documents::Library, workshop::Workshop};
use crate::{
    identity::{
        attest::{Caller, Refusal},
        certificates::Ledger,
        issuing::Requester,
        registration::Identity,
    },
    log_limit::Limit,
};

/// Longest sleep, where nobody tells that the wall clock was set (`clock.rs`).
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// What all calls of a server share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) library: Library,
    pub(super) workshop: Workshop,
    pub(super) ledger: Ledger,
    log: Mutex<Limit>,
}

impl Shared {
    pub(super) fn new(ledger: Ledger) -> Arc<Self> {
        Arc::new(Self { ledger, ..Self::default() })
    }

    /// Clients wait and come again after `Unavailable`, and give up what they have after `PermissionDenied`.
    fn refuse(&self, caller: &Caller, refusal: &Refusal) -> Status {
        metrics::counter!("isthmus_attestation_refused_total", "reason" => refusal.reason()).increment(1);
        if let Some(not_shown) = self.may_log() {
            let (uid, pid) = (caller.uid(), caller.pid());
            tracing::info!(uid, pid, %refusal, not_shown, "a caller of the Workload API is refused");
        }
        if refusal.is_passing() { unattested() } else { denied() }
    }

    fn refuse_stranger(&self, caller: &Caller) -> Status {
        metrics::counter!("isthmus_attestation_refused_total", "reason" => "no_entry").increment(1);
        if let Some(not_shown) = self.may_log() {
            let (uid, pid) = (caller.uid(), caller.pid());
            tracing::info!(uid, pid, not_shown, "no entry matches this caller of the Workload API");
        }
        denied()
    }

    /// The metric counts every one; the log tells of one from time to time and how many it left out.
    fn may_log(&self) -> Option<u64> {
        // A limit that was left half-changed lets one line more or less through.
        self.log.lock().unwrap_or_else(PoisonError::into_inner).pass(Instant::now())
    }
}

/// Where the state of one call comes from.
pub(super) struct Feed {
    pub(super) peer: Peer,
    pub(super) supply: watch::Receiver<Option<Supply>>,
    pub(super) shutdown: CancellationToken,
    pub(super) shared: Arc<Shared>,
}

/// What a caller may have now. There is at least one identity; the first is the default.
pub(super) struct Entitled {
    pub(super) supply: Supply,
    pub(super) identities: Vec<Identity>,
    /// For the audit log.
    pub(super) requester: Requester,
}

impl Feed {
    /// Who calls.
    pub(super) fn caller(&self) -> Result<&Caller, Status> {
        self.peer.as_ref().as_ref().map_err(|_| denied())
    }

    /// Attests the caller again and finds what it is entitled to at this moment.
    pub(super) async fn entitled(&mut self) -> Result<Entitled, Status> {
        let peer = self.peer.clone();
        let Ok(caller) = peer.as_ref() else { return Err(denied()) };
        let supply = self.supply.borrow_and_update().clone().ok_or_else(stopping)?;
        if self.shutdown.is_cancelled() {
            return Err(stopping());
        }
        let facts = caller.facts(&supply.attestor, &supply.registry).await;
        let facts = facts.map_err(|refusal| self.shared.refuse(caller, &refusal))?;
        let identities = supply.registry.identities(&facts);
        if identities.is_empty() {
            return Err(self.shared.refuse_stranger(caller));
        }
        let requester = Requester::Workload { uid: caller.uid(), pid: caller.pid() };
        Ok(Entitled { supply, identities, requester })
    }

    /// Returns when there is reason to look again: `due` is one. An error: the call is over. Nothing is lost if it is dropped.
    pub(super) async fn changed(&mut self, due: Option<OffsetDateTime>) -> Result<(), Status> {
        let Ok(caller) = self.peer.as_ref() else { return Err(denied()) };
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Err(stopping()),
            changed = self.supply.changed() => changed.map_err(|_| stopping()),
            () = caller.ended() => Ok(()),
            () = tokio::time::sleep(until(due)) => Ok(()),
        }
    }
}

/// Makes the messages of one kind of stream, and remembers what the caller has.
pub(super) trait Source: Send + 'static {
    /// What is sent.
    type Message: prost::Message + 'static;

    /// The next message, or `None` if the caller already has this state.
    fn next(
        &mut self,
        feed: &Feed,
        entitled: Entitled,
        now: SystemTime,
    ) -> impl Future<Output = Result<Option<Self::Message>, Status>> + Send;

    /// When to look again though nothing was changed.
    fn due(&self) -> Option<OffsetDateTime>;
}

/// Keeps one caller supplied: the whole state at once, then again whenever it changed, until it loses its right, or we stop.
pub(super) fn supply<S: Source>(
    feed: Feed,
    source: S,
) -> impl Stream<Item = Result<S::Message, Status>> + Send {
    let state = Some((feed, source, true));
    stream::unfold(state, |state| async move {
        let (mut feed, mut source, first) = state?;
        match advance(&mut feed, &mut source, first).await {
            Ok(message) => Some((Ok(message), Some((feed, source, false)))),
            Err(status) => Some((Err(status), None)),
        }
    })
}

async fn advance<S: Source>(feed: &mut Feed, source: &mut S, first: bool) -> Result<S::Message, Status> {
    if !first {
        feed.changed(source.due()).await?;
    }
    loop {
        // In memory of its own: a stream is here for a moment and waits for hours, and what waits should be small.
        if let Some(message) = Box::pin(look(feed, source)).await? {
            return Ok(message);
        }
        feed.changed(source.due()).await?;
    }
}

async fn look<S: Source>(feed: &mut Feed, source: &mut S) -> Result<Option<S::Message>, Status> {
    let entitled = feed.entitled().await?;
    source.next(feed, entitled, SystemTime::now()).await
}

/// What the issuer calls too much is load that is shed: `Unavailable` is what clients wait for and come again (Workload Endpoint section 6).
pub(super) fn shed(status: Status) -> Status {
    match status.code() {
        Code::ResourceExhausted => Status::unavailable(status.message()),
        _ => status,
    }
}

/// Not a word of why: that is the operator's to read.
pub(super) fn unattested() -> Status {
    Status::unavailable("isthmusd can't attest this workload now; try again")
}

/// Clients look for this very text.
pub(super) fn denied() -> Status {
    Status::permission_denied("no identity issued")
}

pub(super) fn stopping() -> Status {
    Status::unavailable("isthmusd is starting or stopping, or has no issuer now; try again")
}

fn until(due: Option<OffsetDateTime>) -> Duration {
    let left = due.map(|due| due - OffsetDateTime::from(SystemTime::now()));
    // A floor, so that a clock that runs wild can't make this a busy loop.
    let floor = Duration::from_millis(50);
    left.map_or(MAX_SLEEP, |left| left.try_into().unwrap_or(Duration::ZERO)).clamp(floor, MAX_SLEEP)
}
