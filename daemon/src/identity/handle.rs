//! The subsystem's state and the one door to it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use isthmus_pki::{KeyHash, facts::utc, rotation::Report};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::unix_socket;

use super::{
    audit::{self, Log},
    certificates::{self, CertificateInfo, Kind, Ledger},
    config::{Config, IssuerConfig, WorkloadApiConfig},
    files,
    issuing::{self, Issuer, SiteCa},
    material::{self, Material},
    registration::{self, Registry},
    rotation::{self, Inputs, Outcome, ReissueOrder, Rotation},
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
    /// Charter, site CAs that change hands, taints.
    #[error(transparent)]
    Rotation(#[from] rotation::Error),
    /// A rotation on a node that has nothing to rotate.
    #[error("this node has no [identity], so there is nothing to rotate")]
    NoIdentity,
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

/// `[identity]`, `[issuer]`, `[workload_api]`.
type Sections = (Option<Config>, Option<IssuerConfig>, Option<WorkloadApiConfig>);

struct Inner {
    node: Option<(String, String)>,
    /// `None` without `[identity]`.
    rotation: Option<Rotation>,
    /// What was applied last: a rotation loads it again.
    sections: Mutex<Sections>,
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
    let rotation = config.as_ref().map(|config| Rotation::open(&config.rotation.dir)).transpose()?;
    let handle = Handle(Arc::new(Inner {
        node,
        rotation: rotation.clone(),
        sections: Mutex::default(),
        shutdown,
        tasks: TaskTracker::new(),
        ledger: Ledger::default(),
        loaded: Mutex::default(),
        supply: watch::Sender::new(None),
        server: AsyncMutex::new(None),
    }));
    handle.apply(config, issuer, workload_api).await?;
    if let Some(rotation) = rotation {
        let shutdown = handle.0.shutdown.clone();
        handle.0.tasks.spawn(rotation::run(handle.clone(), rotation, shutdown));
    }
    Ok(handle)
}

/// Loads and checks every file as [`start`] would, and keeps nothing.
pub fn check(
    config: Option<&Config>,
    issuer: Option<&IssuerConfig>,
    node: Option<(&str, &str)>,
    now: SystemTime,
) -> Result<(), Error> {
    let rotation = config.map(|config| Rotation::open(&config.rotation.dir)).transpose()?;
    load_files(rotation.as_ref(), config, issuer, node, now, false).map(drop)
}

/// What the files come to, under what rotations have put in force.
#[derive(Default)]
struct Files {
    material: Option<Material>,
    /// With where it was read from.
    site_ca: Option<(SiteCa, IssuerConfig)>,
    trust: Option<Arc<Trust>>,
    reissue: ReissueOrder,
}

fn load_files(
    rotation: Option<&Rotation>,
    config: Option<&Config>,
    issuer: Option<&IssuerConfig>,
    node: Option<(&str, &str)>,
    now: SystemTime,
    keep: bool,
) -> Result<Files, Error> {
    let (Some(config), Some(rotation)) = (config, rotation) else {
        return if issuer.is_some() { Err(Error::IssuerAlone) } else { Ok(Files::default()) };
    };
    let site = node.map(|(site, _)| site);
    let inputs = Inputs {
        bundle: &files::bundle(&config.trust_bundle).map_err(material::Error::from)?,
        charter: config.rotation.charter.as_deref(),
        longest_leaf: config.rotation.longest_leaf,
        issuer,
        site,
    };
    let in_force = rotation.reconcile(&inputs, now, false)?;
    let material = Material::load_under(config, in_force.bundle.clone(), node, now)?;
    let trust = Arc::new(Trust::under(in_force.bundle, in_force.policy, in_force.crls));
    let site_ca = match in_force.issuer {
        Some(issuer) => Some((load_site_ca(&issuer, &trust, site, now)?, issuer)),
        None => None,
    };
    if keep {
        // Only now that all of it fits together.
        rotation.reconcile(&inputs, now, true)?;
    }
    Ok(Files { material: Some(material), site_ca, trust: Some(trust), reissue: in_force.reissue })
}

/// A CA that our own verifier would refuse issues nothing.
fn load_site_ca(
    issuer: &IssuerConfig,
    trust: &Trust,
    site: Option<&str>,
    now: SystemTime,
) -> Result<SiteCa, Error> {
    let site_ca = SiteCa::load(issuer, trust.own(), site, now)?;
    let believed = trust.store().policy().check_ca(site_ca.facts());
    believed.map_err(|reason| rotation::Error::NotBelieved { place: issuer.certificate.clone(), reason })?;
    Ok(site_ca)
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
        let sections = (config.clone(), issuer.clone(), workload_api.clone());
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
        *self.sections() = sections;
        Ok(changes)
    }

    /// Plans a rotation's step; unless `dry_run`, carries it out and loads what is in force then.
    pub async fn rotate(&self, request: &rotation::Request, dry_run: bool) -> Result<Outcome, Error> {
        let _server = self.0.server.lock().await;
        let rotation = self.0.rotation.clone().ok_or(Error::NoIdentity)?;
        let request = request.clone();
        // Keys are made and files synced.
        let order = move || rotation.order(&request, dry_run, SystemTime::now());
        let outcome = tokio::task::spawn_blocking(order).await.map_err(|_| Error::NoIdentity)??;
        if outcome.applied {
            self.load_again()?;
        }
        Ok(outcome)
    }

    /// Takes what another node says the fabric trusts, as far as it proves itself.
    pub async fn hear(&self, heard: rotation::Heard) -> Result<(), Error> {
        let _server = self.0.server.lock().await;
        let rotation = self.0.rotation.clone().ok_or(Error::NoIdentity)?;
        let hear = move || rotation.hear(&heard, SystemTime::now());
        let news = tokio::task::spawn_blocking(hear).await.map_err(|_| Error::NoIdentity)?;
        if news { self.load_again() } else { Ok(()) }
    }

    /// The sections that were applied last, under what is in force now.
    fn load_again(&self) -> Result<(), Error> {
        let (config, issuer, workload_api) = self.sections().clone();
        let loaded = self.load(config.as_ref(), issuer.as_ref(), workload_api.as_ref(), SystemTime::now())?;
        for change in self.install(loaded) {
            tracing::info!("{change}");
        }
        Ok(())
    }

    fn sections(&self) -> MutexGuard<'_, Sections> {
        self.0.sections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine of rotations; `None` without `[identity]`.
    pub fn rotation(&self) -> Option<&Rotation> {
        self.0.rotation.as_ref()
    }

    fn load(
        &self,
        config: Option<&Config>,
        issuer: Option<&IssuerConfig>,
        workload_api: Option<&WorkloadApiConfig>,
        now: SystemTime,
    ) -> Result<Loaded, Error> {
        let node = self.0.node.as_ref().map(|(site, name)| (site.as_str(), name.as_str()));
        let may_issue = issuer.is_some();
        let files = load_files(self.0.rotation.as_ref(), config, issuer, node, now, true)?;
        let reissue = files.reissue.capped(self.0.ledger.list().len());
        let issuer = match files.site_ca {
            Some((site_ca, config)) => Some(Issuer::new(site_ca, &config, self.log(&config, now)?)),
            None => None,
        };
        let supply = match (workload_api, &issuer, &files.trust) {
            (None, ..) => None,
            (Some(api), Some(issuer), Some(trust)) => Some(supply(api, issuer, trust, reissue)?),
            // A rotation has stopped the issuing: callers are told to come again.
            (Some(_), None, Some(_)) if may_issue => None,
            _ => return Err(Error::WorkloadApiAlone),
        };
        self.report(files.material.as_ref(), now);
        Ok(Loaded { material: files.material, issuer, supply })
    }

    /// This node is of the fleet like any other.
    fn report(&self, material: Option<&Material>, now: SystemTime) {
        let (Some(rotation), Some((_, name)), Some(own)) = (&self.0.rotation, &self.0.node, material) else {
            return;
        };
        let facts = |index: usize| own.chain.get(index).and_then(|der| isthmus_pki::Facts::parse(der).ok());
        let state = rotation.state();
        let report = Report {
            charter_sequence: state.charter_sequence(),
            bundle_sequence: state.bundle_sequence,
            svid_serial: facts(0).map(|leaf| leaf.serial).unwrap_or_default(),
            svid_issuer: facts(1).map(|ca| KeyHash::of(&ca)),
            svid_not_after: facts(0).map_or(0, |leaf| leaf.not_after),
            version: env!("CARGO_PKG_VERSION").into(),
            at: time::OffsetDateTime::from(now).unix_timestamp(),
        };
        rotation.report(name, report);
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
    trust: &Arc<Trust>,
    reissue: ReissueOrder,
) -> Result<Supply, registration::Error> {
    let registry = Registry::new(issuer.trust_domain().clone(), api.entries.clone())?;
    Ok(Supply { trust: trust.clone(), issuer: issuer.clone(), registry: Arc::new(registry), reissue })
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
