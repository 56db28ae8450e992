//! A CA in a stranger's hands, a node that is gone.

use super::{Draft, URGENT};
use crate::{
    keyhash::KeyHash,
    rotation::{
        command::Effect,
        fleet::Fleet,
        refusal::{Obstacle, Refusal},
        state::{Ca, Phase, State},
    },
};

pub(super) fn taint(state: &State, key: &KeyHash, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
    let ca = state.ca(key).ok_or_else(|| {
        Refusal::impossible(format!(
            "site CA {} is not one of this site's; `isthmusctl rotate status` lists them",
            key.short()
        ))
    })?;
    // Whoever says it twice, in the hurry of an incident, has what he wants.
    if ca.is_condemned() {
        return Ok(Draft::default());
    }
    let mut draft = Draft::default();
    draft.condemn(state, ca, fleet, now);
    Ok(draft)
}

/// `known`: the list that would revoke it is in force already.
pub(super) fn revoke(
    state: &State,
    key: &KeyHash,
    known: bool,
    fleet: &Fleet,
    now: i64,
) -> Result<Draft, Refusal> {
    match state.ca(key).map(|ca| ca.phase) {
        Some(Phase::Revoked) if known => return Ok(Draft::default()),
        // One that only the charter revoked gets its list, and a newer list takes the place of the last.
        Some(Phase::Tainted | Phase::Revoked) => {}
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

pub(super) fn forget(fleet: &Fleet, node: &str) -> Result<Draft, Refusal> {
    if !fleet.knows(node) {
        return Err(Refusal::impossible(format!("no node {node:?} is known")));
    }
    Ok(Draft { effects: vec![Effect::Forget(node.to_owned())], ..Draft::default() })
}

impl Draft {
    /// Stop issuing with `ca`, move its leaves to a successor if there is one, refuse what it issued.
    pub(super) fn condemn(&mut self, state: &State, ca: &Ca, fleet: &Fleet, now: i64) {
        if ca.phase == Phase::Active {
            // The longest lived may be in the same hands, or not pinned yet: any that can issue will do.
            let mut heirs = state.successors(true).into_iter().chain(state.successors(false));
            match heirs.find(|next| self.ready(state, next, fleet, now).is_ok()) {
                Some(next) => self.switch(state, next, URGENT, now),
                None => {
                    self.obstacles.push(Obstacle::NoSuccessor);
                    self.effects.push(Effect::StopIssuing);
                }
            }
        }
        self.effects.push(Effect::Taint(ca.key.clone()));
    }
}
