//! The subsystem's state and the one door to it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use isthmus_pki::jwt;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    again::{self, Again},
    certificates::{CertificateInfo, Ledger},
    changing, clock,
    config::{Config, IssuerConfig, WorkloadApiConfig},
    enroll::{self, Fleet, Keeper, Peer, Tokens, TrustState, agent, peers},
    error::Error,
    federation::Federation,
    hearing,
    loaded::Loaded,
    material::Material,
    publishing,
    rotation::{self, Rotation},
    serving::Servers,
    standing::{Live, Standing},
    trust::Trust,
    watching,
    workload::Supply,
};

/// The running subsystem. Clones share it.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Inner>);

/// `[identity]`, `[issuer]`, `[workload_api]`.
pub(super) type Sections = (Option<Config>, Option<IssuerConfig>, Option<WorkloadApiConfig>);

pub(super) struct Inner {
    /// Site and name.
    pub(super) node: Option<(String, String)>,
    /// `None` without `[identity]`.
    pub(super) rotation: Option<Rotation>,
    /// What was applied last: a rotation loads it again.
    sections: Mutex<Sections>,
    /// A rotation has put something in force that is not loaded yet.
    pub(super) stale: AtomicBool,
    pub(super) shutdown: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) ledger: Ledger,
    loaded: Mutex<Loaded>,
    /// Every certificate that is known but those of workloads, as it was handed out last.
    listed: Mutex<Vec<CertificateInfo>>,
    /// This and `standing` are written by `hand_out` alone.
    pub(super) supply: watch::Sender<Option<Supply>>,
    pub(super) standing: watch::Sender<Option<Standing>>,
    pub(super) federation: Federation,
    pub(super) renewal: watch::Sender<agent::View>,
    heard: watch::Sender<Option<Arc<TrustState>>>,
    pub(super) tokens: Option<Tokens>,
    pub(super) fleet: Fleet,
    /// JWT keys of others.
    pub(super) keeper: Keeper,
    /// What others said that could not be taken yet.
    pub(super) again: Again,
    /// Whom `[fabric] peers` names, and how asking them goes.
    peers: peers::Views,
    /// Held through all of each change, so that two can't mix.
    pub(super) servers: AsyncMutex<Servers>,
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
    let handle = Handle::new(config.as_ref(), node, shutdown)?;
    handle.apply(config, issuer, workload_api).await?;
    handle.spawn();
    Ok(handle)
}

impl Handle {
    fn new(
        config: Option<&Config>,
        node: Option<(String, String)>,
        shutdown: CancellationToken,
    ) -> Result<Self, Error> {
        let tasks = TaskTracker::new();
        let rotation = config.map(|config| Rotation::open(&config.rotation.dir)).transpose()?;
        let tokens = config.map(|config| enroll::state::tokens_path(&config.state_dir));
        let keyring = config.map(|config| enroll::state::keyring_path(&config.state_dir));
        Ok(Self(Arc::new(Inner {
            node,
            rotation: rotation.clone(),
            sections: Mutex::default(),
            stale: AtomicBool::default(),
            federation: Federation::new(&shutdown, &tasks),
            shutdown,
            tasks,
            ledger: Ledger::default(),
            loaded: Mutex::default(),
            listed: Mutex::default(),
            supply: watch::Sender::new(None),
            standing: watch::Sender::new(None),
            renewal: watch::Sender::default(),
            heard: watch::Sender::new(None),
            tokens: tokens.map(|path| Tokens::open(&path)).transpose()?,
            fleet: Fleet::of(rotation),
            keeper: keyring.map(Keeper::open).unwrap_or_default(),
            again: Again::default(),
            peers: peers::Views::default(),
            servers: AsyncMutex::default(),
        })))
    }

    fn spawn(&self) {
        let inner = &self.0;
        let shutdown = || inner.shutdown.clone();
        if let Some(rotation) = inner.rotation.clone() {
            inner.tasks.spawn(rotation::run(self.clone(), rotation, shutdown()));
        }
        let (view, heard) = (inner.renewal.clone(), inner.heard.clone());
        inner.tasks.spawn(agent::run(self.clone(), view, shutdown()));
        inner.tasks.spawn(enroll::sync::run(self.live(), heard, shutdown()));
        inner.tasks.spawn(hearing::listen(self.clone(), self.heard(), shutdown()));
        inner.tasks.spawn(peers::run(self.clone(), inner.peers.clone(), shutdown()));
        inner.tasks.spawn(changing::follow_federation(self.clone(), shutdown()));
        inner.tasks.spawn(publishing::run(self.clone()));
        inner.tasks.spawn(clock::follow(self.clone(), shutdown()));
        inner.tasks.spawn(again::run(self.clone(), shutdown()));
        inner.tasks.spawn(watching::run(self.clone(), watching::PERIOD));
    }

    // A change is complete before it is put in: whoever panicked left the one before.

    pub(super) fn sections(&self) -> MutexGuard<'_, Sections> {
        self.0.sections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listed(&self) -> MutexGuard<'_, Vec<CertificateInfo>> {
        self.0.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine of rotations; `None` without `[identity]`.
    pub fn rotation(&self) -> Option<&Rotation> {
        self.0.rotation.as_ref()
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

    /// The nodes of other sites that this one asks for their JWT keys.
    pub fn peers(&self) -> Vec<Peer> {
        self.0.peers.borrow().values().cloned().collect()
    }

    /// The keys that JWT-SVIDs of our own trust domain are believed with now, and whether it is this node that signs with them.
    pub fn jwt_keys(&self) -> Vec<(jwt::Authority, bool)> {
        let Some(standing) = self.0.standing.borrow().clone() else { return Vec::new() };
        let own = standing.issuer.as_ref().map(|issuer| issuer.key_ids()).unwrap_or_default();
        let keys = standing.trust.own().jwt_authorities().iter().cloned();
        keys.map(|key| (key.clone(), own.contains(&key.key_id))).collect()
    }

    /// Where the issuance service listens.
    pub async fn listens(&self) -> Option<SocketAddr> {
        self.0.servers.lock().await.issuance()
    }

    /// Every certificate that the node holds, trusts, or has issued to a workload whose stream is open.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        let mut all = self.listed().clone();
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
        self.loaded().own().map(|own| own.id.to_string())
    }

    /// The node's own identity, for its TLS connections.
    pub fn material(&self) -> Option<Material> {
        self.loaded().material.clone()
    }

    pub(super) fn shutdown(&self) -> &CancellationToken {
        &self.0.shutdown
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
        *self.loaded() = Loaded::default();
    }
}

#[cfg(test)]
impl Handle {
    pub(super) fn current_issuer(&self) -> Option<Arc<super::issuing::Issuer>> {
        self.loaded().issuer.clone()
    }

    /// Replaces what workloads are told to believe, as if all that it comes from had changed.
    pub(super) fn set_trust(&self, trust: Trust) {
        self.0.supply.send_modify(|supply| {
            if let Some(supply) = supply.as_mut() {
                supply.trust = Arc::new(trust);
            }
        });
    }
}
