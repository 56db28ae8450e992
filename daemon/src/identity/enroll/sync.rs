//! Tells an issuer how this node stands and hears what the fabric trusts, as long as there is an issuer to talk to.

use std::{sync::Arc, time::Duration};

use isthmus_proto::issuance::SyncRequest;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    agent::shuffled,
    client::{self, As},
    fleet::TrustState,
};
use crate::identity::standing::{Live, Standing};

/// How long after a failure it is tried again, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// An issuer answers after half a minute even if nothing changed.
const ANSWER_LIMIT: Duration = Duration::from_secs(50);
/// No more often than that, whatever an issuer answers.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs until `shutdown`; what was heard last goes to `heard`, which keeps it when the issuers are gone.
pub(in crate::identity) async fn run(
    mut live: Live,
    heard: watch::Sender<Option<Arc<TrustState>>>,
    shutdown: CancellationToken,
) {
    let mut wait = RETRY.0;
    loop {
        let standing = live.borrow_and_update().clone();
        let asks = standing.filter(|standing| standing.own.is_some() && !standing.config.issuers.is_empty());
        let work = async {
            match asks {
                Some(standing) => talk(&live, &standing, &heard).await,
                None => std::future::pending().await,
            }
        };
        // A change of what we are or believe ends the talk: the next one is with the new certificate.
        let mut changed = live.clone();
        tokio::select! {
            spoke = work => {
                wait = if spoke { RETRY.0 } else { (wait * 2).min(RETRY.1) };
                tokio::select! {
                    () = tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))) => {}
                    () = shutdown.cancelled() => return,
                }
            }
            changed = changed.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
    }
}

/// Talks to the first issuer that answers, until that fails. True if one answered at all.
async fn talk(live: &Live, standing: &Standing, heard: &watch::Sender<Option<Arc<TrustState>>>) -> bool {
    for address in shuffled(&standing.config.issuers) {
        let Ok(mut client) = client::connect(&address, live, standing, As::Node, Some(ANSWER_LIMIT)).await
        else {
            continue;
        };
        let mut known_version = Vec::new();
        let mut answered = false;
        loop {
            let report = standing.own.is_some().then(|| standing.report().into());
            let request = SyncRequest { report, known_version: known_version.clone() };
            match client.sync(request).await {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    known_version.clone_from(&answer.version);
                    take(heard, answer.into());
                    answered = true;
                }
                Err(status) => {
                    let error = client::refused(&address, status);
                    tracing::debug!(%error, "an issuer does not answer any more");
                    break;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        if answered {
            return true;
        }
    }
    false
}

fn take(heard: &watch::Sender<Option<Arc<TrustState>>>, state: TrustState) {
    heard.send_if_modified(|old| {
        let differs = old.as_deref() != Some(&state);
        if differs {
            *old = Some(Arc::new(state));
        }
        differs
    });
}
