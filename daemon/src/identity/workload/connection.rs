//! Connections: counted, attested when accepted, and served with the verdict.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::{Settings, admission::Open, exchange::Exchange};
use crate::{
    identity::attest::{Caller, Refusal},
    log_limit::Limit,
};

/// How long to wait when accepting fails.
const PAUSE: Duration = Duration::from_millis(100);

/// The verdict on a connection's peer, as each call on it sees it.
pub(super) type Peer = Arc<Result<Caller, Refusal>>;

/// Serves the connections of a listener.
pub(super) struct Reception {
    listener: UnixListener,
    settings: Arc<ArcSwap<Settings>>,
    open: Open,
    routes: Routes,
    refusals: Limit,
    failures: Limit,
}

impl Reception {
    pub(super) fn new(listener: UnixListener, settings: Arc<ArcSwap<Settings>>, routes: Routes) -> Self {
        let (refusals, failures) = (Limit::default(), Limit::default());
        Self { listener, settings, open: Open::default(), routes, refusals, failures }
    }

    /// Until `shutdown`, and then until the last connection has ended. Whoever drops this cuts them.
    pub(super) async fn serve(mut self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                stream = self.accept() => if let Some(exchange) = self.admit(stream, &shutdown) {
                    connections.spawn(exchange);
                },
            }
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }

    /// The next that connects.
    async fn accept(&mut self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // Out of descriptors, most likely.
                Err(error) => {
                    if let Some(not_shown) = self.failures.pass(Instant::now()) {
                        tracing::warn!(%error, not_shown, "the Workload API can't accept a connection; trying again in a moment");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// `None`: over the limit, closed at once.
    fn admit(&mut self, stream: UnixStream, shutdown: &CancellationToken) -> Option<Exchange> {
        let peer = Caller::attest(&stream);
        let uid = stream.peer_cred().map_or(u32::MAX, |credentials| credentials.uid());
        let Some(place) = self.open.take(uid, self.settings.load().limits) else {
            // Whoever floods us does not get to flood the log: the metric counts.
            tracing::debug!(uid, "connection to the Workload API refused: too many are open");
            metrics::counter!("isthmus_attestation_refused_total", "reason" => "connections").increment(1);
            return None;
        };
        if let Err(refusal) = &peer {
            warn_refused(&mut self.refusals, uid, refusal, Instant::now());
        }
        Some(Exchange::new(stream, Arc::new(peer), place, self.routes.clone(), shutdown.clone()))
    }
}

/// The metric counts every refusal; the log tells of one every [`LOG_EVERY`](crate::log_limit::LOG_EVERY) and how many it left out.
fn warn_refused(limit: &mut Limit, uid: u32, refusal: &Refusal, now: Instant) {
    metrics::counter!("isthmus_attestation_refused_total", "reason" => refusal.reason()).increment(1);
    if let Some(not_shown) = limit.pass(now) {
        tracing::warn!(uid, %refusal, not_shown, "a caller of the Workload API can't be attested");
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex};

    use super::*;

    /// Collects what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_of_callers_without_identity_is_counted_and_not_logged_line_by_line() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let (start, mut limit) = (Instant::now(), Limit::default());
        metrics::with_local_recorder(&recorder, || {
            tracing::subscriber::with_default(subscriber, || {
                for millisecond in 0..3000 {
                    let now = start + Duration::from_millis(millisecond);
                    warn_refused(&mut limit, 1000, &Refusal::Gone, now);
                }
                warn_refused(&mut limit, 1000, &Refusal::NoPid, start + crate::log_limit::LOG_EVERY);
            });
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), 2, "{log}");
        assert!(lines[0].contains("the calling process is gone not_shown=0"), "{log}");
        assert!(lines[1].contains("not_shown=2999"), "{log}");
        let counted = recorder.handle().render();
        assert!(counted.contains("isthmus_attestation_refused_total{reason=\"gone\"} 3000"), "{counted}");
        assert!(counted.contains("isthmus_attestation_refused_total{reason=\"no_pid\"} 1"), "{counted}");
    }
}
