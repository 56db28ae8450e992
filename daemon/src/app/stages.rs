//! The running subsystems in order of start, and the one rule for stopping them.

use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};

use crate::lifecycle::CancellationToken;

/// A subsystem that does not end by then is left to the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Running subsystems, in order of start.
#[derive(Default)]
pub(super) struct Stages {
    stages: Vec<Stage>,
    ended: JoinSet<(&'static str, Result<(), tokio::task::JoinError>)>,
}

struct Stage {
    name: &'static str,
    token: CancellationToken,
    done: CancellationToken,
}

impl Stages {
    /// Adds a subsystem: `token` tells it to stop, `task` ends when it has.
    pub(super) fn push(&mut self, name: &'static str, token: CancellationToken, task: JoinHandle<()>) {
        let done = CancellationToken::new();
        let guard = done.clone().drop_guard();
        self.ended.spawn(async move {
            let result = task.await;
            drop(guard);
            (name, result)
        });
        self.stages.push(Stage { name, token, done });
    }

    /// Waits until a subsystem ends that nobody told to. Cancel-safe; never returns while all run.
    pub(super) async fn failure(&mut self) -> anyhow::Error {
        match self.ended.join_next().await {
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} ended unexpectedly; the log above says why"),
            Some(Ok((name, Err(error)))) => {
                anyhow::anyhow!("{name} failed: {error}; please report this as a bug")
            }
            Some(Err(error)) => anyhow::anyhow!("a watcher failed: {error}; please report this as a bug"),
            None => std::future::pending().await,
        }
    }

    /// Stops every subsystem, the last started first, each completely before the next.
    pub(super) async fn stop(&mut self) {
        for stage in self.stages.drain(..).rev() {
            stage.token.cancel();
            if tokio::time::timeout(STOP_LIMIT, stage.done.cancelled()).await.is_err() {
                tracing::warn!(subsystem = stage.name, limit = ?STOP_LIMIT, "did not stop in time");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn stops_in_reverse_and_one_after_the_other() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut stages = Stages::default();
        for name in ["tunnel", "fib", "bgp"] {
            let (token, log) = (CancellationToken::new(), log.clone());
            let task = tokio::spawn({
                let token = token.clone();
                async move {
                    token.cancelled().await;
                    tokio::task::yield_now().await;
                    log.lock().unwrap().push(name);
                }
            });
            stages.push(name, token, task);
        }
        stages.stop().await;
        assert_eq!(*log.lock().unwrap(), ["bgp", "fib", "tunnel"]);
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_with_a_name() {
        let mut stages = Stages::default();
        stages.push("bgp", CancellationToken::new(), tokio::spawn(async { panic!("boom") }));
        let error = stages.failure().await.to_string();
        assert!(error.starts_with("bgp failed") && error.contains("boom"), "{error}");
    }
}
