//! What time alone brings: a CA near its end is replaced, one whose last leaf is dead goes.

use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::{Request, Rotation, Verb, seconds};
use crate::{identity::Handle, wall_clock::Steady};

/// Longest sleep, where nobody tells that the wall clock was set (`clock.rs`).
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// How long after a refusal it is tried again, if nobody reports anything before.
const RETRY: Duration = Duration::from_secs(10);

/// Runs until `shutdown`.
pub(in crate::identity) async fn run(handle: Handle, rotation: Rotation, shutdown: CancellationToken) {
    let (mut told, mut clock) = (String::new(), Steady::trusting(SystemTime::now(), Instant::now()));
    loop {
        let now = SystemTime::now();
        let steady = clock.is(now, Instant::now());
        let wait = match rotation.due(now) {
            Some(verb) => {
                if may(&verb, steady) {
                    take(&handle, verb, &mut told).await;
                }
                RETRY
            }
            None => until(rotation.state().next_due(seconds(now)), now),
        };
        alarm(&rotation, now, &mut told);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = rotation.0.wake.notified() => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// A CA that retires loses its key: not by a clock that was set a moment ago.
fn may(verb: &Verb, clock_is_steady: bool) -> bool {
    clock_is_steady || !matches!(verb, Verb::Retire)
}

async fn take(handle: &Handle, verb: Verb, told: &mut String) {
    let request =
        Request { verb, override_reason: None, istio_checked: None, by: "isthmusd, at its time".into() };
    let problem = match handle.rotate(&request, true).await {
        // A refusal that would be the same each time is planned, not ordered: the journal need not hold it every ten seconds.
        Ok(plan) => match plan.refusal {
            Some(refusal) => refusal.to_string(),
            None => handle.rotate(&request, false).await.err().map(|e| e.to_string()).unwrap_or_default(),
        },
        Err(error) => error.to_string(),
    };
    tell(problem, told);
}

fn alarm(rotation: &Rotation, now: SystemTime, told: &mut String) {
    let alarms = rotation.state().alarms(seconds(now));
    metrics::gauge!("isthmus_rotation_alarms").set(u32::try_from(alarms.len()).unwrap_or(u32::MAX));
    if let Some(first) = alarms.into_iter().next() {
        tell(first, told);
    }
}

/// Each problem once, not each time.
fn tell(problem: String, told: &mut String) {
    if !problem.is_empty() && problem.split(", heard").next() != told.split(", heard").next() {
        tracing::warn!(problem, "a rotation that is due waits; see isthmusctl rotate status");
    }
    if !problem.is_empty() {
        *told = problem;
    }
}

fn until(at: Option<i64>, now: SystemTime) -> Duration {
    let left = at.map_or(i64::MAX, |at| at - seconds(now));
    Duration::from_secs(u64::try_from(left).unwrap_or(0)).min(MAX_SLEEP)
}

impl Rotation {
    /// What is due now.
    pub(in crate::identity) fn due(&self, now: SystemTime) -> Option<Verb> {
        use isthmus_pki::rotation::Command;

        match self.state().due(seconds(now))? {
            Command::Activate => Some(Verb::Activate),
            Command::Retire => Some(Verb::Retire),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_destroyed_by_a_clock_that_was_just_set() {
        assert!(!may(&Verb::Retire, false) && may(&Verb::Retire, true));
        // Who issues is another matter: that can be taken up again.
        assert!(may(&Verb::Activate, false));
    }
}
