//! The subsystem's state and the one door to it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use isthmus_pki::facts::utc;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::unix_socket;

use super::{
    attest::Attestor,
    audit::{self, Log},
    certificates::{self, CertificateInfo, Kind, Ledger},
    config::{Config, IssuerConfig, NodeRules, WorkloadApiConfig},
    enroll::{self, Fleet, Remote, Tokens, TrustState, agent},
    issuing::{self, Issuer, SiteCa},
    material::{self, Material},
    own::Own,
    publishing,
    registration::{self, Registry},
    standing::{Live, Standing},
    supplier::Supplier,
    trust::Trust,
    workload::{Server, Settings, Supply},
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
    /// The join tokens of an issuer.
    #[error(transparent)]
    Tokens(#[from] enroll::TokenError),
    /// The port of an issuer.
    #[error(transparent)]
    Listen(#[from] enroll::ListenError),
    /// An issuer without a trust bundle to check it against.
    #[error("[issuer] needs [identity]: its trust_bundle is what the site CA is checked against")]
    IssuerAlone,
    /// A Workload API without an issuer.
    #[error(
        "[workload_api] needs [issuer] on this node, or issuers in [identity]: else it has nothing to hand out"
    )]
    WorkloadApiAlone,
}

/// What was loaded and checked, all of it or nothing.
#[derive(Clone, Default)]
struct Loaded {
    config: Option<Arc<Config>>,
    material: Option<Material>,
    issuer: Option<Arc<Issuer>>,
    rules: Arc<NodeRules>,
    /// Asks other nodes for the workloads of this one; goes on over reloads with what it has in reserve.
    remote: Option<Arc<Remote>>,
    supply: Option<Supply>,
}

/// How the subsystem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// All is well.
    Well,
    /// It works, and somebody should look before it does not.
    Degraded,
    /// The node has no identity that a peer would believe.
    Failed,
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
    standing: watch::Sender<Option<Standing>>,
    renewal: watch::Sender<agent::View>,
    heard: watch::Sender<Option<Arc<TrustState>>>,
    tokens: Option<Tokens>,
    fleet: Fleet,
    /// Held through all of `apply` and `adopt`, so that two changes can't mix.
    servers: AsyncMutex<Servers>,
}

#[derive(Default)]
struct Servers {
    workload: Option<Server>,
    issuance: Option<enroll::Server>,
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
    let tokens = config.as_ref().map(|config| enroll::state::tokens_path(&config.state_dir));
    let handle = Handle(Arc::new(Inner {
        node,
        shutdown,
        tasks: TaskTracker::new(),
        ledger: Ledger::default(),
        loaded: Mutex::default(),
        supply: watch::Sender::new(None),
        standing: watch::Sender::new(None),
        renewal: watch::Sender::default(),
        heard: watch::Sender::new(None),
        tokens: tokens.map(|path| Tokens::open(&path)).transpose()?,
        fleet: Fleet::default(),
        servers: AsyncMutex::default(),
    }));
    handle.apply(config, issuer, workload_api).await?;
    handle.spawn_agents();
    handle.0.tasks.spawn(publishing::run(handle.clone()));
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
        let mut servers = self.0.servers.lock().await;
        let loaded = self.load(config.as_ref(), issuer.as_ref(), workload_api.as_ref(), SystemTime::now())?;
        let (socket, settings) = workload_api.map(|api| (api.socket, api.settings)).unzip();
        let settings = settings.unwrap_or_default();
        let listen = issuer.and_then(|issuer| issuer.listen);
        let mut changes = Vec::new();
        // First what can fail without harm: nothing of it answers before there is something to answer from.
        let issuance = self.issuance(&servers, listen).await?;
        let server = &mut servers.workload;
        if server.as_ref().map(Server::path) != socket.as_ref() {
            // The new one is bound before the old one goes: if that fails, all stays.
            let next = match socket {
                Some(path) => Some(self.serve(path, settings).await?),
                None => None,
            };
            changes.push(match &next {
                Some(next) => format!("workload_api: serving {}", next.path().display()),
                None => "workload_api: stopped".into(),
            });
            *server = next;
        } else if server.as_ref().is_some_and(|server| server.configure(&settings)) {
            changes.push("workload_api: other limits, or other names for Envoy's secrets".into());
        }
        if let Some(next) = issuance {
            changes.push(match &next {
                Some(next) => format!("issuer: serving {}", next.bound()),
                None => "issuer: no longer serving".into(),
            });
            servers.issuance = next;
        }
        changes.extend(self.install(loaded));
        Ok(changes)
    }

    /// The issuance service to have from now on; outer `None`: the one that is there.
    async fn issuance(
        &self,
        servers: &Servers,
        listen: Option<SocketAddr>,
    ) -> Result<Option<Option<enroll::Server>>, Error> {
        let inner = &self.0;
        if servers.issuance.as_ref().map(enroll::Server::asked) == listen {
            return Ok(None);
        }
        let (Some(listen), Some(tokens)) = (listen, inner.tokens.clone()) else { return Ok(Some(None)) };
        let (live, fleet) = (self.live(), inner.fleet.clone());
        let server =
            enroll::Server::start(listen, live, tokens, fleet, &inner.shutdown, &inner.tasks).await?;
        Ok(Some(Some(server)))
    }

    fn spawn_agents(&self) {
        let inner = &self.0;
        let (view, heard) = (inner.renewal.clone(), inner.heard.clone());
        inner.tasks.spawn(agent::run(self.clone(), view, inner.shutdown.clone()));
        inner.tasks.spawn(enroll::sync::run(self.live(), heard, inner.shutdown.clone()));
        inner.tasks.spawn(self.clone().follow_supply());
    }

    /// Whoever changes what workloads are told to trust changes what the node's own connections trust.
    async fn follow_supply(self) {
        let mut supply = self.0.supply.subscribe();
        loop {
            let trust = supply.borrow_and_update().as_ref().map(|supply| supply.trust.clone());
            if let Some(trust) = trust {
                self.0.standing.send_if_modified(|standing| trusts(standing, &trust));
            }
            tokio::select! {
                // We hold the sender: this cannot fail.
                _ = supply.changed() => {}
                () = self.0.shutdown.cancelled() => return,
            }
        }
    }

    /// Takes another SVID of ours into use: for new connections at once, and for those there are until they end.
    pub(super) async fn adopt(&self, own: Arc<Own>) {
        // A reload under way reads the file from before or from now, and is followed by this.
        let _servers = self.0.servers.lock().await;
        let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        loaded.material = loaded.material.map(|material| material.with(own));
        for change in self.install(loaded) {
            tracing::info!("{change}");
        }
    }

    /// What the node is and believes now, and word of each change.
    pub fn live(&self) -> Live {
        self.0.standing.subscribe()
    }

    /// The join tokens of this issuer and the site that they are for; `None`: this node is no issuer.
    pub fn tokens(&self) -> Option<(Tokens, String)> {
        let standing = self.0.standing.borrow();
        let standing = standing.as_ref().filter(|standing| standing.issuer.is_some())?;
        self.0.tokens.clone().map(|tokens| (tokens, standing.node.0.clone()))
    }

    /// The nodes that report here, and the state that they are told.
    pub fn fleet(&self) -> &Fleet {
        &self.0.fleet
    }

    /// What an issuer said last that the fabric trusts; `None`: none has answered yet.
    pub fn heard(&self) -> watch::Receiver<Option<Arc<TrustState>>> {
        self.0.heard.subscribe()
    }

    /// Where the issuance service listens.
    pub async fn listens(&self) -> Option<SocketAddr> {
        self.0.servers.lock().await.issuance.as_ref().map(enroll::Server::bound)
    }

    fn load(
        &self,
        config: Option<&Config>,
        issuer_config: Option<&IssuerConfig>,
        workload_api: Option<&WorkloadApiConfig>,
        now: SystemTime,
    ) -> Result<Loaded, Error> {
        let node = self.0.node.as_ref().map(|(site, name)| (site.as_str(), name.as_str()));
        let (material, site_ca) = load_files(config, issuer_config, node, now)?;
        let material = material.map(|material| self.same_own(material));
        let issuer = match (issuer_config, site_ca) {
            (Some(config), Some(site_ca)) => Some(self.new_issuer(config, site_ca, now)?),
            _ => None,
        };
        let remote = config.zip(material.as_ref()).and_then(|(config, own)| self.remote(config, own));
        let here = issuer.clone().map(Supplier::Local);
        let supplier = here.or_else(|| remote.clone().map(Supplier::Remote));
        let supply = match (workload_api, supplier, &material) {
            (None, ..) => None,
            (Some(api), Some(supplier), Some(own)) => {
                let before = self.0.supply.borrow().as_ref().map(|supply| supply.attestor.clone());
                Some(supply(api, supplier, own, before, now)?)
            }
            _ => return Err(Error::WorkloadApiAlone),
        };
        let rules = issuer_config.map(|issuer| issuer.nodes.clone()).unwrap_or_default();
        let config = config.cloned().map(Arc::new);
        Ok(Loaded { config, material, issuer, rules: Arc::new(rules), remote, supply })
    }

    /// Who asks other nodes: the one that there is, if it serves the same trust domain.
    fn remote(&self, config: &Config, own: &Material) -> Option<Arc<Remote>> {
        if config.issuers.is_empty() {
            return None;
        }
        let domain = own.bundle.trust_domain();
        let current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).remote.clone();
        let current = current.filter(|remote| remote.trust_domain() == domain);
        Some(current.unwrap_or_else(|| Remote::new(self.live(), domain.clone())))
    }

    /// The SVID that is in use, if the files hold the same: so that its renewal goes on where it is.
    fn same_own(&self, material: Material) -> Material {
        let current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match (current.own(), &material.own) {
            (Some(old), Some(new)) if old.chain == new.chain => material.with(old.clone()),
            _ => material,
        }
    }

    fn new_issuer(&self, config: &IssuerConfig, ca: SiteCa, now: SystemTime) -> Result<Arc<Issuer>, Error> {
        let log = self.log(config, now)?;
        let current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).issuer.clone();
        Ok(Issuer::after(current.as_deref(), ca, config, log)?)
    }

    /// The open log if it is that of the configuration: a file has one writer.
    fn log(&self, config: &IssuerConfig, now: SystemTime) -> Result<Arc<Log>, audit::Error> {
        let current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match current.issuer.as_ref().map(|issuer| issuer.audit()) {
            Some(log) if log.path() == config.audit.file => Ok(log.clone()),
            _ => Log::open(&config.audit, now),
        }
    }

    async fn serve(
        &self,
        path: std::path::PathBuf,
        settings: Settings,
    ) -> Result<Server, unix_socket::Error> {
        let inner = &self.0;
        let (supply, ledger) = (inner.supply.subscribe(), inner.ledger.clone());
        Server::start(path, settings, supply, ledger, &inner.shutdown, &inner.tasks).await
    }

    fn install(&self, loaded: Loaded) -> Vec<String> {
        let mut current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = differences(&current, &loaded);
        if let Some(issuer) = &loaded.issuer {
            issuer.begin(current.issuer.as_deref());
        }
        self.0.supply.send_replace(loaded.supply.clone());
        self.0.standing.send_replace(loaded.standing(self.0.node.clone()));
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
        self.material().and_then(|material| material.own).map(|own| own.id.to_string())
    }

    /// The node's own identity, for its TLS connections.
    pub fn material(&self) -> Option<Material> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).material.clone()
    }

    /// One line for `isthmusctl status`.
    pub fn summary(&self) -> (Condition, String) {
        let Some(standing) = self.0.standing.borrow().clone() else {
            return (Condition::Well, "no identity configured".into());
        };
        let (renewal, now) = (self.0.renewal.borrow().clone(), SystemTime::now());
        let failed = |what: String| match renewal.last_error.as_str() {
            "" => (Condition::Failed, what),
            error => (Condition::Failed, format!("{what}; {error}")),
        };
        let Some(own) = &standing.own else { return failed("this node has no SVID yet".into()) };
        if let Err(reason) = own.believed(standing.trust.store(), now) {
            return failed(format!("the SVID of {} is not believed: {reason}", own.id));
        }
        if let Some(trouble) = self.audit_trouble() {
            return (Condition::Degraded, trouble);
        }
        let until = utc(own.life.not_after);
        if renewal.overdue {
            let what = format!("{} until {until}, and it can't be renewed: {}", own.id, renewal.last_error);
            return (Condition::Degraded, what);
        }
        self.summary_of_all(own, &until, now)
    }

    fn summary_of_all(&self, own: &Own, until: &str, now: SystemTime) -> (Condition, String) {
        let certificates = self.certificates();
        let now = time::OffsetDateTime::from(now).unix_timestamp();
        let issued = certificates.iter().filter(|c| c.kind == Kind::WorkloadSvid).count();
        match certificates.iter().min_by_key(|c| c.not_after) {
            Some(first) if first.not_after < now => {
                let what = format!(
                    "the {} {} expired at {}",
                    first.kind.as_str(),
                    first.spiffe_id,
                    utc(first.not_after)
                );
                (Condition::Failed, what)
            }
            _ => {
                let fine = format!("{} until {until}, {issued} workload SVIDs in use", own.id);
                match self.0.supply.borrow().as_ref().and_then(|supply| supply.attestor.trouble()) {
                    Some(trouble) => {
                        (Condition::Degraded, format!("{fine}; pods can't be attested: {trouble}"))
                    }
                    None => (Condition::Well, fine),
                }
            }
        }
    }

    /// Brings the keys for tokens up to date, and supplies the bundle with them where it differs. When to do so again.
    pub(super) async fn republish(&self, now: SystemTime) -> Option<SystemTime> {
        // Not while a reload is under way: it publishes by itself.
        let _servers = self.0.servers.lock().await;
        let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let (issuer, own) = (loaded.issuer.clone()?, loaded.material.clone()?);
        // Also without workloads here: other nodes ask for tokens on behalf of theirs.
        let published = issuer.publish(&own.bundle, now);
        match (published, loaded.supply.as_mut()) {
            (Ok(bundle), Some(supply)) if bundle != *supply.trust.own() => {
                supply.trust = Arc::new(supply.trust.with_own(bundle));
                self.0.supply.send_replace(Some(supply.clone()));
            }
            (Ok(_), _) => {}
            (Err(error), _) => {
                tracing::warn!(%error, "the bundle can't be brought up to date; trying again in a minute")
            }
        }
        Some(issuer.publish_due(now))
    }

    pub(super) fn shutdown(&self) -> &CancellationToken {
        &self.0.shutdown
    }

    fn audit_trouble(&self) -> Option<String> {
        let loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.issuer.as_ref().and_then(|issuer| issuer.audit().trouble())
    }

    /// Returns once everything has ended after the shutdown token: streams are closed and the socket file is gone.
    pub async fn stopped(&self) {
        self.0.shutdown.cancelled().await;
        *self.0.servers.lock().await = Servers::default();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        // The last one to hold the audit log closes it.
        self.0.supply.send_replace(None);
        self.0.standing.send_replace(None);
        *self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Loaded::default();
    }
}

/// True if that is news.
fn trusts(standing: &mut Option<Standing>, trust: &Arc<Trust>) -> bool {
    let news = standing.as_mut().filter(|standing| !Arc::ptr_eq(&standing.trust, trust));
    news.map(|standing| standing.trust = trust.clone()).is_some()
}

fn supply(
    api: &WorkloadApiConfig,
    issuer: Supplier,
    own: &Material,
    before: Option<Arc<Attestor>>,
    now: SystemTime,
) -> Result<Supply, Error> {
    let registry = Registry::new(issuer.trust_domain().clone(), api.entries.clone())?;
    let trust = Arc::new(Trust::new(issuer.publish(&own.bundle, now)?));
    let (wants, kubernetes) = (registry.wants(), api.kubernetes.clone());
    // One that gathers the same goes on: it knows hashes and pods, and callers keep their facts.
    let attestor = before.filter(|before| before.serves(wants, kubernetes.as_ref()));
    let attestor = attestor.unwrap_or_else(|| Arc::new(Attestor::new(wants, kubernetes)));
    Ok(Supply { trust, issuer, registry: Arc::new(registry), attestor })
}

impl Loaded {
    fn standing(&self, node: Option<(String, String)>) -> Option<Standing> {
        let (config, material) = (self.config.clone()?, self.material.as_ref()?);
        let trust = match &self.supply {
            Some(supply) => supply.trust.clone(),
            None => Arc::new(Trust::new(material.bundle.clone())),
        };
        Some(Standing {
            config,
            trust,
            own: material.own.clone(),
            issuer: self.issuer.clone(),
            rules: self.rules.clone(),
            node: Arc::new(node.unwrap_or_default()),
        })
    }

    /// The site CA may be in the node's chain and in `[issuer]`: it is listed once.
    fn certificates(&self) -> Vec<CertificateInfo> {
        let mut all = self.material.as_ref().map(Material::certificates).unwrap_or_default();
        let asks = self.config.as_ref().is_some_and(|config| !config.issuers.is_empty());
        if let Some(own) = self.own().filter(|_| asks || self.issuer.is_some()) {
            let node = all.iter_mut().filter(|c| c.kind == Kind::NodeSvid);
            node.for_each(|c| c.renew_at = Some(own.renewal().renew_at()));
        }
        let issuer = self.issuer.as_ref().map(|issuer| issuer.certificate());
        if let Some(ca) = issuer.filter(|ca| all.iter().all(|known| known.sha256 != ca.sha256)) {
            all.push(ca.clone());
        }
        all
    }

    fn own(&self) -> Option<&Arc<Own>> {
        self.material.as_ref()?.own.as_ref()
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

#[cfg(test)]
impl Handle {
    pub(super) fn issuer(&self) -> Option<Arc<Issuer>> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).issuer.clone()
    }

    /// Replaces what is believed, as other parts of the daemon do.
    pub(super) fn set_trust(&self, trust: Trust) {
        let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(supply) = loaded.supply.as_mut() {
            supply.trust = Arc::new(trust);
        }
        self.0.supply.send_replace(loaded.supply.clone());
    }

    pub(super) fn trust(&self) -> Option<Arc<Trust>> {
        self.0.supply.borrow().as_ref().map(|supply| supply.trust.clone())
    }
}
