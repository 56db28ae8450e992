//! Keeps one foreign trust domain's bundle fresh.
//!
//! ```text
//! start: last good from disk --> fetch --good--> check, compare, store, publish --+
//!                                  ^ |                                            |
//!                                  | +--failed: say so, keep what there is -------+--> wait: its refresh hint, give or take 10 %
//!                                  +-------------------------------------------------------------------------+
//! ```
//!
//! For `https_spiffe` the endpoint is believed by the latest bundle that it gave, and by the bootstrap bundle only before the first one, or
//! when every root of the latest has expired: a node that was away for long comes back by what an operator brought, never by what it is told.

use std::{path::PathBuf, sync::Arc, time::Duration};

use isthmus_pki::{Bundle, TrustDomain, TrustStore};
use rustls::ClientConfig;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{
    Bundles, FederationError as Error,
    config::{DomainConfig, Profile},
    fetch, store, web,
};
use crate::identity::{
    files,
    tls::{self, Allow},
};

/// SPIFFE Federation section 4.1: what to do without a hint.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);
/// However short a hint is, a stranger does not make us ask more often than that.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(10);
const LONGEST_INTERVAL: Duration = Duration::from_secs(86_400);
/// For a whole fetch, redirects included.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The one that fetches.
pub(super) struct Client {
    config: DomainConfig,
    file: PathBuf,
    bundles: Bundles,
    current: Option<Bundle>,
    shortest: Duration,
    timeout: Duration,
    stop: CancellationToken,
}

/// What a fetch came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Updated,
    Unchanged,
}

impl Client {
    /// Reads and checks what was configured, and the last good bundle.
    pub(super) fn open(
        config: DomainConfig,
        directory: &std::path::Path,
        bundles: Bundles,
    ) -> Result<Self, Error> {
        let bootstrap = match &config.profile {
            Profile::Web { ca_file } => {
                web::roots(ca_file.as_deref())?;
                Vec::new()
            }
            Profile::Spiffe { endpoint_id, bootstrap_bundle } => {
                bootstrap(endpoint_id.trust_domain(), bootstrap_bundle)?;
                files::read(bootstrap_bundle)?
            }
        };
        let file = store::file(directory, &config, &bootstrap);
        let (shortest, timeout) = (SHORTEST_INTERVAL, TIMEOUT);
        let stop = CancellationToken::new();
        let mut client = Self { config, file, bundles, current: None, shortest, timeout, stop };
        client.current = client.last_good();
        Ok(client)
    }

    #[cfg(test)]
    pub(super) fn hurried(self, shortest: Duration, timeout: Duration) -> Self {
        Self { shortest, timeout, ..self }
    }

    /// Sets what ends [`Self::run`].
    pub(super) fn until(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    pub(super) fn file(&self) -> &PathBuf {
        &self.file
    }

    pub(super) fn config(&self) -> &DomainConfig {
        &self.config
    }

    /// A file that can't be used is as good as none: it is fetched again.
    fn last_good(&self) -> Option<Bundle> {
        let (domain, file) = (&self.config.trust_domain, self.file.display());
        match store::load(&self.file) {
            Ok(bytes) => match Bundle::from_jwks(domain, &bytes?) {
                Ok(document) => Some(document.bundle),
                Err(error) => {
                    tracing::warn!(%domain, %file, %error, "the stored bundle is damaged and not used");
                    None
                }
            },
            Err(error) => {
                tracing::warn!(%domain, %file, %error, "the stored bundle can't be read and is not used");
                None
            }
        }
    }

    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        self.publish(OffsetDateTime::now_utc());
        loop {
            let outcome = tokio::select! {
                outcome = self.poll() => outcome,
                () = stop.cancelled() => return,
            };
            self.tell(outcome);
            tokio::select! {
                () = tokio::time::sleep(self.interval()) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn tell(&self, outcome: Result<Outcome, Error>) {
        let domain = &self.config.trust_domain;
        let sequence = self.current.as_ref().and_then(Bundle::sequence);
        let result = match outcome {
            Ok(Outcome::Updated) => {
                tracing::info!(%domain, sequence, "took a new bundle of a federated trust domain");
                "updated"
            }
            Ok(Outcome::Unchanged) => "unchanged",
            Err(error) => {
                tracing::warn!(%domain, %error, "no bundle of a federated trust domain; the last good one stays");
                "failed"
            }
        };
        if result != "failed" {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
            metrics::gauge!("isthmus_federation_fetched_timestamp_seconds", "trust_domain" => domain.to_string()).set(now);
        }
        metrics::counter!("isthmus_federation_fetches_total", "trust_domain" => domain.to_string(), "result" => result)
            .increment(1);
    }

    fn interval(&self) -> Duration {
        let hint = self.current.as_ref().and_then(Bundle::refresh_hint).unwrap_or(DEFAULT_INTERVAL);
        hint.clamp(self.shortest, LONGEST_INTERVAL).mul_f64(rand::random_range(0.9..1.1))
    }

    /// Fetches once and takes what holds. On an error all stays as it is, but a bundle whose roots have all expired goes.
    pub(super) async fn poll(&mut self) -> Result<Outcome, Error> {
        let result = self.fetch().await;
        self.publish(OffsetDateTime::now_utc());
        result
    }

    async fn fetch(&mut self) -> Result<Outcome, Error> {
        let tls = Arc::new(self.tls(OffsetDateTime::now_utc())?);
        let bytes = fetch::fetch(&self.config.url, tls, self.timeout).await.map_err(|e| self.failed(e))?;
        let document = Bundle::from_jwks(&self.config.trust_domain, &bytes).map_err(|e| self.failed(e))?;
        for skipped in &document.skipped {
            tracing::warn!(domain = %self.config.trust_domain, %skipped, "left out of a federated bundle");
        }
        if document.bundle.is_empty()
            && let Some(first) = document.skipped.first()
        {
            return Err(self.failed(format!("nothing in the bundle can be used: {first}")));
        }
        self.take(document.bundle, bytes.to_vec()).await
    }

    async fn take(&mut self, bundle: Bundle, bytes: Vec<u8>) -> Result<Outcome, Error> {
        if self.current.as_ref() == Some(&bundle) {
            return Ok(Outcome::Unchanged);
        }
        let known = self.current.as_ref().and_then(Bundle::sequence);
        if let (Some(known), Some(new)) = (known, bundle.sequence())
            && new < known
        {
            let file = self.file.display();
            return Err(self.failed(format!(
                "its sequence went back from {known} to {new}: an old bundle is not taken; if its publisher began anew, remove {file} and restart"
            )));
        }
        let file = self.file.clone();
        let saved = tokio::task::spawn_blocking(move || store::save(&file, &bytes)).await;
        if let Err(error) = saved.unwrap_or_else(|e| Err(std::io::Error::other(e))) {
            tracing::warn!(file = %self.file.display(), %error, "the bundle can't be stored; a restart without network won't know it");
        }
        self.current = Some(bundle);
        Ok(Outcome::Updated)
    }

    /// Shows others what there is. An empty bundle is shown too: it says that the domain vouches for nobody.
    fn publish(&self, now: OffsetDateTime) {
        let domain = &self.config.trust_domain;
        let current = self.current.as_ref().filter(|bundle| !bundle.is_out_of_date(now));
        if self.current.is_some() && current.is_none() {
            tracing::warn!(%domain, "every root of this federated trust domain has expired: it is not trusted until a new bundle comes");
        }
        self.bundles.set(domain, current, &self.stop);
    }

    fn tls(&self, now: OffsetDateTime) -> Result<ClientConfig, Error> {
        match &self.config.profile {
            Profile::Web { ca_file } => web::client(ca_file.as_deref()),
            Profile::Spiffe { endpoint_id, bootstrap_bundle } => {
                let domain = endpoint_id.trust_domain();
                let latest = self.latest(domain).filter(|bundle| !bundle.is_out_of_date(now));
                let mut store = TrustStore::default();
                store.insert(match latest {
                    Some(bundle) => bundle,
                    None => bootstrap(domain, bootstrap_bundle)?,
                });
                tls::anonymous_client_config(store, Allow::Ids(vec![endpoint_id.clone()]))
                    .map_err(|e| self.failed(e))
            }
        }
    }

    /// An endpoint may belong to another trust domain than the one whose bundle it serves; then that one's bundle counts.
    fn latest(&self, domain: &TrustDomain) -> Option<Bundle> {
        if *domain == self.config.trust_domain { self.current.clone() } else { self.bundles.get(domain) }
    }

    fn failed(&self, reason: impl ToString) -> Error {
        Error::Fetch { url: self.config.url.to_string(), reason: reason.to_string() }
    }
}

fn bootstrap(domain: &TrustDomain, path: &std::path::Path) -> Result<Bundle, Error> {
    let wrong = |reason: String| Error::Bootstrap { path: path.to_owned(), reason };
    let document = Bundle::foreign(domain, &files::read(path)?).map_err(|e| wrong(e.to_string()))?;
    match (document.bundle.anchors().is_empty(), document.skipped.first()) {
        (false, _) => Ok(document.bundle),
        (true, Some(first)) => Err(wrong(first.to_string())),
        (true, None) => Err(wrong("no certificate in it".into())),
    }
}
