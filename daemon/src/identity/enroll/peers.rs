//! Asks the issuers that `[fabric] peers` names for the JWT keys of their sites, each by a task of its own: one that is dead keeps nobody
//! from the others, and what it said last stays until it ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use isthmus_pki::{SpiffeId, renewal};
use isthmus_proto::issuance::SyncRequest;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{client, fleet::TrustState};
use crate::identity::{handle::Handle, own::Own, standing::Standing};

/// An issuer answers after half a minute even if nothing changed.
const ANSWER_LIMIT: Duration = Duration::from_secs(50);
/// No more often than that, whatever a peer answers.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest wait between two attempts, in seconds.
const LONGEST_WAIT: i64 = 60;

/// How asking one peer goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// From `[fabric] peers`.
    pub address: String,
    /// Who answered there last.
    pub id: Option<SpiffeId>,
    /// When it last answered, in seconds since the Unix epoch.
    pub heard_at: Option<i64>,
    /// How many endorsements it told of, its own and others'.
    pub endorsements: usize,
    /// Attempts that failed since then.
    pub failures: u32,
    /// Why the last one failed; empty: it did not.
    pub last_error: String,
}

/// By address.
pub(in crate::identity) type Views = watch::Sender<BTreeMap<String, Peer>>;

/// Asks whom the configuration names, until `shutdown`.
pub(in crate::identity) async fn run(handle: Handle, views: Views, shutdown: CancellationToken) {
    let mut live = handle.live();
    let mut asked: BTreeMap<String, DropGuard> = BTreeMap::new();
    loop {
        let standing = live.borrow_and_update().clone();
        let wanted = standing.map(|standing| standing.config.peers.clone()).unwrap_or_default();
        asked.retain(|address, _| wanted.contains(address));
        views.send_if_modified(|views| {
            let before = views.len();
            views.retain(|address, _| wanted.contains(address));
            views.len() != before
        });
        for address in wanted {
            asked.entry(address).or_insert_with_key(|address| begin(&handle, &views, address, &shutdown));
        }
        tokio::select! {
            changed = live.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
    }
}

/// Ends when the guard is dropped.
fn begin(handle: &Handle, views: &Views, address: &str, shutdown: &CancellationToken) -> DropGuard {
    let view = View { views: views.clone(), address: address.to_owned() };
    view.change(|_| {});
    let (handle, stop) = (handle.clone(), shutdown.child_token());
    let guard = stop.clone().drop_guard();
    handle.0.tasks.clone().spawn(async move { stop.run_until_cancelled_owned(ask(handle, view)).await });
    guard
}

/// What is shown of a peer, for as long as the configuration names it.
struct View {
    views: Views,
    address: String,
}

impl View {
    fn change(&self, change: impl FnOnce(&mut Peer)) {
        self.views.send_modify(|views| {
            let new = || Peer { address: self.address.clone(), ..Peer::default() };
            change(views.entry(self.address.clone()).or_insert_with(new));
            let answering =
                views.values().filter(|peer| peer.failures == 0 && peer.heard_at.is_some()).count();
            let gauge = |state, count: usize| {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                metrics::gauge!("isthmus_fabric_peers", "state" => state).set(count);
            };
            gauge("answering", answering);
            gauge("silent", views.len() - answering);
        });
    }

    fn heard(&self, id: Option<&SpiffeId>, endorsements: usize) {
        self.change(|peer| {
            let heard_at = Some(OffsetDateTime::now_utc().unix_timestamp());
            let (id, address) = (id.cloned(), peer.address.clone());
            *peer = Peer { address, id, heard_at, endorsements, ..Peer::default() };
        });
    }

    fn failed(&self, error: &client::Error) -> u32 {
        let mut failures = 0;
        self.change(|peer| {
            failures = peer.failures.saturating_add(1);
            (peer.failures, peer.last_error) = (failures, error.to_string());
        });
        failures
    }
}

/// Never ends by itself.
async fn ask(handle: Handle, view: View) {
    let mut live = handle.live();
    loop {
        // Nobody answers one who has nothing to show.
        let joined = live.wait_for(|standing| own(standing.as_ref()).is_some()).await;
        let Some(standing) = joined.ok().and_then(|standing| standing.clone()) else { return };
        let other = |now: &Option<Standing>| !same(own(now.as_ref()), own(Some(&standing)));
        let error = tokio::select! {
            error = talk(&handle, &standing, &view) => error,
            // The next talk is with the new certificate.
            changed = async { live.wait_for(other).await.is_ok() } => if changed { continue } else { return },
        };
        let failures = view.failed(&error);
        if failures == 1 {
            tracing::info!(%error, "a peer of the fabric does not answer; its keys stay until they end, and it is asked again");
        }
        let wait = renewal::wait(failures, LONGEST_WAIT, rand::random());
        tokio::time::sleep(Duration::from_secs(u64::try_from(wait).unwrap_or(1))).await;
    }
}

fn own(standing: Option<&Standing>) -> Option<&Arc<Own>> {
    standing?.own.as_ref()
}

fn same(a: Option<&Arc<Own>>, b: Option<&Arc<Own>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// Hears what a peer says for as long as it answers.
async fn talk(handle: &Handle, standing: &Standing, view: &View) -> client::Error {
    let live = handle.live();
    let (mut client, id) = match client::connect_peer(&view.address, &live, standing, ANSWER_LIMIT).await {
        Ok(connected) => connected,
        Err(error) => return error,
    };
    let (mut known_version, mut last) = (Vec::new(), None);
    loop {
        // One of our own site waits for us as for any other node.
        let report = live.borrow().as_ref().map(|standing| standing.report().into());
        let request = SyncRequest { report, known_version };
        let answer = match client.sync(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return client::refused(&view.address, status),
        };
        known_version = answer.version.clone();
        let state = Arc::new(TrustState::from(answer));
        view.heard(id.as_ref(), state.jwt_endorsements.len());
        if last.as_ref() != Some(&state) {
            handle.hear_peer(&view.address, &state).await;
            last = Some(state);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
