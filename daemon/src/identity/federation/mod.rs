//! Federation (SPIFFE Federation): our bundle for other trust domains, and theirs for us. Bundles are kept by trust domain and never pooled.
//!
//! [`Federation::prepare`] reads, checks and binds all that a configuration needs and changes nothing; [`Federation::install`] then puts it
//! in force and can't fail. What is fetched goes into the node's [`Trust`] ([`Federation::complete`]), and with it to the workloads that it is
//! meant for.

mod client;
mod config;
mod endpoint;
mod fetch;
mod store;
#[cfg(test)]
mod tests;
mod web;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use isthmus_pki::{Bundle, Key, TrustDomain};
use rustls_pki_types::CertificateDer;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{files::FileError, own::Own, trust::Trust};
use client::Client;
pub(crate) use config::RawFederationConfig;
pub use config::{
    DomainConfig, EndpointConfig, EndpointProof, FederationConfig, Profile as FederationProfile,
};
use endpoint::{Endpoint, Serving};

/// Why federation can't be set up, or a bundle not be had.
#[derive(Debug, thiserror::Error)]
pub enum FederationError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The CAs of the web.
    #[error("{path}: {reason}; name a PEM file with the CAs of the web in ca_file")]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No operating system's CAs either.
    #[error(
        "[federation] this system has no CAs of the web where they usually are; install ca-certificates, or set ca_file"
    )]
    NoSystemRoots,
    /// The bundle to begin with.
    #[error("{path}: not a bundle to begin with: {reason}; get it from the partner by a way that you trust")]
    Bootstrap {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The endpoint's certificate.
    #[error("{certificate} and {key}: {reason}")]
    Web {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// The library refused.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The endpoint's address.
    #[error("[federation] cannot listen on {address}: {source}; set listen to a free address of this node")]
    Listen {
        /// What was configured.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Our own bundle comes from our own root.
    #[error(
        "[[federation.trust_domain]] {0} is this node's own trust domain: its bundle is [identity] trust_bundle"
    )]
    Own(TrustDomain),
    /// A bundle that could not be had.
    #[error("{url}: {reason}")]
    Fetch {
        /// From where.
        url: String,
        /// Why not.
        reason: String,
    },
}

/// The bundles of others that are in force, by trust domain.
#[derive(Clone, Default)]
struct Bundles(watch::Sender<Arc<BTreeMap<TrustDomain, Bundle>>>);

impl Bundles {
    /// `stop` is that of the client: once it was told to stop, it puts nothing back.
    fn set(&self, domain: &TrustDomain, bundle: Option<&Bundle>, stop: &CancellationToken) {
        self.0.send_if_modified(|map| {
            if stop.is_cancelled() || map.get(domain) == bundle {
                return false;
            }
            let map = Arc::make_mut(map);
            match bundle {
                Some(bundle) => map.insert(domain.clone(), bundle.clone()),
                None => map.remove(domain),
            };
            true
        });
    }

    fn remove(&self, domain: &TrustDomain) {
        self.set(domain, None, &CancellationToken::new());
    }

    fn get(&self, domain: &TrustDomain) -> Option<Bundle> {
        self.0.borrow().get(domain).cloned()
    }
}

/// What the endpoint shows of this node.
struct Shown {
    bundle: Bundle,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<Key>,
}

/// Everything of federation that runs. Clones share it.
#[derive(Clone)]
pub struct Federation(Arc<Inner>);

struct Inner {
    shown: watch::Sender<Option<Arc<Shown>>>,
    bundles: Bundles,
    running: Mutex<Running>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Running {
    endpoint: Option<Endpoint>,
    clients: Vec<(DomainConfig, PathBuf, CancellationToken)>,
}

/// A configuration that was checked; what it needs is open.
pub struct Prepared {
    state_dir: Option<PathBuf>,
    endpoint: Option<(Option<(TcpListener, SocketAddr)>, Serving)>,
    clients: Vec<Client>,
}

impl Federation {
    /// Runs nothing yet.
    pub(super) fn new(shutdown: &CancellationToken, tasks: &TaskTracker) -> Self {
        Self(Arc::new(Inner {
            shown: watch::Sender::new(None),
            bundles: Bundles::default(),
            running: Mutex::default(),
            shutdown: shutdown.clone(),
            tasks: tasks.clone(),
        }))
    }

    /// Reads, checks and binds what differs from what runs.
    pub async fn prepare(&self, config: Option<&FederationConfig>) -> Result<Prepared, FederationError> {
        let state_dir = config.map(|config| config.state_dir.clone());
        let mut prepared = Prepared { state_dir, endpoint: None, clients: Vec::new() };
        let Some(config) = config else { return Ok(prepared) };
        let own = self.0.shown.borrow().as_ref().map(|shown| shown.bundle.trust_domain().clone());
        for domain in &config.domains {
            if own.as_ref() == Some(&domain.trust_domain) {
                return Err(FederationError::Own(domain.trust_domain.clone()));
            }
            let client = Client::open(domain.clone(), &config.state_dir, self.0.bundles.clone())?;
            prepared.clients.push(client);
        }
        if let Some(endpoint) = &config.endpoint {
            prepared.endpoint = Some(self.prepare_endpoint(endpoint).await?);
        }
        Ok(prepared)
    }

    async fn prepare_endpoint(
        &self,
        config: &EndpointConfig,
    ) -> Result<(Option<(TcpListener, SocketAddr)>, Serving), FederationError> {
        let web = match &config.proof {
            EndpointProof::Web { certificate, key } => Some(Arc::new(web::server(certificate, key)?)),
            EndpointProof::Spiffe => None,
        };
        let serving = Serving { config: config.clone(), web };
        if self.running().endpoint.as_ref().is_some_and(|running| running.asked() == config.listen) {
            return Ok((None, serving));
        }
        let fail = |source| FederationError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(fail)?;
        let bound = listener.local_addr().map_err(fail)?;
        Ok((Some((listener, bound)), serving))
    }

    /// Puts it in force, and says what that changed.
    pub fn install(&self, prepared: Prepared) -> Vec<String> {
        let mut running = self.running();
        let mut changes = Vec::new();
        match prepared.endpoint {
            Some((Some((listener, bound)), serving)) => {
                let shown = self.0.shown.subscribe();
                let (shutdown, tasks) = (&self.0.shutdown, &self.0.tasks);
                running.endpoint = Some(Endpoint::start(listener, bound, serving, shown, shutdown, tasks));
                changes.push(format!("federation: serving our bundle on {bound}"));
            }
            Some((None, serving)) => {
                if let Some(endpoint) = &running.endpoint {
                    endpoint.replace(serving);
                }
            }
            None if running.endpoint.take().is_some() => {
                changes.push("federation: our bundle is no longer served".into());
            }
            None => {}
        }
        changes.extend(self.install_clients(&mut running, prepared.clients));
        if let Some(directory) = prepared.state_dir {
            let files: Vec<PathBuf> = running.clients.iter().map(|(_, file, _)| file.clone()).collect();
            store::prune(&directory, &files);
        }
        changes
    }

    /// A client whose settings and bootstrap bundle did not change is left alone.
    fn install_clients(&self, running: &mut Running, wanted: Vec<Client>) -> Vec<String> {
        let mut changes = Vec::new();
        running.clients.retain(|(config, file, stop)| {
            let same = wanted.iter().any(|client| client.config() == config && client.file() == file);
            if !same {
                stop.cancel();
                self.0.bundles.remove(&config.trust_domain);
                changes.push(format!("federation: {} is let go", config.trust_domain));
            }
            same
        });
        for client in wanted {
            if running.clients.iter().any(|(config, ..)| config == client.config()) {
                continue;
            }
            let stop = self.0.shutdown.child_token();
            changes.push(format!(
                "federation: {} from {}",
                client.config().trust_domain,
                client.config().url
            ));
            running.clients.push((client.config().clone(), client.file().clone(), stop.clone()));
            self.0.tasks.spawn(client.until(stop).run());
        }
        changes
    }

    /// As if it had been fetched.
    #[cfg(test)]
    pub(super) fn put(&self, bundle: &Bundle) {
        self.0.bundles.set(bundle.trust_domain(), Some(bundle), &CancellationToken::new());
    }

    /// Where our bundle is served.
    pub fn listens(&self) -> Option<SocketAddr> {
        self.running().endpoint.as_ref().map(Endpoint::bound)
    }

    /// What the endpoint shows from now on.
    pub(super) fn show(&self, own: Option<&Arc<Own>>, trust: Option<&Trust>) {
        let shown = own.zip(trust).map(|(own, trust)| {
            Arc::new(Shown { bundle: trust.own().clone(), chain: own.chain.clone(), key: own.key.clone() })
        });
        self.0.shown.send_replace(shown);
    }

    /// The same with the bundles of other domains that are there now, and no others.
    pub(super) fn complete(&self, trust: &Arc<Trust>) -> Arc<Trust> {
        let complete = trust.with_federated(self.0.bundles.0.borrow().values().cloned());
        if complete == **trust { trust.clone() } else { Arc::new(complete) }
    }

    /// Word of each change of the bundles that [`Self::complete`] puts in.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<BTreeMap<TrustDomain, Bundle>>> {
        self.0.bundles.0.subscribe()
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        // Each change is complete before anything can panic.
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
