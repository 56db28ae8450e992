//! What a node knows about keys that change hands. Written down after every step.

use serde::{Deserialize, Serialize};

use super::{
    JITTER,
    command::{CaFacts, CharterView, Command, Effect},
    fleet::span,
};
use crate::{charter::RootState, keyhash::KeyHash, renewal::RenewWithin};

/// Nodes that renew in a second because their CA was left, at most: each costs the issuer a handshake and a signature, beside all else.
const RENEWALS_PER_SECOND: usize = 50;

/// The state of one issuer's site. Only [`State::apply`], [`State::request`], [`State::adopt`], [`State::trust`] and [`State::list`]
/// change it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The charter in force.
    pub charter: Option<CharterSeen>,
    /// Roots that are trusted.
    pub roots: Vec<KnownRoot>,
    /// This site's CAs, the oldest first.
    pub cas: Vec<Ca>,
    /// The last mass reissue.
    pub reissue: Option<Reissue>,
    /// Of the bundle that this node serves: rises with every change, across restarts too.
    pub bundle_sequence: u64,
    /// Longest life of a leaf, in seconds: how long a CA that no longer issues must stay believed.
    pub longest_leaf: i64,
}

/// The charter in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CharterSeen {
    /// Its sequence.
    pub sequence: u64,
    /// Since when.
    pub since: i64,
    /// Seconds.
    pub refresh_hint: u32,
}

/// A root that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownRoot {
    /// Its key.
    pub key: KeyHash,
    /// May CAs be made live under it?
    pub state: RootState,
    /// The charter that brought it; 0: the trust bundle.
    pub sequence: u64,
    /// Since when it is trusted here.
    pub since: i64,
}

/// A CA of this site whose key is, or was, here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ca {
    /// Its key.
    pub key: KeyHash,
    /// Its certificate; `None`: requested.
    pub certificate: Option<CaFacts>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when.
    pub since: i64,
    /// The first charter that pins it.
    pub pinned: Option<u64>,
    /// A CRL in force names it, so that verifiers which are not ours can know.
    #[serde(default)]
    pub listed: bool,
}

/// Where a CA is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Its key is made, its certificate is not here.
    Requested,
    /// Ready to issue.
    Prepared,
    /// Issues.
    Active,
    /// Issues no longer; its last leaf is dead after this moment.
    Retiring(i64),
    /// Its last leaf is dead and its key destroyed.
    Gone,
    /// What it issued is refused.
    Tainted,
    /// Tainted, and its root says so too: by a CRL, or in the charter.
    Revoked,
}

/// An order to give every holder a new leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reissue {
    /// Counts them: who holds a leaf of an earlier one gets a new one.
    pub generation: u64,
    /// When it began.
    pub begun: i64,
    /// Over how many seconds it is spread.
    pub window: u32,
    /// Why.
    pub reason: String,
}

impl State {
    /// The CA that issues.
    pub fn active(&self) -> Option<&Ca> {
        self.cas.iter().find(|ca| ca.phase == Phase::Active)
    }

    /// The CA with this key.
    pub fn ca(&self, key: &KeyHash) -> Option<&Ca> {
        self.cas.iter().find(|ca| ca.key == *key)
    }

    /// What those are told who hold something of a CA that issues no longer; `None`: there is no such CA, or none in its place. Of
    /// `nodes` no more than [`RENEWALS_PER_SECOND`] come in a second.
    pub fn renew_within(&self, nodes: usize) -> Option<RenewWithin> {
        self.active()?;
        let left =
            |ca: &&Ca| matches!(ca.phase, Phase::Retiring(_) | Phase::Gone | Phase::Tainted | Phase::Revoked);
        let cas: Vec<KeyHash> = self.cas.iter().filter(left).map(|ca| ca.key.clone()).collect();
        let least = u32::try_from(nodes / RENEWALS_PER_SECOND).unwrap_or(u32::MAX);
        let seconds = self.reissue.as_ref().map_or(JITTER, |last| last.window).max(least);
        (!cas.is_empty()).then_some(RenewWithin { cas, seconds })
    }

    /// Keys whose leaves are refused.
    pub fn tainted(&self) -> impl Iterator<Item = &KeyHash> {
        self.cas.iter().filter(|ca| ca.is_condemned()).map(|ca| &ca.key)
    }

    /// The charter in force; 0: none.
    pub fn charter_sequence(&self) -> u64 {
        self.charter.map_or(0, |charter| charter.sequence)
    }

    /// A key was made for the next CA.
    pub fn request(&mut self, key: KeyHash, now: i64) {
        // A dead CA is remembered for as long as its certificate could still be put in the configuration.
        let dead = |ca: &Ca| ca.phase == Phase::Gone || ca.is_condemned();
        self.cas.retain(|ca| !dead(ca) || ca.certificate.as_ref().is_some_and(|c| c.not_after >= now));
        self.cas.push(Ca {
            key,
            certificate: None,
            phase: Phase::Requested,
            since: now,
            pinned: None,
            listed: false,
        });
    }

    /// The trust bundle's roots, while there is no charter. Those that are gone are forgotten, those that stay keep their dates.
    pub fn trust(&mut self, roots: &[KeyHash], now: i64) {
        let before = std::mem::take(&mut self.roots);
        let known = |key: &KeyHash| before.iter().find(|root| root.key == *key).cloned();
        let new =
            |key: &KeyHash| KnownRoot { key: key.clone(), state: RootState::Active, sequence: 0, since: now };
        self.roots = roots.iter().map(|key| known(key).unwrap_or_else(|| new(key))).collect();
        if self.roots != before {
            self.raise_bundle(now);
        }
    }

    /// The CA of the configuration file: it issues, unless a rotation has gone on from it. False if it may not issue any more.
    pub fn adopt(&mut self, ca: &CaFacts, now: i64) -> bool {
        if let Some(known) = self.cas.iter_mut().find(|known| known.key == ca.key) {
            if known.certificate.as_ref() != Some(ca) {
                known.certificate = Some(ca.clone());
            }
            return known.phase == Phase::Active;
        }
        if let Some((old, until)) = self.active().map(|old| (old.key.clone(), self.last_leaf(old, now))) {
            self.set(&old, Phase::Retiring(until), now);
        }
        let certificate = Some(ca.clone());
        self.cas.push(Ca {
            key: ca.key.clone(),
            certificate,
            phase: Phase::Active,
            since: now,
            pinned: None,
            listed: false,
        });
        true
    }

    /// Whether a CRL in force names this CA.
    pub fn list(&mut self, key: &KeyHash, listed: bool) {
        if let Some(ca) = self.cas.iter_mut().find(|ca| ca.key == *key) {
            ca.listed = listed;
        }
    }

    /// An upper bound: nothing that this CA issued is alive after it.
    pub(super) fn last_leaf(&self, ca: &Ca, now: i64) -> i64 {
        let longest = now.saturating_add(self.longest_leaf);
        ca.certificate.as_ref().map_or(longest, |certificate| longest.min(certificate.not_after))
    }

    /// What an effect that was carried out leaves behind.
    pub fn apply(&mut self, effect: &Effect, now: i64) {
        match effect {
            Effect::Overridden { .. } | Effect::MakeKey | Effect::Forget(_) => {}
            Effect::Install(certificate) => self.install(certificate, now),
            Effect::ApplyCharter(view) => self.apply_charter(view, now),
            Effect::Switch { to, from } => {
                if let Some((from, until)) = from {
                    self.set(from, Phase::Retiring(*until), now);
                }
                self.set(to, Phase::Active, now);
            }
            Effect::StopIssuing => {
                if let Some((key, until)) = self.active().map(|ca| (ca.key.clone(), self.last_leaf(ca, now)))
                {
                    self.set(&key, Phase::Retiring(until), now);
                }
            }
            Effect::Reissue { window, reason } => {
                let generation = self.reissue.as_ref().map_or(0, |last| last.generation) + 1;
                self.reissue =
                    Some(Reissue { generation, begun: now, window: *window, reason: reason.clone() });
            }
            Effect::Taint(key) => {
                self.set(key, Phase::Tainted, now);
                self.raise_bundle(now);
            }
            Effect::Revoke(key) => {
                // Said again, with a newer list, it is revoked since the first time.
                if self.ca(key).is_some_and(|ca| ca.phase != Phase::Revoked) {
                    self.set(key, Phase::Revoked, now);
                }
                self.raise_bundle(now);
            }
            Effect::Drop(key) => self.set(key, Phase::Gone, now),
        }
    }

    fn install(&mut self, certificate: &CaFacts, now: i64) {
        if let Some(ca) = self.cas.iter_mut().find(|ca| ca.key == certificate.key) {
            ca.certificate = Some(certificate.clone());
            if ca.phase == Phase::Requested {
                (ca.phase, ca.since) = (Phase::Prepared, now);
            }
        }
    }

    fn apply_charter(&mut self, view: &CharterView, now: i64) {
        let before = std::mem::take(&mut self.roots);
        for root in &view.roots {
            let known = before.iter().find(|known| known.key == root.key);
            let (sequence, since) = known.map_or((view.sequence, now), |known| (known.sequence, known.since));
            self.roots.push(KnownRoot { key: root.key.clone(), state: root.state, sequence, since });
        }
        for ca in &mut self.cas {
            let believed = view.pin(&ca.key).is_some_and(crate::charter::CaState::is_believed);
            ca.pinned = if believed { ca.pinned.or(Some(view.sequence)) } else { None };
        }
        self.charter =
            Some(CharterSeen { sequence: view.sequence, since: now, refresh_hint: view.refresh_hint });
        self.raise_bundle(now);
    }

    /// Never back, and about the time of the change, so that a node which lost its state goes on above what it served before.
    fn raise_bundle(&mut self, now: i64) {
        self.bundle_sequence = (self.bundle_sequence + 1).max(u64::try_from(now).unwrap_or(0));
    }

    fn set(&mut self, key: &KeyHash, phase: Phase, now: i64) {
        if let Some(ca) = self.cas.iter_mut().find(|ca| ca.key == *key) {
            (ca.phase, ca.since) = (phase, now);
        }
    }

    /// What time alone brings: a CA near its end is replaced by the prepared one, one whose last leaf is dead goes.
    pub fn due(&self, now: i64) -> Option<Command> {
        let over = |ca: &Ca| matches!(ca.phase, Phase::Retiring(until) if until < now);
        if self.cas.iter().any(over) {
            return Some(Command::Retire);
        }
        let ending = self.active().and_then(Ca::switch_at).is_some_and(|at| at <= now);
        (ending && self.successor(true).is_some()).then_some(Command::Activate)
    }

    /// When [`State::due`] may have something that it has not now.
    pub fn next_due(&self, now: i64) -> Option<i64> {
        let retire = self.cas.iter().filter_map(|ca| match ca.phase {
            Phase::Retiring(until) => Some(until + 1),
            _ => None,
        });
        let activate = self.active().and_then(Ca::switch_at).filter(|_| self.successor(true).is_some());
        retire.chain(activate).filter(|at| *at > now).min()
    }

    /// The prepared CA that would issue next, the longest lived first; under the root of the one that issues, or under another.
    pub(super) fn successor(&self, same_root: bool) -> Option<&Ca> {
        self.successors(same_root).into_iter().next()
    }

    /// All of them, the longest lived first.
    pub(super) fn successors(&self, same_root: bool) -> Vec<&Ca> {
        let current = self.active().and_then(Ca::root);
        let fits = |ca: &&Ca| {
            ca.phase == Phase::Prepared && (current.is_none() || (ca.root() == current) == same_root)
        };
        let mut all: Vec<&Ca> = self.cas.iter().filter(fits).collect();
        all.sort_by_key(|ca| std::cmp::Reverse(ca.certificate.as_ref().map(|c| c.not_after)));
        all
    }

    /// What is wrong with the supply of CAs; empty: nothing.
    pub fn alarms(&self, now: i64) -> Vec<String> {
        let Some(active) = self.active() else {
            return if self.cas.is_empty() { vec![] } else { vec!["no site CA issues".into()] };
        };
        let Some(certificate) = &active.certificate else { return vec![] };
        let (life, left) = (certificate.not_after - certificate.not_before, certificate.not_after - now);
        let half_gone = left * 2 <= life && self.successor(true).is_none() && self.successor(false).is_none();
        let line = format!(
            "site CA {} has {} left and none is prepared: run `isthmusctl rotate intermediate prepare`",
            active.key.short(),
            span(left)
        );
        if half_gone { vec![line] } else { vec![] }
    }
}

impl Ca {
    /// True if what it issued is refused.
    pub fn is_condemned(&self) -> bool {
        matches!(self.phase, Phase::Tainted | Phase::Revoked)
    }

    /// Key of the root that signed it.
    pub fn root(&self) -> Option<&KeyHash> {
        self.certificate.as_ref().map(|certificate| &certificate.root)
    }

    /// When a sixth of its life is left, or seven days if that is less.
    fn switch_at(&self) -> Option<i64> {
        const WEEK: i64 = 7 * 86_400;
        let certificate = self.certificate.as_ref()?;
        let sixth = (certificate.not_after - certificate.not_before) / 6;
        Some(certificate.not_after - sixth.min(WEEK))
    }
}
