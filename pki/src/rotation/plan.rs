//! From a command to what must be done, or to why not. Each command has its guards in one function.

use super::{
    command::{CaFacts, CharterView, Command, Effect, Order},
    fleet::{Fleet, Lag},
    refusal::{Obstacle, Refusal},
    state::{Ca, Phase, State},
};
use crate::{charter::RootState, keyhash::KeyHash};

/// Over how many seconds leaves are reissued when nothing burns, at most; where leaves live for minutes it is less.
pub const JITTER: u32 = 60;
/// Over how many seconds when a CA is tainted.
pub const URGENT: u32 = 5;
/// Most CAs that are requested or prepared at once.
const MAX_PREPARED: usize = 4;
/// Most CAs that are remembered.
const MAX_CAS: usize = 32;
/// What taint and revoke can't do.
pub const ISTIO_CAVEAT: &str = "Envoy and Istio peers learn only through ca-crl.pem or a changed root: export both again (`isthmus-ca export istio`) and roll them out";

/// Effects and obstacles of one command, as they are found.
#[derive(Default)]
struct Draft {
    effects: Vec<Effect>,
    obstacles: Vec<Obstacle>,
}

/// What the order needs done, in order. Changes nothing.
pub fn plan(state: &State, order: &Order, fleet: &Fleet, now: i64) -> Result<Vec<Effect>, Refusal> {
    let Draft { mut effects, obstacles } = match &order.command {
        Command::Leaf => leaf(state, now)?,
        Command::Prepare => prepare(state)?,
        Command::Install(certificate) => install(state, certificate, now)?,
        Command::Activate => activate(state, true, fleet, now)?,
        Command::ActivateRoot => activate_root(state, order, fleet, now)?,
        Command::Retire => retire(state, fleet, now)?,
        Command::Publish(view) => publish(state, view, fleet, now)?,
        Command::RetireRoot(view) => retire_root(state, view, fleet, now)?,
        Command::Taint(key) => taint(state, key, fleet, now)?,
        Command::Revoke(key) => revoke(state, key, fleet, now)?,
        Command::Forget(node) => forget(fleet, node)?,
    };
    if obstacles.is_empty() {
        return Ok(effects);
    }
    let refusal = Refusal { obstacles };
    match &order.override_reason {
        Some(reason) if refusal.can_be_overridden() => {
            let obstacles = refusal.obstacles.iter().map(ToString::to_string).collect();
            effects.insert(0, Effect::Overridden { reason: reason.clone(), obstacles });
            Ok(effects)
        }
        _ => Err(refusal),
    }
}

fn leaf(state: &State, now: i64) -> Result<Draft, Refusal> {
    if state.active().is_none() {
        return Err(Refusal::impossible("no site CA issues on this node; run it where [issuer] is"));
    }
    let mut draft = Draft::default();
    if let Some(last) = &state.reissue {
        let until = last.begun + i64::from(last.window);
        draft.wait(now, until, "leaves are being reissued already");
    }
    draft.effects.push(Effect::Reissue { window: window(state), reason: "ordered by an operator".into() });
    Ok(draft)
}

/// Short against the life of a leaf, so that no holder's ends while it waits for its turn.
fn window(state: &State) -> u32 {
    u32::try_from(state.longest_leaf / 60).unwrap_or(JITTER).clamp(1, JITTER)
}

fn prepare(state: &State) -> Result<Draft, Refusal> {
    let waiting =
        state.cas.iter().filter(|ca| matches!(ca.phase, Phase::Requested | Phase::Prepared)).count();
    if waiting >= MAX_PREPARED || state.cas.len() >= MAX_CAS {
        return Err(Refusal::impossible(format!(
            "{waiting} site CAs are requested or prepared already; install and activate those first"
        )));
    }
    Ok(Draft { effects: vec![Effect::MakeKey], ..Draft::default() })
}

fn install(state: &State, certificate: &CaFacts, now: i64) -> Result<Draft, Refusal> {
    let key = certificate.key.short();
    let ca = state.ca(&certificate.key).ok_or_else(|| {
        Refusal::impossible(format!(
            "the certificate is for key {key}, which was not made here by `rotate intermediate prepare`"
        ))
    })?;
    if !matches!(ca.phase, Phase::Requested | Phase::Prepared | Phase::Active) {
        return Err(Refusal::impossible(format!("site CA {key} is {}; prepare another", ca.phase.as_str())));
    }
    if !state.roots.iter().any(|root| root.key == certificate.root) {
        return Err(Refusal::impossible(format!(
            "its root {} is not trusted here; publish a charter with that root first",
            certificate.root.short()
        )));
    }
    if certificate.not_after <= now {
        return Err(Refusal::impossible(
            "the certificate has expired; check the clock, then have it signed again",
        ));
    }
    Ok(Draft { effects: vec![Effect::Install(certificate.clone())], ..Draft::default() })
}

/// Under the same root, or under another one; the guards that both share.
fn activate(state: &State, same_root: bool, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let next = state.successor(same_root).ok_or_else(|| {
        Refusal::impossible(if same_root {
            "no site CA is prepared under the root in use; run `rotate intermediate prepare`, have the request signed, `rotate intermediate install`"
        } else {
            "no site CA is prepared under another root; have a request signed by the new root and install it"
        })
    })?;
    let mut draft = Draft::default();
    draft.ready(state, next, fleet, now)?;
    draft.switch(state, next, window(state), now);
    Ok(draft)
}

fn activate_root(state: &State, order: &Order, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let mut draft = activate(state, false, fleet, now)?;
    let next = state.successor(false).and_then(Ca::root);
    let root = state.roots.iter().find(|root| Some(&root.key) == next);
    let root =
        root.ok_or_else(|| Refusal::impossible("the root of the prepared site CA is not trusted here"))?;
    if root.state != RootState::Active {
        return Err(Refusal::impossible(
            "the root of the prepared site CA is on its way out; prepare one under an active root",
        ));
    }
    let hint = state.charter.map_or(0, |charter| i64::from(charter.refresh_hint));
    draft.wait(
        now,
        root.since + 3 * hint,
        "consumers of the bundle get three refresh hints to learn the new root",
    );
    draft.behind(fleet, root.sequence, now);
    if order.istio_checked.as_ref().is_none_or(|word| word.trim().is_empty()) {
        draft.obstacles.push(Obstacle::IstioUnchecked);
    }
    Ok(draft)
}

fn retire(state: &State, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let retiring = state.cas.iter().filter_map(|ca| match ca.phase {
        Phase::Retiring(until) => Some((&ca.key, until)),
        _ => None,
    });
    let retiring: Vec<(&KeyHash, i64)> = retiring.collect();
    if retiring.is_empty() {
        return Err(Refusal::impossible("no site CA is retiring"));
    }
    // Those that are over can go although another one is not.
    let over: Vec<_> = retiring.iter().filter(|(_, until)| *until < now).copied().collect();
    let mut draft = Draft::default();
    for (key, until) in if over.is_empty() { retiring } else { over } {
        draft.wait(now, until + 1, &format!("the last leaf of site CA {} is alive", key.short()));
        draft.lag(fleet.holding(std::slice::from_ref(key), now));
        draft.effects.push(Effect::Drop(key.clone()));
    }
    Ok(draft)
}

fn publish(state: &State, view: &CharterView, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let mut draft = Draft::default();
    draft.newer(state, view)?;
    if let Some(root) = state.roots.iter().find(|root| !view.has_root(&root.key)) {
        return Err(Refusal::impossible(format!(
            "the charter drops root {}: that is `rotate root retire`",
            root.key.short()
        )));
    }
    draft.effects.push(Effect::ApplyCharter(view.clone()));
    draft.obey(state, view, fleet, now)?;
    // An incident waits for nobody.
    if draft.effects.len() == 1 {
        draft.behind(fleet, state.charter_sequence(), now);
    }
    Ok(draft)
}

fn retire_root(state: &State, view: &CharterView, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let mut draft = Draft::default();
    draft.newer(state, view)?;
    let dropped: Vec<&KeyHash> =
        state.roots.iter().map(|root| &root.key).filter(|key| !view.has_root(key)).collect();
    if dropped.is_empty() {
        return Err(Refusal::impossible("the charter drops no root: that is `rotate root publish`"));
    }
    let under = |ca: &&Ca| ca.root().is_some_and(|root| dropped.contains(&root));
    let mut drops = Vec::new();
    for ca in state.cas.iter().filter(under) {
        match ca.phase {
            Phase::Active => {
                return Err(Refusal::impossible(format!(
                    "site CA {} issues under a root that the charter drops; activate one under the new root first",
                    ca.key.short()
                )));
            }
            Phase::Retiring(until) => {
                draft.wait(now, until + 1, &format!("the last leaf of site CA {} is alive", ca.key.short()));
                drops.push(Effect::Drop(ca.key.clone()));
            }
            Phase::Requested | Phase::Prepared => drops.push(Effect::Drop(ca.key.clone())),
            Phase::Gone | Phase::Tainted | Phase::Revoked => {}
        }
    }
    let cas: Vec<KeyHash> = state.cas.iter().filter(under).map(|ca| ca.key.clone()).collect();
    draft.lag(fleet.holding(&cas, now));
    draft.behind(fleet, state.charter_sequence(), now);
    draft.effects.push(Effect::ApplyCharter(view.clone()));
    draft.effects.extend(drops);
    draft.obey(state, view, fleet, now)?;
    Ok(draft)
}

fn taint(state: &State, key: &KeyHash, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let ca = state.ca(key).ok_or_else(|| {
        Refusal::impossible(format!(
            "site CA {} is not one of this site's; `isthmusctl rotate status` lists them",
            key.short()
        ))
    })?;
    if matches!(ca.phase, Phase::Tainted | Phase::Revoked) {
        return Err(Refusal::impossible(format!("site CA {} is {} already", key.short(), ca.phase.as_str())));
    }
    let mut draft = Draft::default();
    draft.condemn(state, ca, fleet, now);
    Ok(draft)
}

fn revoke(state: &State, key: &KeyHash, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    match state.ca(key).map(|ca| ca.phase) {
        Some(Phase::Tainted) => {}
        Some(Phase::Revoked) => return Err(Refusal::impossible("it is revoked already")),
        _ => {
            return Err(Refusal::impossible(format!(
                "site CA {} is not tainted; `rotate taint` comes first",
                key.short()
            )));
        }
    }
    let mut draft = Draft::default();
    draft.lag(fleet.holding(std::slice::from_ref(key), now));
    draft.effects.push(Effect::Revoke(key.clone()));
    Ok(draft)
}

fn forget(fleet: &Fleet, node: &str) -> Result<Draft, Refusal> {
    if !fleet.knows(node) {
        return Err(Refusal::impossible(format!("no node {node:?} is known")));
    }
    Ok(Draft { effects: vec![Effect::Forget(node.to_owned())], ..Draft::default() })
}

impl Draft {
    fn lag(&mut self, lags: Vec<Lag>) {
        self.obstacles.extend(lags.into_iter().map(Obstacle::Lagging));
    }

    fn behind(&mut self, fleet: &Fleet, sequence: u64, now: i64) {
        for lag in fleet.behind(sequence, now).into_iter().map(Obstacle::Lagging) {
            // Two guards may wait for one node: the higher sequence says all.
            self.obstacles.retain(|known| !matches!((known, &lag), (Obstacle::Lagging(a), Obstacle::Lagging(b)) if a.node == b.node));
            self.obstacles.push(lag);
        }
    }

    fn wait(&mut self, now: i64, until: i64, what: &str) {
        if now < until {
            self.obstacles.push(Obstacle::TooEarly { what: what.to_owned(), until });
        }
    }

    /// May this CA issue, and does every node believe it?
    fn ready(&mut self, state: &State, next: &Ca, fleet: &Fleet, now: i64) -> Result<(), Refusal> {
        if next.certificate.as_ref().is_none_or(|c| now < c.not_before || now > c.not_after) {
            return Err(Refusal::impossible(format!(
                "site CA {} is not valid now; check the clock, or install a newer certificate",
                next.key.short()
            )));
        }
        if state.charter.is_none() {
            return Ok(());
        }
        let pinned = next.pinned.ok_or_else(|| {
            Refusal::impossible(format!(
                "site CA {} is not pinned in the charter in force: nodes would refuse its leaves; publish a charter that lists it as prepared",
                next.key.short()
            ))
        })?;
        self.behind(fleet, pinned, now);
        Ok(())
    }

    /// Issue with `next`; what it replaces stays believed until its last leaf is dead.
    fn switch(&mut self, state: &State, next: &Ca, window: u32, now: i64) {
        // What was under way when the switch came may still be signed by the old one. Longer lives of nodes are known by their reports.
        let end = |old: &Ca| state.last_leaf(old, now + i64::from(URGENT));
        let from = state.active().map(|old| (old.key.clone(), end(old)));
        let reason = format!("site CA {} issues now", next.key.short());
        self.effects.push(Effect::Switch { to: next.key.clone(), from });
        self.effects.push(Effect::Reissue { window, reason });
    }

    /// Stop issuing with `ca`, move its leaves to a successor if there is one, refuse what it issued.
    fn condemn(&mut self, state: &State, ca: &Ca, fleet: &Fleet, now: i64) {
        if ca.phase == Phase::Active {
            match state.successor(true).or_else(|| state.successor(false)) {
                Some(next) if self.ready(state, next, fleet, now).is_ok() => {
                    self.switch(state, next, URGENT, now);
                }
                _ => {
                    self.obstacles.push(Obstacle::NoSuccessor);
                    self.effects.push(Effect::StopIssuing);
                }
            }
        }
        self.effects.push(Effect::Taint(ca.key.clone()));
    }

    fn newer(&self, state: &State, view: &CharterView) -> Result<(), Refusal> {
        let current = state.charter_sequence();
        if view.sequence <= current {
            return Err(Refusal::impossible(format!(
                "charter {} is not above {current}, which is in force; a charter never goes back",
                view.sequence
            )));
        }
        Ok(())
    }

    /// A charter's word on this site's CAs is law: who is condemned there stops now, and who lives must be in it.
    fn obey(&mut self, state: &State, view: &CharterView, fleet: &Fleet, now: i64) -> Result<(), Refusal> {
        let mut after = state.clone();
        after.apply(&Effect::ApplyCharter(view.clone()), now);
        for ca in &state.cas {
            let living = matches!(ca.phase, Phase::Active | Phase::Prepared)
                || matches!(ca.phase, Phase::Retiring(until) if until >= now);
            match view.pin(&ca.key) {
                Some(word) if !word.is_believed() && living => {
                    let mut incident = Self::default();
                    incident.condemn(&after, after.ca(&ca.key).unwrap_or(ca), fleet, now);
                    self.effects.extend(incident.effects);
                    after.apply(&Effect::Taint(ca.key.clone()), now);
                }
                // Under a root that the charter drops it has no place there; how long it lives was asked before.
                None if living
                    && ca.phase != Phase::Prepared
                    && ca.root().is_none_or(|root| view.has_root(root)) =>
                {
                    return Err(Refusal::impossible(format!(
                        "the charter does not pin site CA {}, whose leaves are alive: every node would refuse them; add it as {}",
                        ca.key.short(),
                        ca.phase.as_str()
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Phase {
    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Prepared => "prepared",
            Self::Active => "active",
            Self::Retiring(_) => "retiring",
            Self::Gone => "gone",
            Self::Tainted => "tainted",
            Self::Revoked => "revoked",
        }
    }
}
