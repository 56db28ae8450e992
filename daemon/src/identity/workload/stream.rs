//! One caller's stream: complete state at once, then again whenever it changed.
//!
//! ```text
//!            +-> attest again, find entries -- none, or gone --> PermissionDenied, end
//!            |            |
//!            |   something changed, or due? -- no --+
//!            |            | yes                     |
//!            |       issue and push                 |
//!            |            v                         v
//!            +---- wait: supply changed, renewal due, process ended, client gone, shutdown
//! ```

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use isthmus_pki::facts::utc;
use isthmus_proto::workload::{X509BundlesResponse, X509svid, X509svidResponse};
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use super::{Supply, connection::Peer};
use crate::identity::{
    attest::Caller,
    certificates::Holder,
    issuing::{self, Requester, Svid},
    registration::Identity,
    trust::Trust,
};
use crate::log_limit::Limit;

/// Longest sleep: the wall clock may jump, and certificates live by the wall clock.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// How long after an issuance failed it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Makes the messages of one kind of stream, and remembers what the caller has.
pub(super) trait Source: Send + 'static {
    /// What is sent.
    type Message: Send + 'static;

    /// The next message, or `None` if the caller already has this state.
    fn next(
        &mut self,
        supply: &Supply,
        identities: Vec<Identity>,
        requester: &Requester,
        now: SystemTime,
    ) -> Result<Option<Self::Message>, Status>;

    /// When to look again though nothing was changed.
    fn due(&self) -> Option<OffsetDateTime>;
}

/// What a stream's task needs to know.
pub(super) struct Feed {
    pub(super) peer: Peer,
    pub(super) supply: watch::Receiver<Option<Supply>>,
    pub(super) shutdown: CancellationToken,
    /// Shared by all streams of a server.
    pub(super) log: Arc<Mutex<Limit>>,
}

impl Feed {
    /// Starts a task that keeps one caller supplied until it goes, or loses its right, or we stop.
    pub(super) fn spawn<S: Source>(
        mut self,
        tasks: &TaskTracker,
        mut source: S,
    ) -> ReceiverStream<Result<S::Message, Status>> {
        // Room for one message, so that a reader that does not read gets the latest state and not a queue of old ones; and room
        // kept for the last word, so that it never waits for that reader.
        let (sender, receiver) = mpsc::channel(2);
        tasks.spawn(async move {
            let Ok(last_word) = sender.clone().reserve_owned().await else { return };
            if let Err(status) = self.serve(&mut source, &sender).await {
                last_word.send(Err(status));
            }
        });
        ReceiverStream::new(receiver)
    }

    /// `Ok`: the client has left.
    async fn serve<S: Source>(
        &mut self,
        source: &mut S,
        sender: &mpsc::Sender<Result<S::Message, Status>>,
    ) -> Result<(), Status> {
        let peer = self.peer.clone();
        let Ok(caller) = peer.as_ref() else { return Err(denied()) };
        loop {
            // Room first, state after: what waits in a queue would be old when it is read.
            let room = tokio::select! {
                room = sender.reserve() => match room {
                    Ok(room) => room,
                    Err(_) => return Ok(()),
                },
                () = self.shutdown.cancelled() => return Err(stopping()),
            };
            if let Some(message) = self.step(caller, source)? {
                room.send(Ok(message));
            }
            tokio::select! {
                changed = self.supply.changed() => changed.map_err(|_| stopping())?,
                () = tokio::time::sleep(until(source.due())) => {}
                () = caller.ended() => {}
                () = sender.closed() => return Ok(()),
                () = self.shutdown.cancelled() => return Err(stopping()),
            }
        }
    }

    fn step<S: Source>(&mut self, caller: &Caller, source: &mut S) -> Result<Option<S::Message>, Status> {
        if let Err(refusal) = caller.check() {
            metrics::counter!("isthmus_attestation_refused_total", "reason" => refusal.reason()).increment(1);
            return Err(denied());
        }
        let supply = self.supply.borrow_and_update();
        let supply = supply.as_ref().ok_or_else(stopping)?;
        let identities = supply.registry.identities(&caller.facts());
        if identities.is_empty() {
            log_stranger(&self.log, caller);
            metrics::counter!("isthmus_attestation_refused_total", "reason" => "no_entry").increment(1);
            return Err(denied());
        }
        let requester = Requester::Workload { uid: caller.uid(), pid: caller.pid() };
        source.next(supply, identities, &requester, SystemTime::now())
    }
}

/// The metric counts every one; the log tells of one from time to time and how many it left out.
fn log_stranger(log: &Mutex<Limit>, caller: &Caller) {
    // A limit that was left half-changed lets one line more or less through.
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(not_shown) = log.pass(Instant::now()) {
        let (uid, pid) = (caller.uid(), caller.pid());
        tracing::info!(uid, pid, not_shown, "no entry matches this caller of the Workload API");
    }
}

/// Clients look for this very text.
fn denied() -> Status {
    Status::permission_denied("no identity issued")
}

fn stopping() -> Status {
    Status::unavailable("isthmusd is stopping or has no issuer now; try again")
}

fn until(due: Option<OffsetDateTime>) -> Duration {
    let left = due.map(|due| due - OffsetDateTime::from(SystemTime::now()));
    // A floor, so that a clock that runs wild can't make this a busy loop.
    let floor = Duration::from_millis(50);
    left.map_or(MAX_SLEEP, |left| left.try_into().unwrap_or(Duration::ZERO)).clamp(floor, MAX_SLEEP)
}

/// Messages of `FetchX509Bundles`.
#[derive(Default)]
pub(super) struct Bundles {
    sent: Option<Arc<Trust>>,
}

impl Source for Bundles {
    type Message = X509BundlesResponse;

    fn next(
        &mut self,
        supply: &Supply,
        _: Vec<Identity>,
        _: &Requester,
        _: SystemTime,
    ) -> Result<Option<Self::Message>, Status> {
        if self.sent.as_ref() == Some(&supply.trust) {
            return Ok(None);
        }
        self.sent = Some(supply.trust.clone());
        let domain = supply.trust.domain().id().to_string();
        let bundles = [(domain, supply.trust.own().to_der())].into();
        Ok(Some(X509BundlesResponse { crl: Vec::new(), bundles }))
    }

    fn due(&self) -> Option<OffsetDateTime> {
        None
    }
}

/// Messages of `FetchX509SVID`.
pub(super) struct Svids {
    holder: Holder,
    sent: Option<Sent>,
    retry_at: Option<OffsetDateTime>,
}

/// What the caller has. Its keys are not among it: they are forgotten once sent.
struct Sent {
    trust: Arc<Trust>,
    identities: Vec<Identity>,
    issuer: String,
    /// A clock that is set back can leave the caller with something not valid yet.
    not_before: i64,
    renew_at: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Svids {
    pub(super) fn new(holder: Holder) -> Self {
        Self { holder, sent: None, retry_at: None }
    }

    fn is_current(&self, supply: &Supply, identities: &[Identity], now: OffsetDateTime) -> bool {
        self.sent.as_ref().is_some_and(|sent| {
            sent.trust == supply.trust
                && sent.identities == identities
                && sent.issuer == supply.issuer.certificate().sha256
                && sent.not_before <= now.unix_timestamp()
                && now < sent.renew_at
        })
    }

    /// A failure ends the stream only once the caller has nothing valid left.
    fn failed(
        &mut self,
        error: &issuing::Error,
        now: OffsetDateTime,
    ) -> Result<Option<X509svidResponse>, Status> {
        tracing::warn!(%error, "an SVID could not be issued");
        let Some(sent) = self.sent.as_ref().filter(|sent| now < sent.not_after) else {
            return Err(error.status());
        };
        self.retry_at = Some((now + RETRY).min(sent.not_after));
        Ok(None)
    }
}

impl Source for Svids {
    type Message = X509svidResponse;

    fn next(
        &mut self,
        supply: &Supply,
        identities: Vec<Identity>,
        requester: &Requester,
        wall: SystemTime,
    ) -> Result<Option<X509svidResponse>, Status> {
        let now = OffsetDateTime::from(wall);
        if self.is_current(supply, &identities, now) {
            self.retry_at = None;
            return Ok(None);
        }
        let issued: Result<Vec<Svid>, _> =
            identities.iter().map(|identity| supply.issuer.issue(identity, requester, wall)).collect();
        let svids = match issued {
            Ok(svids) => svids,
            Err(e) => return self.failed(&e, now),
        };
        self.holder.hold(svids.iter().map(|svid| svid.info.clone()).collect());
        for svid in &svids {
            tracing::info!(id = %svid.id, serial = svid.info.serial, not_after = utc(svid.info.not_after), "issued an X.509-SVID");
        }
        self.retry_at = None;
        self.sent = Some(Sent {
            trust: supply.trust.clone(),
            identities,
            issuer: supply.issuer.certificate().sha256.clone(),
            not_before: svids.iter().map(|svid| svid.info.not_before).max().unwrap_or(0),
            renew_at: svids.iter().map(|svid| svid.renew_at).min().unwrap_or(now),
            not_after: svids.iter().map(|svid| svid.not_after).min().unwrap_or(now),
        });
        Ok(Some(response(&supply.trust, &svids)))
    }

    fn due(&self) -> Option<OffsetDateTime> {
        self.retry_at.or_else(|| self.sent.as_ref().map(|sent| sent.renew_at))
    }
}

fn response(trust: &Trust, svids: &[Svid]) -> X509svidResponse {
    let bundle = trust.own().to_der();
    let svid = |svid: &Svid| X509svid {
        spiffe_id: svid.id.to_string(),
        x509_svid: svid.chain.iter().flat_map(|der| der.iter().copied()).collect(),
        x509_svid_key: svid.key.to_pkcs8().to_vec(),
        bundle: bundle.clone(),
        hint: String::new(),
    };
    X509svidResponse { svids: svids.iter().map(svid).collect(), ..Default::default() }
}
