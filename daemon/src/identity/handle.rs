//! The subsystem's state and the one door to it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    federation::{Federation, FederationError},
    files,
    issuing::{self, Issuer, SiteCa},
    material::{self, Material},
    own::Own,
    publishing,
    registration::{self, Registry},
    rotation::{self, Inputs, Outcome, ReissueOrder, Rotation},
    standing::{Live, Standing},
    supplier::Supplier,
    trust::Trust,
    workload::{Server, Settings, Supply},
};

/// How long a taint is told before it is in force here: a long poll is answered in milliseconds.
const FOREWARNING: std::time::Duration = std::time::Duration::from_secs(1);

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
    /// `[federation]`
    #[error(transparent)]
    Federation(#[from] FederationError),
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
    /// Charter, site CAs that change hands, taints.
    #[error(transparent)]
    Rotation(#[from] rotation::Error),
    /// A rotation on a node that has nothing to rotate.
    #[error("this node has no [identity], so there is nothing to rotate")]
    NoIdentity,
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
    trust: Option<Arc<Trust>>,
    charter_sequence: u64,
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
    federation: Federation,
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
    let (supply, tasks) = (watch::Sender::new(None), TaskTracker::new());
    let federation = Federation::new(supply.clone(), &shutdown, &tasks);
    let rotation = config.as_ref().map(|config| Rotation::open(&config.rotation.dir)).transpose()?;
    let tokens = config.as_ref().map(|config| enroll::state::tokens_path(&config.state_dir));
    let handle = Handle(Arc::new(Inner {
        node,
        rotation: rotation.clone(),
        sections: Mutex::default(),
        shutdown,
        tasks,
        ledger: Ledger::default(),
        loaded: Mutex::default(),
        supply,
        federation,
        standing: watch::Sender::new(None),
        renewal: watch::Sender::default(),
        heard: watch::Sender::new(None),
        tokens: tokens.map(|path| Tokens::open(&path)).transpose()?,
        fleet: Fleet::of(rotation.clone()),
        servers: AsyncMutex::default(),
    }));
    handle.apply(config, issuer, workload_api).await?;
    if let Some(rotation) = rotation {
        let shutdown = handle.0.shutdown.clone();
        handle.0.tasks.spawn(rotation::run(handle.clone(), rotation, shutdown));
    }
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
        let mut servers = self.0.servers.lock().await;
        let sections = (config.clone(), issuer.clone(), workload_api.clone());
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
        *self.sections() = sections;
        Ok(changes)
    }

    /// Plans a rotation's step; unless `dry_run`, carries it out and loads what is in force then.
    pub async fn rotate(&self, request: &rotation::Request, dry_run: bool) -> Result<Outcome, Error> {
        let _servers = self.0.servers.lock().await;
        let rotation = self.0.rotation.clone().ok_or(Error::NoIdentity)?;
        let ordered = request.clone();
        // Keys are made and files synced.
        let order = move || rotation.order(&ordered, dry_run, SystemTime::now());
        let outcome = tokio::task::spawn_blocking(order).await.map_err(|_| Error::NoIdentity)??;
        if outcome.applied {
            if matches!(request.verb, rotation::Verb::Taint(..)) {
                self.forewarn().await;
            }
            self.load_again()?;
        }
        Ok(outcome)
    }

    /// Nodes whose own certificate is of a tainted CA can't ask us any more once we refuse it: they are told a moment before.
    async fn forewarn(&self) {
        self.publish();
        tokio::time::sleep(FOREWARNING).await;
    }

    /// Takes what another node says the fabric trusts, as far as it proves itself.
    pub async fn hear(&self, heard: rotation::Heard) -> Result<(), Error> {
        let _servers = self.0.servers.lock().await;
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
        inner.tasks.spawn(listen(self.clone(), self.heard(), inner.shutdown.clone()));
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
        let files = load_files(self.0.rotation.as_ref(), config, issuer_config, node, now, true)?;
        let material = files.material.map(|material| self.same_own(material));
        let issuer = match files.site_ca {
            Some((site_ca, config)) => Some(self.new_issuer(&config, site_ca, now)?),
            None => None,
        };
        let remote = config.zip(material.as_ref()).and_then(|(config, own)| self.remote(config, own));
        let here = issuer.clone().map(Supplier::Local);
        let supplier = here.or_else(|| remote.clone().map(Supplier::Remote));
        let reissue = files.reissue.capped(self.0.ledger.list().len());
        let supply = match (workload_api, supplier, &files.trust) {
            (None, ..) => None,
            (Some(api), Some(supplier), Some(trust)) => {
                let before = self.0.supply.borrow().as_ref().map(|supply| supply.attestor.clone());
                Some(supply(api, supplier, trust, before, reissue, now)?)
            }
            // A rotation has stopped the issuing: callers are told to come again.
            (Some(_), None, Some(_)) if issuer_config.is_some() => None,
            _ => return Err(Error::WorkloadApiAlone),
        };
        let rules = Arc::new(issuer_config.map(|issuer| issuer.nodes.clone()).unwrap_or_default());
        let (config, trust) = (config.cloned().map(Arc::new), files.trust);
        let charter_sequence =
            self.0.rotation.as_ref().map_or(0, |rotation| rotation.state().charter_sequence());
        Ok(Loaded { config, material, issuer, rules, remote, supply, trust, charter_sequence })
    }

    /// This node is of its fleet like any other.
    fn report(&self, loaded: &Loaded) {
        let (Some(rotation), Some((_, name)), Some(standing)) =
            (&self.0.rotation, &self.0.node, loaded.standing(self.0.node.clone()))
        else {
            return;
        };
        let report = standing.report().into_rotation(time::OffsetDateTime::now_utc().unix_timestamp());
        rotation.report(name, report);
        self.publish();
    }

    /// What is in force, for nodes that ask.
    fn publish(&self) {
        let Some(rotation) = &self.0.rotation else { return };
        let jwt_endorsements = self.0.fleet.state().borrow().jwt_endorsements.clone();
        self.0.fleet.publish(TrustState {
            charter: rotation.charter().unwrap_or_default().into_bytes(),
            jwt_endorsements,
            crls: rotation.crls(),
            taints: rotation.taints().into_iter().map(String::into_bytes).collect(),
        });
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

    /// What callers are answered from, with the bundles of other domains as they are now; and what those domains are shown of ours.
    fn hand_out(&self, own: Option<&Material>, supply: Option<&Supply>) {
        self.0.federation.show(own, supply);
        self.0.supply.send_modify(|current| {
            *current = supply.cloned();
            self.0.federation.join(current);
        });
    }

    fn install(&self, loaded: Loaded) -> Vec<String> {
        let mut current = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = differences(&current, &loaded);
        if let Some(issuer) = &loaded.issuer {
            issuer.begin(current.issuer.as_deref());
        }
        self.report(&loaded);
        self.hand_out(loaded.material.as_ref(), loaded.supply.as_ref());
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

    /// What the node's workloads are told to believe; `None` without a Workload API.
    pub fn trust(&self) -> Option<Arc<Trust>> {
        self.0.supply.borrow().as_ref().map(|supply| supply.trust.clone())
    }

    /// Bundles for others, and of others.
    pub fn federation(&self) -> &Federation {
        &self.0.federation
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
                self.hand_out(Some(&own), Some(supply));
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

/// Takes what issuers say the fabric trusts, whenever that changes.
async fn listen(
    handle: Handle,
    mut heard: watch::Receiver<Option<Arc<TrustState>>>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            changed = heard.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
        let Some(state) = heard.borrow_and_update().clone() else { continue };
        let taints = state.taints.iter().map(|taint| String::from_utf8_lossy(taint).into_owned()).collect();
        let heard = rotation::Heard { charter: state.charter.clone(), taints, crls: state.crls.clone() };
        if let Err(error) = handle.hear(heard).await {
            tracing::warn!(%error, "what an issuer said could not be put in force");
        }
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
    trust: &Trust,
    before: Option<Arc<Attestor>>,
    reissue: ReissueOrder,
    now: SystemTime,
) -> Result<Supply, Error> {
    let registry = Registry::new(issuer.trust_domain().clone(), api.entries.clone())?;
    let trust = Arc::new(trust.with_own(issuer.publish(trust.own(), now)?));
    let (wants, kubernetes) = (registry.wants(), api.kubernetes.clone());
    // One that gathers the same goes on: it knows hashes and pods, and callers keep their facts.
    let attestor = before.filter(|before| before.serves(wants, kubernetes.as_ref()));
    let attestor = attestor.unwrap_or_else(|| Arc::new(Attestor::new(wants, kubernetes)));
    Ok(Supply { trust, issuer, registry: Arc::new(registry), attestor, reissue })
}

impl Loaded {
    fn standing(&self, node: Option<(String, String)>) -> Option<Standing> {
        let (config, material) = (self.config.clone()?, self.material.as_ref()?);
        // With the keys for tokens, where there are any.
        let supplied = self.supply.as_ref().map(|supply| supply.trust.clone());
        let trust = supplied.or_else(|| self.trust.clone())?;
        Some(Standing {
            config,
            trust,
            own: material.own.clone(),
            issuer: self.issuer.clone(),
            rules: self.rules.clone(),
            node: Arc::new(node.unwrap_or_default()),
            charter_sequence: self.charter_sequence,
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
    pub(super) fn current_issuer(&self) -> Option<Arc<Issuer>> {
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
}
