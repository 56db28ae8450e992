//! Connections: counted, attested when accepted, and handed to the gRPC server with the verdict.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
    time::Sleep,
};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use super::{
    Settings,
    admission::{Open, Place},
    authority::Filter,
};
use crate::{
    identity::attest::{Caller, Refusal},
    log_limit::Limit,
};

/// How many bytes are read at a time: requests are small.
const READ: usize = 2048;
/// How long to wait when accepting fails.
const PAUSE: Duration = Duration::from_millis(100);

/// The verdict on a connection's peer, as each call on it sees it.
pub(super) type Peer = Arc<Result<Caller, Refusal>>;

/// Connections of a listener; never ends, never fails.
pub(super) struct Incoming {
    listener: UnixListener,
    settings: Arc<ArcSwap<Settings>>,
    open: Open,
    pause: Option<Pin<Box<Sleep>>>,
    refusals: Limit,
    failures: Limit,
}

impl Incoming {
    pub(super) fn new(listener: UnixListener, settings: Arc<ArcSwap<Settings>>) -> Self {
        let (refusals, failures) = (Limit::default(), Limit::default());
        Self { listener, settings, open: Open::default(), pause: None, refusals, failures }
    }

    /// `None`: over the limit, closed at once.
    fn admit(&mut self, stream: UnixStream) -> Option<Connection> {
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
        let (filter, ready) = (Filter::default(), Vec::new());
        Some(Connection { stream, filter, ready, peer: Arc::new(peer), _place: place })
    }
}

/// The metric counts every refusal; the log tells of one every [`LOG_EVERY`](crate::log_limit::LOG_EVERY) and how many it left out.
fn warn_refused(limit: &mut Limit, uid: u32, refusal: &Refusal, now: Instant) {
    metrics::counter!("isthmus_attestation_refused_total", "reason" => refusal.reason()).increment(1);
    if let Some(not_shown) = limit.pass(now) {
        tracing::warn!(uid, %refusal, not_shown, "a caller of the Workload API can't be attested");
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, _)) => {
                    if let Some(connection) = self.admit(stream) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
                // Out of descriptors, most likely. The gRPC server would stop for good: wait here instead.
                Err(error) => {
                    if let Some(not_shown) = self.failures.pass(Instant::now()) {
                        tracing::warn!(%error, not_shown, "the Workload API can't accept a connection; trying again in a moment");
                    }
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}

/// A connection with the verdict on its peer.
pub(super) struct Connection {
    stream: UnixStream,
    filter: Filter,
    /// What came through the filter and was not read yet.
    ready: Vec<u8>,
    peer: Peer,
    _place: Place,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.ready.is_empty() {
            let mut space = [0; READ];
            let mut chunk = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                this.filter.finish(&mut this.ready);
                break;
            }
            this.filter.feed(chunk.filled(), &mut this.ready);
        }
        let now = this.ready.len().min(buf.remaining());
        buf.put_slice(&this.ready[..now]);
        if now == this.ready.len() {
            // Most connections are silent for hours: nothing is kept for what they may say next.
            this.ready = Vec::new();
        } else {
            this.ready.drain(..now);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    /// So that messages are not copied into a buffer of the connection first, which would keep its size.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
