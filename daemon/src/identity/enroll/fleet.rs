//! What nodes report to this issuer, and what it tells them to trust.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use isthmus_pki::{KeyHash, SpiffeId, key::sha256_hex, renewal::RenewWithin, rotation};
use isthmus_proto::issuance as wire;
use tokio::sync::watch;

use crate::identity::rotation::Rotation;

/// Most nodes that are remembered.
const MAX_NODES: usize = 10_000;
/// Most CAs in an issuer's word; a site remembers fewer.
const MAX_CAS: usize = 64;
/// Most bytes of a text in a report.
const MAX_TEXT: usize = 256;

/// How a node said it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// Software version.
    pub version: String,
    /// Of the bundle it trusts.
    pub bundle_sequence: u64,
    /// Of the charter it follows.
    pub charter_sequence: u64,
    /// Of the SVID in use, lower-case hex.
    pub svid_serial: String,
    /// The key of the CA that signed that, lower-case hex SHA-256.
    pub svid_issuer: String,
    /// Its last valid second.
    pub svid_not_after: i64,
}

/// A report and when it came, in seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When.
    pub at: i64,
    /// What it said.
    pub report: NodeReport,
}

/// What the fabric trusts, in parts that each prove themselves; opaque to whoever carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustState {
    /// JWS; empty: none.
    pub charter: Vec<u8>,
    /// JWS each.
    pub jwt_endorsements: Vec<Vec<u8>>,
    /// DER each.
    pub crls: Vec<Vec<u8>>,
    /// JWS each.
    pub taints: Vec<Vec<u8>>,
    /// The one part that nobody signed: it counts from an issuer of the own site, over the connection that it proved itself on.
    pub renew: Option<RenewWithin>,
}

impl TrustState {
    /// What nodes of other sites are told: the JWT keys, and which CAs are tainted. Both are signed by the CAs that they are about; a
    /// charter and what roots revoked every site gets from its own operators.
    fn for_other_sites(&self) -> Self {
        let (jwt_endorsements, taints) = (self.jwt_endorsements.clone(), self.taints.clone());
        Self { jwt_endorsements, taints, ..Self::default() }
    }

    /// Equal for equal states.
    fn version(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let lists = [&self.jwt_endorsements, &self.crls, &self.taints];
        let parts = std::iter::once(&self.charter).chain(lists.into_iter().flatten());
        for part in parts {
            // With its length in front no two states run into one text.
            text.extend_from_slice(&part.len().to_be_bytes());
            text.extend_from_slice(part);
        }
        for ca in self.renew.iter().flat_map(|renew| &renew.cas) {
            text.extend_from_slice(ca.as_str().as_bytes());
        }
        let seconds = self.renew.as_ref().map_or(0, |renew| u64::from(renew.seconds) + 1);
        text.extend_from_slice(&seconds.to_be_bytes());
        let counts = lists.map(|list| list.len().to_be_bytes());
        text.extend(counts.into_iter().flatten());
        sha256_hex(&text).into_bytes()
    }
}

impl From<wire::SyncResponse> for TrustState {
    fn from(wire: wire::SyncResponse) -> Self {
        let wire::TrustState { charter, jwt_endorsements, crls, taints } = wire.state.unwrap_or_default();
        Self { charter, jwt_endorsements, crls, taints, renew: wire.renew.map(read_renew) }
    }
}

/// A state as it is told, with what it is known by: reckoned once for each change, however many wait for it.
#[derive(Debug)]
pub struct View {
    /// What is told.
    pub state: TrustState,
    /// Equal for equal states.
    version: Vec<u8>,
    /// The same without the keys, which change more often than what is believed less.
    but_keys: Vec<u8>,
}

impl View {
    pub(super) fn new(state: TrustState) -> Arc<Self> {
        let version = state.version();
        let but_keys = TrustState { jwt_endorsements: Vec::new(), ..state.clone() }.version();
        Arc::new(Self { state, version, but_keys })
    }

    /// Is this the state that a caller says it knows?
    pub(super) fn is_known_as(&self, version: &[u8]) -> bool {
        self.version == version
    }

    /// Does nothing differ but the keys?
    pub(super) fn differs_by_keys_at_most(&self, other: &Self) -> bool {
        self.but_keys == other.but_keys
    }

    /// As it goes over the wire.
    pub(super) fn answer(&self) -> wire::SyncResponse {
        let TrustState { charter, jwt_endorsements, crls, taints, renew } = self.state.clone();
        let renew = renew.map(|RenewWithin { cas, seconds }| wire::RenewWithin {
            cas: cas.into_iter().map(String::from).collect(),
            seconds,
        });
        let state = wire::TrustState { charter, jwt_endorsements, crls, taints };
        wire::SyncResponse { state: Some(state), version: self.version.clone(), renew }
    }
}

/// What nodes are told that ask.
#[derive(Clone, Debug)]
pub struct Told {
    /// Those of the own site.
    pub ours: Arc<View>,
    /// Those of others.
    pub others: Arc<View>,
}

impl Told {
    fn new(state: TrustState) -> Self {
        Self { others: View::new(state.for_other_sites()), ours: View::new(state) }
    }

    /// What a node is told; `ours`: it is of the own site.
    pub(super) fn view(&self, ours: bool) -> &Arc<View> {
        if ours { &self.ours } else { &self.others }
    }
}

/// Bounded, and without what is no hash.
fn read_renew(wire: wire::RenewWithin) -> RenewWithin {
    let cas = wire.cas.iter().take(MAX_CAS).filter_map(|ca| KeyHash::parse(ca).ok()).collect();
    RenewWithin { cas, seconds: wire.seconds }
}

impl From<wire::Report> for NodeReport {
    fn from(wire: wire::Report) -> Self {
        Self {
            version: cut(wire.version),
            bundle_sequence: wire.bundle_sequence,
            charter_sequence: wire.charter_sequence,
            svid_serial: cut(wire.svid_serial),
            svid_issuer: cut(wire.svid_issuer),
            svid_not_after: wire.svid_not_after,
        }
    }
}

impl From<NodeReport> for wire::Report {
    fn from(report: NodeReport) -> Self {
        Self {
            version: report.version,
            bundle_sequence: report.bundle_sequence,
            charter_sequence: report.charter_sequence,
            svid_serial: report.svid_serial,
            svid_issuer: report.svid_issuer,
            svid_not_after: report.svid_not_after,
        }
    }
}

/// A report is shown to people: bounded, and without what drives a terminal.
fn cut(text: String) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

impl NodeReport {
    /// As rotations take it; `at` is when it came.
    pub(in crate::identity) fn into_rotation(self, at: i64) -> rotation::Report {
        rotation::Report {
            charter_sequence: self.charter_sequence,
            bundle_sequence: self.bundle_sequence,
            svid_issuer: KeyHash::parse(&self.svid_issuer).ok(),
            svid_serial: self.svid_serial,
            svid_not_after: self.svid_not_after,
            version: self.version.chars().take(64).collect(),
            at,
        }
    }
}

/// The nodes that have reported to this issuer, and the state that they are told. Clones share it.
#[derive(Clone)]
pub struct Fleet {
    nodes: Arc<Mutex<BTreeMap<SpiffeId, Seen>>>,
    state: watch::Sender<Told>,
    /// Waits for these nodes, and remembers them over a restart.
    rotation: Option<Rotation>,
}

impl Default for Fleet {
    fn default() -> Self {
        let nothing = Told::new(TrustState::default());
        Self { nodes: Arc::default(), state: watch::Sender::new(nothing), rotation: None }
    }
}

impl Fleet {
    /// One whose reports rotations hear too.
    pub(in crate::identity) fn of(rotation: Option<Rotation>) -> Self {
        Self { rotation, ..Self::default() }
    }

    /// Notes a report; where there is no room for another node, the one that was silent longest is forgotten.
    pub fn report(&self, id: SpiffeId, report: NodeReport, now: i64) {
        if let (Some(rotation), Some((_, name))) = (&self.rotation, id.node()) {
            rotation.report(name, report.clone().into_rotation(now));
        }
        let mut nodes = self.lock();
        if nodes.len() >= MAX_NODES && !nodes.contains_key(&id) {
            let silent = nodes.iter().min_by_key(|(_, seen)| seen.at).map(|(id, _)| id.clone());
            if let Some(silent) = silent {
                nodes.remove(&silent);
            }
        }
        nodes.insert(id, Seen { at: now, report });
    }

    /// All of them.
    pub fn nodes(&self) -> BTreeMap<SpiffeId, Seen> {
        self.lock().clone()
    }

    /// Tells every node that asks, and those that wait for it.
    pub fn publish(&self, state: TrustState) {
        if self.state.borrow().ours.state == state {
            return;
        }
        // Reckoned before the lock is taken that all who wait share.
        let told = Told::new(state);
        self.state.send_if_modified(|now| {
            let differs = now.ours.version != told.ours.version;
            if differs {
                *now = told;
            }
            differs
        });
    }

    /// What is told, and word of each change.
    pub fn state(&self) -> watch::Receiver<Told> {
        self.state.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SpiffeId, Seen>> {
        // Each change is complete before anything can panic.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use isthmus_pki::TrustDomain;

    use super::*;

    fn id(n: usize) -> SpiffeId {
        TrustDomain::parse("td").unwrap().member(&format!("/site/s/node/n{n}")).unwrap()
    }

    #[test]
    fn the_fleet_is_bounded_and_forgets_the_silent() {
        let fleet = Fleet::default();
        for n in 0..=MAX_NODES {
            fleet.report(id(n), NodeReport::default(), i64::try_from(n).unwrap());
        }
        let nodes = fleet.nodes();
        assert!(
            nodes.len() == MAX_NODES && !nodes.contains_key(&id(0)) && nodes.contains_key(&id(MAX_NODES))
        );
    }

    #[test]
    fn a_report_can_not_drive_a_terminal() {
        let wire = wire::Report { version: format!("1\u{1b}[2J{}", "x".repeat(1000)), ..Default::default() };
        let report = NodeReport::from(wire);
        assert!(report.version.starts_with("1[2Jx") && report.version.len() == MAX_TEXT);
    }

    fn renew(cas: &[&str], seconds: u32) -> Option<RenewWithin> {
        let cas = cas.iter().map(|digit| KeyHash::parse(&digit.repeat(64)).unwrap()).collect();
        Some(RenewWithin { cas, seconds })
    }

    #[test]
    fn what_an_issuer_says_arrives_and_is_bounded() {
        let told = TrustState { charter: vec![1], renew: renew(&["a", "b"], 7), ..Default::default() };
        assert_eq!(TrustState::from(View::new(told.clone()).answer()), told);
        assert_eq!(TrustState::from(wire::SyncResponse::default()), TrustState::default());
        let cas = ["x", &"A".repeat(64)].map(str::to_owned).into_iter();
        let cas = cas.chain((0..1000).map(|n| format!("{n:064x}"))).collect();
        let hostile = wire::SyncResponse {
            renew: Some(wire::RenewWithin { cas, seconds: u32::MAX }),
            ..Default::default()
        };
        assert_eq!(TrustState::from(hostile).renew.unwrap().cas.len(), MAX_CAS - 2);
    }

    #[test]
    fn versions_tell_states_apart() {
        let bytes = |list: &[&[u8]]| list.iter().map(|b| b.to_vec()).collect::<Vec<_>>();
        let states = [
            TrustState::default(),
            TrustState { charter: vec![1], ..Default::default() },
            TrustState { crls: bytes(&[&[1]]), ..Default::default() },
            TrustState { taints: bytes(&[&[1]]), ..Default::default() },
            TrustState { crls: bytes(&[&[1], &[]]), ..Default::default() },
            TrustState { crls: bytes(&[&[], &[1]]), ..Default::default() },
            TrustState { renew: renew(&["a"], 0), ..Default::default() },
            TrustState { renew: renew(&["a"], 1), ..Default::default() },
            TrustState { renew: renew(&["a", "b"], 1), ..Default::default() },
            TrustState { renew: renew(&[], 0), ..Default::default() },
        ];
        let versions: std::collections::BTreeSet<_> = states.iter().map(TrustState::version).collect();
        assert_eq!(versions.len(), states.len());
        assert_eq!(states[1].version(), states[1].clone().version());
    }

    #[test]
    fn other_sites_are_told_what_cas_say_of_themselves() {
        let one = || vec![vec![1]];
        let renew = Some(RenewWithin { cas: Vec::new(), seconds: 1 });
        let state =
            TrustState { charter: vec![1], jwt_endorsements: one(), crls: one(), taints: one(), renew };
        let told = TrustState { charter: vec![], crls: vec![], renew: None, ..state.clone() };
        assert_eq!(state.for_other_sites(), told);
    }

    #[tokio::test]
    async fn only_a_change_wakes() {
        let fleet = Fleet::default();
        let mut state = fleet.state();
        fleet.publish(TrustState::default());
        assert!(!state.has_changed().unwrap());
        fleet.publish(TrustState { charter: vec![1], ..Default::default() });
        assert!(state.has_changed().unwrap());
        assert_eq!(state.borrow_and_update().ours.state.charter, [1]);
    }

    #[test]
    fn views_are_told_apart_by_what_differs() {
        let view = |charter, key| {
            let (charter, jwt_endorsements) = (vec![charter], vec![vec![key]]);
            View::new(TrustState { charter, jwt_endorsements, ..Default::default() })
        };
        let first = view(1, 1);
        assert!(view(1, 1).is_known_as(&first.version) && !view(1, 2).is_known_as(&first.version));
        assert!(first.differs_by_keys_at_most(&view(1, 2)) && !first.differs_by_keys_at_most(&view(2, 1)));
        let told = Told::new(first.state.clone());
        assert!(told.view(true).is_known_as(&first.version));
        assert_eq!(told.view(false).state, first.state.for_other_sites());
    }
}
