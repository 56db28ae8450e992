//! Connections that end when one of the two is not believed any more.
//!
//! A certificate is checked in the handshake and never again by TLS itself. Here it is checked again whenever what the node believes
//! changes, and when the certificate of either side ends.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use isthmus_pki::{Facts, SpiffeId, facts::utc, verify::Purpose};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Allow, Live};
use crate::leash::Leash;

/// Longest sleep, where nobody tells that the wall clock was set (`clock.rs`).
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// What a connection lives by. [`Check::now`] is asked before each call, and by the connection's own [`Guarded`].
pub struct Check {
    live: Live,
    chain: Vec<CertificateDer<'static>>,
    purpose: Purpose,
    allow: Allow,
    /// End of the certificate that each side showed: seconds since the Unix epoch.
    until: i64,
}

impl Check {
    /// For a peer that showed `chain` in the handshake; `own_end` is the last second of what we showed, if we did.
    pub fn new(
        live: Live,
        chain: Vec<CertificateDer<'static>>,
        purpose: Purpose,
        allow: Allow,
        own_end: Option<i64>,
    ) -> Self {
        let leaf = chain.first().and_then(|der| Facts::parse(der).ok());
        let theirs = leaf.map_or(i64::MIN, |leaf| leaf.not_after);
        Self { live, chain, purpose, allow, until: own_end.unwrap_or(i64::MAX).min(theirs) }
    }

    /// Who the peer is, if it is still believed and welcome; else why not.
    pub fn now(&self) -> Result<SpiffeId, String> {
        let now = SystemTime::now();
        if OffsetDateTime::from(now).unix_timestamp() > self.until {
            return Err(format!("a certificate of this connection ended at {}", utc(self.until)));
        }
        let standing = self.live.borrow();
        let standing = standing.as_ref().ok_or("this node has no identity now")?;
        standing.judge(&self.chain, self.purpose, &self.allow, now)
    }

    /// Returns why the connection has to end, once it has.
    async fn failed(&self) -> String {
        let mut live = self.live.clone();
        loop {
            live.mark_unchanged();
            if let Err(reason) = self.now() {
                return reason;
            }
            tokio::select! {
                changed = live.changed() => if changed.is_err() {
                    return "this node stops".into();
                },
                () = tokio::time::sleep(self.sleep()) => {}
            }
        }
    }

    fn sleep(&self) -> Duration {
        let left = self.until.saturating_add(1) - OffsetDateTime::now_utc().unix_timestamp();
        Duration::from_secs(u64::try_from(left).unwrap_or(0)).clamp(Duration::from_millis(50), MAX_SLEEP)
    }
}

/// A connection that fails on both sides once its peer is not believed any more, or its time is over.
pub type Guarded<S> = Leash<S, Watch>;

/// Ends the task that watches, when the connection has ended by itself.
pub struct Watch {
    _gone: DropGuard,
}

impl<S> Guarded<S> {
    /// Watches over `check` in a task of its own for as long as the connection is there.
    pub fn new(stream: S, check: Arc<Check>) -> Self {
        Self::until(stream, async move {
            let reason = check.failed().await;
            metrics::counter!("isthmus_tls_connections_ended_total").increment(1);
            tracing::info!(reason, "a connection ends: its peer is not believed any more");
        })
    }

    /// A connection that ends when `end` does.
    pub fn until(stream: S, end: impl Future<Output = ()> + Send + 'static) -> Self {
        let (must_end, gone) = (CancellationToken::new(), CancellationToken::new());
        let (tell, left) = (must_end.clone(), gone.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = end => tell.cancel(),
                () = left.cancelled() => {}
            }
        });
        Self::tie(stream, must_end, "the connection's time is over", Watch { _gone: gone.drop_guard() })
    }
}
