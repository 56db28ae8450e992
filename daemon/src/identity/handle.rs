//! The subsystem's state and the one door to it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use isthmus_pki::facts::utc;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::unix_socket;

use super::{
    audit::{self, Log},
    certificates::{self, CertificateInfo, Kind, Ledger},
    config::{Config, IssuerConfig, WorkloadApiConfig},
    issuing::{self, Issuer, SiteCa},
    material::{self, Material},
    registration::{self, Registry},
    trust::Trust,
    workload::{Server, Supply},
};

/// Why the subsystem can't start, or a change can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `[identity]`
    #[error(transparent)]
    Material(#[from] material::Error),
    /// `[issuer]`
    #[error(transparent)]
    Issuer(#[from] issuing::Error),
    /// `[audit]`
    #[error(transparent)]
    Audit(#[from] audit::Error),
    /// A `[[workload_api.entry]]`.
    #[error(transparent)]
    Entry(#[from] registration::Error),
    /// The Workload API's socket.
    #[error(transparent)]
    Socket(#[from] unix_socket::Error),
    /// An issuer without a trust bundle to check it against.
    #[error("[issuer] needs [identity]: its trust_bundle is what the site CA is checked against")]
    IssuerAlone,
    /// A Workload API without an issuer.
    #[error(
        "[workload_api] needs [identity] and [issuer] on this node: without a site CA it has nothing to hand out"
    )]
    WorkloadApiAlone,
}

/// What was loaded and checked, all of it or nothing.
#[derive(Default)]
struct Loaded {
    material: Option<Material>,
    issuer: Option<Arc<Issuer>>,
    supply: Option<Supply>,
}

/// The running subsystem. Clones share it.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    node: Option<(String, String)>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    ledger: Ledger,
    loaded: Mutex<Loaded>,
    supply: watch::Sender<Option<Supply>>,
    /// Held through all of `apply`, so that two reloads can't mix.
    server: AsyncMutex<Option<Server>>,
}

/// Loads and checks everything, binds the Workload API if it is configured, and serves until `shutdown`. `node` is site and name
/// of `[node]`; it is what the SVID and the site CA are held against.
pub async fn start(
    config: Option<Config>,
    issuer: Option<IssuerConfig>,
    workload_api: Option<WorkloadApiConfig>,
    node: Option<(String, String)>,
    shutdown: CancellationToken,
) -> Result<Handle, Error> {
    let handle = Handle(Arc::new(Inner {
        node,
        shutdown,
        tasks: TaskTracker::new(),
        ledger: Ledger::default(),
        loaded: Mutex::default(),
        supply: watch::Sender::new(None),
        server: AsyncMutex::new(None),
    }));
    handle.apply(config, issuer, workload_api).await?;
    Ok(handle)
}

/// Loads and checks every file as [`start`] would, and keeps nothing.
pub fn check(
    config: Option<&Config>,
    issuer: Option<&IssuerConfig>,
    node: Option<(&str, &str)>,
    now: SystemTime,
) -> Result<(), Error> {
    load_files(config, issuer, node, now).map(drop)
}

fn load_files(
    config: Option<&Config>,
    issuer: Option<&IssuerConfig>,
    node: Option<(&str, &str)>,
    now: SystemTime,
) -> Result<(Option<Material>, Option<SiteCa>), Error> {
    let material = config.map(|config| Material::load(config, node, now)).transpose()?;
    let issuer = match (issuer, &material) {
        (None, _) => None,
        (Some(_), None) => return Err(Error::IssuerAlone),
        (Some(config), Some(own)) => {
            Some(SiteCa::load(config, &own.bundle, node.map(|(site, _)| site), now)?)
        }
    };
    Ok((material, issuer))
}

impl Handle {
    /// Reads the files again, validates all, then applies what differs and says what that was. On an error nothing is applied.
    pub async fn apply(
        &self,
        config: Option<Config>,
        issuer: Option<IssuerConfig>,
        workload_api: Option<WorkloadApiConfig>,
    ) -> Result<Vec<String>, Error> {
        let mut server = self.0.server.lock().await;
        let loaded = self.load(config.as_ref(), issuer.as_ref(), workload_api.as_ref(), SystemTime::now())?;
        let socket = workload_api.map(|api| api.socket);
        let mut changes = Vec::new();
        if server.as_ref().map(Server::path) != socket.as_ref() {
            // The new one is bound before the old one goes: if that fails, all stays.
            let next = match socket {
                Some(path) => Some(self.serve(path).await?),
                None => None,
            };
            changes.push(match &next {
                Some(next) => format!("workload_api: serving {}", next.path().display()),
                None => "workload_api: stopped".into(),
            });
            *server = next;
        }
        changes.extend(self.install(loaded));
        Ok(changes)
    }

    fn load(
        &self,
        config: Option<&Config>,
        issuer: Option<&IssuerConfig>,
        workload_api: Option<&WorkloadApiConfig>,
        now: SystemTime,
    ) -> Result<Loaded, Error> {
        let node = self.0.node.as_ref().map(|(site, name)| (site.as_str(), name.as_str()));
        let (material, site_ca) = load_files(config, issuer, node, now)?;
        let issuer = match (issuer, site_ca) {
            (Some(config), Some(site_ca)) => Some(Issuer::new(site_ca, config, self.log(config, now)?)),
            _ => None,
        };
        let supply = match (workload_api, &issuer, &material) {
            (None, ..) => None,
            (Some(api), Some(issuer), Some(own)) => Some(supply(api, issuer, own)?),
            _ => return Err(Error::WorkloadApiAlone),
        };
        Ok(Loaded { material, issuer, supply })
    }

    /// The open log if it is that of the configuration: a file has one writer.
    fn log(&self, config: &IssuerConfig, now: SystemTime) -> Result<Arc<Log>, audit::Error> {
        let current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match current.issuer.as_ref().map(|issuer| issuer.audit()) {
            Some(log) if log.path() == config.audit.file => Ok(log.clone()),
            _ => Log::open(&config.audit, now),
        }
    }

    async fn serve(&self, path: std::path::PathBuf) -> Result<Server, unix_socket::Error> {
        let inner = &self.0;
        Server::start(path, inner.supply.subscribe(), inner.ledger.clone(), &inner.shutdown, &inner.tasks)
            .await
    }

    fn install(&self, loaded: Loaded) -> Vec<String> {
        let mut current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = differences(&current, &loaded);
        if let Some(issuer) = &loaded.issuer {
            issuer.begin(current.issuer.as_deref());
        }
        self.0.supply.send_replace(loaded.supply.clone());
        let before = std::mem::replace(&mut *current, loaded).certificates();
        let after = current.certificates();
        certificates::export(before.iter().chain(&after), &after);
        changes
    }

    /// Every certificate that the node holds, trusts, or has issued to a workload whose stream is open.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        let mut all = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).certificates();
        all.extend(self.0.ledger.list());
        all
    }

    /// The node's own ID.
    pub fn spiffe_id(&self) -> Option<String> {
        self.material().map(|own| own.id.to_string())
    }

    /// The node's own identity, for its TLS connections.
    pub fn material(&self) -> Option<Material> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).material.clone()
    }

    /// One line for `isthmusctl status`; the flag is false if somebody should look.
    pub fn summary(&self) -> (bool, String) {
        let certificates = self.certificates();
        let Some(own) = certificates.iter().find(|c| c.kind == Kind::NodeSvid) else {
            return (true, "no identity configured".into());
        };
        if let Some(trouble) = self.audit_trouble() {
            return (false, trouble);
        }
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let issued = certificates.iter().filter(|c| c.kind == Kind::WorkloadSvid).count();
        let first = certificates.iter().min_by_key(|c| c.not_after).unwrap_or(own);
        if first.not_after < now {
            return (
                false,
                format!(
                    "the {} {} expired at {}",
                    first.kind.as_str(),
                    first.spiffe_id,
                    utc(first.not_after)
                ),
            );
        }
        (true, format!("{} until {}, {issued} workload SVIDs in use", own.spiffe_id, utc(own.not_after)))
    }

    fn audit_trouble(&self) -> Option<String> {
        let loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.issuer.as_ref().and_then(|issuer| issuer.audit().trouble())
    }

    /// Returns once everything has ended after the shutdown token: streams are closed and the socket file is gone.
    pub async fn stopped(&self) {
        self.0.shutdown.cancelled().await;
        *self.0.server.lock().await = None;
        self.0.tasks.close();
        self.0.tasks.wait().await;
        // The last one to hold the audit log closes it.
        self.0.supply.send_replace(None);
        *self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Loaded::default();
    }
}

fn supply(
    api: &WorkloadApiConfig,
    issuer: &Arc<Issuer>,
    own: &Material,
) -> Result<Supply, registration::Error> {
    let registry = Registry::new(issuer.trust_domain().clone(), api.entries.clone())?;
    let trust = Arc::new(Trust::new(own.bundle.clone()));
    Ok(Supply { trust, issuer: issuer.clone(), registry: Arc::new(registry) })
}

impl Loaded {
    /// The site CA may be in the node's chain and in `[issuer]`: it is listed once.
    fn certificates(&self) -> Vec<CertificateInfo> {
        let mut all = self.material.as_ref().map(|own| own.certificates().to_vec()).unwrap_or_default();
        let issuer = self.issuer.as_ref().map(|issuer| issuer.certificate());
        if let Some(ca) = issuer.filter(|ca| all.iter().all(|known| known.sha256 != ca.sha256)) {
            all.push(ca.clone());
        }
        all
    }
}

fn differences(old: &Loaded, new: &Loaded) -> Vec<String> {
    let mut changes = Vec::new();
    let (old_list, new_list) = (old.certificates(), new.certificates());
    for certificate in new_list.iter().filter(|c| !old_list.contains(c)) {
        let CertificateInfo { kind, spiffe_id, not_after, .. } = certificate;
        changes.push(format!("identity: {} {spiffe_id}, valid until {}", kind.as_str(), utc(*not_after)));
    }
    for certificate in old_list.iter().filter(|c| !new_list.contains(c)) {
        changes.push(format!(
            "identity: {} with serial {} is no longer used",
            certificate.kind.as_str(),
            certificate.serial
        ));
    }
    let registry = |loaded: &Loaded| loaded.supply.as_ref().map(|supply| supply.registry.clone());
    if registry(old) != registry(new) {
        changes.push(format!("workload_api: {} entries", registry(new).map_or(0, |registry| registry.len())));
    }
    changes
}
