//! Changes while the daemon runs: a reload, a rotation, what federated domains say, another SVID, another key for tokens; `hearing` has
//! what issuers say, `mending` what could not be loaded.
//!
//! Each makes a whole [`Loaded`] or changes one under its lock, and all of them end in [`Handle::hand_out`], the one place from which
//! streams, TLS and the federation's endpoint get what they believe. So none of them can lose what another brought.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{
    certificates,
    config::{Config, IssuerConfig, WorkloadApiConfig},
    enroll::TrustState,
    error::Error,
    handle::Handle,
    loaded::Loaded,
    orders::{self, Noted, Order},
    own::Own,
    rotation::{self, Outcome},
    trust::Trust,
};

/// How long a taint, or the charter that says so, is told before it is in force here: a long poll is answered in milliseconds.
const FOREWARNING: Duration = Duration::from_secs(1);

impl Handle {
    /// Reads the files again, validates all, then applies what differs and says what that was. On an error nothing is applied.
    pub async fn apply(
        &self,
        config: Option<Config>,
        issuer: Option<IssuerConfig>,
        workload_api: Option<WorkloadApiConfig>,
    ) -> Result<Vec<String>, Error> {
        let mut servers = self.0.servers.lock().await;
        let (sections, now) = ((config, issuer, workload_api), SystemTime::now());
        let prepared = self.load(&sections, now)?;
        let noted = self.note_bans(&prepared.loaded)?;
        // Nothing of it answers before there is something to answer from, and it goes again where the rest fails.
        let bound = self.bind(&servers, sections.1.as_ref(), sections.2.as_ref()).await;
        let kept = bound.and_then(|bound| Ok((bound, self.keep(&sections, prepared, now)?)));
        let word = kept.as_ref().err().map_or_else(|| "done".into(), |error| format!("failed: {error}"));
        noted.into_iter().for_each(|noted| drop(noted.end(&word)));
        let (bound, loaded) = kept?;
        let mut changes = servers.take(bound);
        changes.extend(self.install(loaded));
        *self.sections() = sections;
        self.mark_fresh();
        Ok(changes)
    }

    /// Plans a rotation's step; unless `dry_run`, writes it down, carries it out and loads what is in force then. A step that has begun
    /// goes on when whoever ordered it has gone: half of a taint would be refused nowhere and written down nowhere.
    pub async fn rotate(&self, request: &rotation::Request, dry_run: bool) -> Result<Outcome, Error> {
        if dry_run {
            let _servers = self.0.servers.lock().await;
            return self.take_step(request, true).await;
        }
        let (handle, ordered) = (self.clone(), request.clone());
        self.to_its_end("a step of a rotation", async move { handle.carry_out(ordered).await }).await?
    }

    async fn carry_out(&self, request: rotation::Request) -> Result<Outcome, Error> {
        let _servers = self.0.servers.lock().await;
        let (handle, ordered) = (self.clone(), request.clone());
        let noted = blocking("writing down an order", move || handle.note_rotation(&ordered)).await??;
        let mut outcome = self.take_step(&request, false).await;
        let word = orders::word_for(&outcome);
        let trouble = blocking("writing down what came of an order", move || noted.end(&word)).await?;
        if let Ok(outcome) = &mut outcome {
            outcome.notes.extend(trouble);
        }
        outcome
    }

    /// Works until it is done, also if whoever asked for it stops waiting; the shutdown waits for it.
    pub(super) async fn to_its_end<T: Send + 'static>(
        &self,
        work: &'static str,
        job: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.0.tasks.spawn(job).await.map_err(|source| Error::Interrupted { work, source })
    }

    async fn take_step(&self, request: &rotation::Request, dry_run: bool) -> Result<Outcome, Error> {
        let rotation = self.0.rotation.clone().ok_or(Error::NoIdentity)?;
        let ordered = request.clone();
        let order = move || rotation.order(&ordered, dry_run, SystemTime::now());
        let outcome = blocking("a step of a rotation", order).await?;
        if !dry_run {
            self.load_after(&outcome).await?;
        }
        Ok(outcome?)
    }

    async fn load_after(&self, outcome: &Result<Outcome, rotation::Error>) -> Result<(), Error> {
        match outcome {
            Ok(outcome) => {
                if outcome.applied && outcome.condemns {
                    self.forewarn().await;
                }
                self.load_if(outcome.applied || outcome.again)
            }
            // What it got done before it failed is in force all the same; of the two errors the first says more.
            Err(_) => {
                if let Err(error) = self.load_again() {
                    tracing::warn!(%error, "what is in force can't be loaded; it is tried again within a minute");
                }
                Ok(())
            }
        }
    }

    /// A reload that puts a node out, or lets it in again, is an order like any other.
    fn note_bans(&self, next: &Loaded) -> Result<Vec<Noted>, Error> {
        let (before, running) = {
            let loaded = self.loaded();
            (loaded.rules.clone(), loaded.config.is_some())
        };
        let site = self.0.node.as_ref().map(|(site, _)| site.clone()).unwrap_or_default();
        let order = |what: &str, node: &String| Order {
            what: what.into(),
            node: self.node_id(&site, node),
            by: "isthmusd, by its configuration".into(),
            ..Order::default()
        };
        let (old, new) = (&before.banned, &next.rules.banned);
        let put_out = new.iter().filter(|node| !old.contains(node)).map(|node| order("ban", node));
        let let_in = old.iter().filter(|node| !new.contains(node)).map(|node| order("lift the ban", node));
        let orders: Vec<Order> = put_out.chain(let_in).filter(|_| running).collect();
        orders.into_iter().map(|order| self.note(order)).collect()
    }

    /// Nodes whose own certificate is of a tainted CA can't ask us any more once we refuse it: they are told a moment before.
    async fn forewarn(&self) {
        self.publish();
        tokio::time::sleep(FOREWARNING).await;
    }

    /// Takes another SVID of ours into use: for new connections at once, and for those there are until they end.
    pub(super) async fn adopt(&self, own: Arc<Own>) {
        // A reload under way reads the file from before or from now, and is followed by this.
        let _servers = self.0.servers.lock().await;
        let mut loaded = self.loaded().clone();
        loaded.material = loaded.material.map(|material| material.with(own));
        self.install_and_tell(loaded);
    }

    /// Brings the keys for tokens up to date, and supplies the bundle with them where it differs. When to do so again.
    pub(super) async fn republish(&self, now: SystemTime) -> Option<SystemTime> {
        // Not while a reload is under way: it publishes by itself.
        let _servers = self.0.servers.lock().await;
        let mut loaded = self.loaded();
        let (issuer, base) = (loaded.issuer.clone()?, loaded.base.clone()?);
        // Also without workloads here: other nodes ask for tokens on behalf of theirs.
        match issuer.publish(&base, now) {
            Ok(bundle) if loaded.trust.as_ref().is_none_or(|trust| bundle != *trust.own()) => {
                loaded.trust = Some(Arc::new(base.with_own(bundle)));
                self.hand_out(&loaded);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the bundle can't be brought up to date; trying again in a minute")
            }
        }
        drop(loaded);
        self.publish();
        Some(issuer.publish_due(now))
    }

    /// The clock was set: certificates and keys begin and end at other times than everybody reckoned with when he went to sleep.
    pub(super) async fn look_again(&self, now: SystemTime) {
        self.republish(now).await;
        self.hand_out(&self.loaded());
        if let Some(rotation) = &self.0.rotation {
            rotation.look_again();
        }
        self.0.again.wake.notify_one();
    }

    pub(super) fn install_and_tell(&self, loaded: Loaded) {
        for change in self.install(loaded) {
            tracing::info!("{change}");
        }
    }

    fn install(&self, loaded: Loaded) -> Vec<String> {
        let mut current = self.loaded();
        let changes = loaded.changes_since(&current);
        if loaded.base != current.base {
            self.0.again.wake.notify_one();
        }
        if let Some(issuer) = &loaded.issuer {
            issuer.begin(current.issuer.as_deref());
        }
        *current = loaded;
        self.hand_out(&current);
        self.report();
        changes
    }

    /// What is loaded, with the bundles of other domains and the JWT keys of other nodes as they are now, to all who go by it. Called
    /// under the lock of `loaded`: of two changes the later one has the last word everywhere.
    pub(super) fn hand_out(&self, loaded: &Loaded) {
        let inner = &self.0;
        let trust = loaded.trust.as_ref().map(|trust| self.complete(trust));
        // Listed first: who hears of a certificate finds it there.
        let mut after = loaded.certificates();
        after.extend(trust.iter().flat_map(|trust| trust.federated_roots()));
        let before = std::mem::replace(&mut *self.listed(), after.clone());
        certificates::export(before.iter().chain(&after), &after);
        inner.federation.show(loaded.own(), trust.as_deref());
        inner.supply.send_replace(loaded.supply(trust.as_ref()));
        inner.standing.send_replace(loaded.standing(inner.node.as_ref(), trust.as_ref()));
    }

    fn complete(&self, trust: &Arc<Trust>) -> Arc<Trust> {
        self.0.keeper.complete(&self.0.federation.complete(trust), SystemTime::now())
    }

    /// Bundles of other domains have come or gone.
    fn take_federated(&self) {
        let loaded = self.loaded();
        let differs = match (&loaded.trust, &*self.0.standing.borrow()) {
            (Some(trust), Some(standing)) => self.complete(trust) != standing.trust,
            _ => false,
        };
        if differs {
            self.hand_out(&loaded);
        }
    }

    /// This node is of its fleet like any other.
    fn report(&self) {
        let standing = self.0.standing.borrow().clone();
        let (Some(rotation), Some((_, name)), Some(standing)) = (&self.0.rotation, &self.0.node, standing)
        else {
            return;
        };
        let report = standing.report().into_rotation(OffsetDateTime::now_utc().unix_timestamp());
        rotation.report(name, report);
        self.publish();
    }

    /// What is in force, for nodes that ask. The JWT keys are our own and those of others: whoever asks us hears of all.
    pub(super) fn publish(&self) {
        let Some(rotation) = &self.0.rotation else { return };
        let issuer = self.0.standing.borrow().as_ref().and_then(|standing| standing.issuer.clone());
        let mut jwt_endorsements = issuer.map(|issuer| issuer.endorsements()).unwrap_or_default();
        jwt_endorsements.extend(self.0.keeper.texts());
        self.0.fleet.publish(TrustState {
            charter: rotation.charter().unwrap_or_default().into_bytes(),
            jwt_endorsements,
            crls: rotation.crls(),
            taints: rotation.taints().into_iter().map(String::into_bytes).collect(),
            renew: rotation.renew_within(),
        });
    }
}

/// Keys are made there, and files synced.
pub(super) async fn blocking<T: Send + 'static>(
    work: &'static str,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(job).await.map_err(|source| Error::Interrupted { work, source })
}

/// Takes the bundles of other domains, whenever one changes.
pub(super) async fn follow_federation(handle: Handle, shutdown: CancellationToken) {
    let mut changes = handle.federation().changes();
    loop {
        changes.mark_unchanged();
        handle.take_federated();
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_is_no_missing_identity() {
        let error = blocking("a step", || -> () { panic!("on purpose") }).await.unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("a step was interrupted (task ") && said.contains("on purpose"), "{said}");
    }
}
