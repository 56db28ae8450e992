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
    if matches!(ca.phase, Phase::Tainted | Phase::Revoked) {
        return Err(Refusal::impossible(format!("site CA {} is {} already", key.short(), ca.phase.as_str())));
    }
    let mut draft = Draft::default();
    draft.condemn(state, ca, fleet, now);
    Ok(draft)
}

pub(super) fn revoke(state: &State, key: &KeyHash, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
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
}
