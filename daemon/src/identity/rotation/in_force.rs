//! What is in force: the configuration's files held against what was written down.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    Bundle, Crl, Facts, KeyHash,
    charter::Site,
    rotation::{CaFacts, taint},
    signed_by,
    verify::Policy,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{Error, charter, disk, hear, seconds, store::Store};
use crate::identity::{config::IssuerConfig, files};

/// What the configuration says.
pub(in crate::identity) struct Inputs<'a> {
    /// From `[identity] trust_bundle`.
    pub(in crate::identity) bundle: &'a Bundle,
    /// `[fabric] charter`.
    pub(in crate::identity) charter: Option<&'a Path>,
    /// `[fabric] longest_leaf`.
    pub(in crate::identity) longest_leaf: Duration,
    /// `[issuer]`.
    pub(in crate::identity) issuer: Option<&'a IssuerConfig>,
    /// `[node] site`.
    pub(in crate::identity) site: Option<&'a str>,
}

/// What holds now. Everything that the subsystem loads, it loads from here.
pub(in crate::identity) struct InForce {
    /// Roots, with a sequence that rises with every change of trust, across restarts too, and the charter's refresh hint.
    pub(in crate::identity) bundle: Bundle,
    /// Which CA may vouch for which ID, and whose leaves are refused.
    pub(in crate::identity) policy: Policy,
    /// Revocation lists.
    pub(in crate::identity) crls: Vec<Crl>,
    /// Whose files to issue with; `None`: nothing is issued.
    pub(in crate::identity) issuer: Option<IssuerConfig>,
    /// The last order to reissue.
    pub(in crate::identity) reissue: ReissueOrder,
}

/// Who holds a leaf of an earlier generation gets a new one within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::identity) struct ReissueOrder {
    /// Rises with each.
    pub(in crate::identity) generation: u64,
    /// Over how long they are spread.
    pub(in crate::identity) window: Duration,
}

impl ReissueOrder {
    /// A random moment within the window.
    pub(in crate::identity) fn moment(&self) -> Duration {
        self.window.mul_f64(rand::random_range(0.0..1.0))
    }

    /// The same, over a window so long that `holders` cost no more than [`MAX_PER_SECOND`].
    pub(in crate::identity) fn capped(self, holders: usize) -> Self {
        let least = Duration::from_secs((holders / MAX_PER_SECOND).try_into().unwrap_or(u64::MAX));
        Self { window: self.window.max(least), ..self }
    }
}

/// Leaves that a mass reissue costs a second, at most: a third of what one core signs.
const MAX_PER_SECOND: usize = 1000;

/// Without `keep` only `store` is changed, and nothing on disk.
pub(super) fn reconcile(
    store: &mut Store,
    inputs: &Inputs<'_>,
    now: SystemTime,
    keep: bool,
) -> Result<InForce, Error> {
    let (clock, moment) = (seconds(now), OffsetDateTime::from(now));
    store.site = inputs.site.map(str::to_owned);
    store.state.longest_leaf = i64::try_from(inputs.longest_leaf.as_secs()).unwrap_or(i64::MAX);
    store.catch_up(clock);
    let ended = store.charter.as_ref().is_some_and(|signed| charter::has_ended(&signed.charter, moment));
    if ended {
        tracing::warn!(
            "every root of the charter in force has ended; this node goes by [identity] trust_bundle until a new charter comes"
        );
    }
    if store.charter.is_none() || ended {
        trust_bundle(store, inputs.bundle, clock);
    }
    store.roots = charter::trusted(store, inputs.bundle, moment);
    configured(store, inputs, clock)?;
    if let Some(path) = inputs.charter {
        take_file(store, (path, keep), inputs.bundle, moment)?;
    }
    store.note_lists();
    let (bundle, policy, crls) = believed(store, moment)?;
    let active = || store.state.active().and_then(|ca| store.issuer(&ca.key));
    let issuer = unknown(store).or_else(active).filter(|_| inputs.issuer.is_some());
    Ok(InForce { bundle, policy, crls, issuer, reissue: reissue(store) })
}

/// Roots, what CAs may vouch for, and revocations: all of it from what is written down.
pub(super) fn believed(store: &Store, now: OffsetDateTime) -> Result<(Bundle, Policy, Vec<Crl>), Error> {
    let ended = store.charter.as_ref().is_some_and(|signed| charter::has_ended(&signed.charter, now));
    let mut bundle = hear::bundle(store)?.with_sequence(store.state.bundle_sequence);
    if let Some(charter) = store.state.charter {
        bundle = bundle.with_refresh_hint(Duration::from_secs(charter.refresh_hint.into()));
    }
    let policy = policy(store, &bundle, ended);
    Ok((bundle, policy, crls(store)))
}

/// The CA of `[issuer]` that hangs on no root in force: whoever loads it refuses it by name, and nobody issues with another one
/// behind the operator's back.
fn unknown(store: &Store) -> Option<IssuerConfig> {
    let (key, issuer) = store.configured.as_ref()?;
    store.state.ca(key).is_none().then(|| issuer.clone())
}

/// The charter's word on CAs and paths; without one the sites own their paths and share the rest.
fn policy(store: &Store, bundle: &Bundle, ended: bool) -> Policy {
    let charter = store.charter.as_ref().map(|signed| &signed.charter).filter(|_| !ended);
    let sites = charter.iter().flat_map(|charter| &charter.sites);
    let rules = sites.clone().map(|site| (site.name.clone(), site.ids.clone()));
    let policy = if charter.is_some() { Policy::new(rules) } else { Ok(Policy::default()) };
    let policy = policy.expect("a charter's names and paths were checked when it was read");
    let pinned = |policy: Policy, site: &Site| {
        let believed = site.cas.iter().filter(|ca| ca.state.is_believed());
        policy.with_pins(&site.name, believed.map(|ca| ca.key.to_string()))
    };
    sites.fold(policy, pinned).with_tainted(tainted(store, bundle).into_iter().map(String::from))
}

/// Each was checked when it came; one whose root has gone since is left out.
fn crls(store: &Store) -> Vec<Crl> {
    store.crls().iter().filter(|crl| store.is_signed(crl)).filter_map(|crl| Crl::parse(crl).ok()).collect()
}

fn trust_bundle(store: &mut Store, bundle: &Bundle, now: i64) {
    let key = |der: &CertificateDer<'_>| Facts::parse(der).ok().map(|facts| KeyHash::of(&facts));
    let roots: Vec<KeyHash> = bundle.anchors().iter().filter_map(key).collect();
    store.state.trust(&roots, now);
}

/// The CA that `[issuer]` names takes its place among those of the site.
fn configured(store: &mut Store, inputs: &Inputs<'_>, now: i64) -> Result<(), Error> {
    let Some(issuer) = inputs.issuer else {
        store.configured = None;
        return Ok(());
    };
    let wrong = |reason: String| Error::Certificate(format!("{}: {reason}", issuer.certificate.display()));
    let chain = files::certificates(&issuer.certificate)?;
    let facts = Facts::parse(&chain[0]).map_err(|e| wrong(e.to_string()))?;
    store.configured = Some((KeyHash::of(&facts), issuer.clone()));
    let root = store.roots.iter().find(|root| signed_by::certificate(&chain[0], root));
    // One under no root in force is refused by whoever loads it, in better words than ours.
    let Some(root) = root.and_then(|root| Facts::parse(root).ok()) else { return Ok(()) };
    let key = KeyHash::of(&facts);
    let known = store.state.ca(&key).map(|ca| ca.phase);
    if !store.state.adopt(&CaFacts::new(&facts, &root), now) {
        let phase = known.map_or("", |phase| phase.as_str());
        tracing::info!(
            ca = key.short(),
            phase,
            "the site CA of [issuer] issues no more: a rotation went on from it"
        );
    }
    Ok(())
}

/// `[fabric] charter`: a newer one is taken if the guards let it, an older one is only told of.
fn take_file(
    store: &mut Store,
    (path, keep): (&Path, bool),
    bundle: &Bundle,
    now: OffsetDateTime,
) -> Result<(), Error> {
    use isthmus_pki::charter::Error as Refused;

    let place = path.display().to_string();
    let bytes = disk::read(path)?.ok_or_else(|| Error::Io {
        path: path.to_owned(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    })?;
    // A person who may change the configuration may also bring a lost node back by its trust bundle.
    let mut trusted = store.roots.clone();
    trusted.extend(bundle.anchors().iter().cloned());
    match charter::read(store, &bytes, &trusted, &place, now) {
        Ok(Some(signed)) => charter::take(store, &signed, &place, now.unix_timestamp(), keep),
        Ok(None) => Ok(()),
        Err(Error::Charter { reason, .. }) if matches!(*reason, Refused::Backwards { .. }) => {
            tracing::info!(place, %reason, "the charter file is older than the charter in force");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Of this site by its own state; of others by their statements; of all by the charter.
fn tainted(store: &Store, bundle: &Bundle) -> Vec<KeyHash> {
    let stated = store.taints.texts().filter_map(|statement| taint::open(statement, bundle).ok());
    let charter = store.charter.iter().flat_map(|signed| signed.charter.cas());
    let condemned = charter.filter(|(_, ca)| !ca.state.is_believed()).map(|(_, ca)| ca.key.clone());
    let mut all: Vec<KeyHash> =
        store.state.tainted().cloned().chain(stated.map(|taint| taint.key)).chain(condemned).collect();
    all.sort();
    all.dedup();
    all
}

fn reissue(store: &Store) -> ReissueOrder {
    store.state.reissue.as_ref().map_or_else(ReissueOrder::default, |last| ReissueOrder {
        generation: last.generation,
        window: Duration::from_secs(last.window.into()),
    })
}
