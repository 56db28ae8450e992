//! Charters, and the root.

use super::{Draft, ca};
use crate::{
    charter::{CaState, RootState},
    keyhash::KeyHash,
    rotation::{
        command::{CharterView, Effect, Order},
        fleet::Fleet,
        refusal::{Obstacle, Refusal},
        state::{Ca, Phase, State},
    },
};

pub(super) fn publish(state: &State, view: &CharterView, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
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
    if !draft.effects.iter().any(|effect| matches!(effect, Effect::Taint(_))) {
        draft.behind(fleet, state.charter_sequence(), now);
    }
    Ok(draft)
}

pub(super) fn activate(state: &State, order: &Order, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let mut draft = ca::activate(state, false, fleet, now)?;
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

pub(super) fn retire(state: &State, view: &CharterView, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
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

impl Draft {
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
                    self.revoke(&after, &ca.key, word);
                }
                Some(word) => self.revoke(state, &ca.key, word),
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

    /// Its root's word goes beyond that of the site.
    fn revoke(&mut self, state: &State, key: &KeyHash, word: CaState) {
        let tainted = state.ca(key).is_some_and(|ca| ca.phase == Phase::Tainted);
        if tainted && word == CaState::Revoked {
            self.effects.push(Effect::Revoke(key.clone()));
        }
    }
}
