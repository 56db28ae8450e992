//! Leaves and site CAs.

use super::{Draft, JITTER, URGENT};
use crate::{
    keyhash::KeyHash,
    rotation::{
        command::{CaFacts, Effect},
        fleet::Fleet,
        refusal::Refusal,
        state::{Ca, Phase, State},
    },
};

/// Most CAs that are requested or prepared at once.
const MAX_PREPARED: usize = 4;
/// Most CAs that are remembered.
const MAX_CAS: usize = 32;

pub(super) fn leaf(state: &State, now: i64) -> Result<Draft, Refusal> {
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

pub(super) fn prepare(state: &State) -> Result<Draft, Refusal> {
    let waiting =
        state.cas.iter().filter(|ca| matches!(ca.phase, Phase::Requested | Phase::Prepared)).count();
    if waiting >= MAX_PREPARED {
        return Err(Refusal::impossible(format!(
            "{waiting} site CAs are requested or prepared already; install and activate those first"
        )));
    }
    // Dead ones are forgotten when their certificates end.
    if state.cas.len() >= MAX_CAS {
        return Err(Refusal::impossible(format!(
            "{} site CAs are remembered until their certificates end, and that is all there is room for; wait until one has ended",
            state.cas.len()
        )));
    }
    Ok(Draft { effects: vec![Effect::MakeKey], ..Draft::default() })
}

pub(super) fn install(state: &State, certificate: &CaFacts, now: i64) -> Result<Draft, Refusal> {
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
pub(super) fn activate(state: &State, same_root: bool, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
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

pub(super) fn retire(state: &State, fleet: &Fleet, now: i64) -> Result<Draft, Refusal> {
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

impl Draft {
    /// May this CA issue, and does every node believe it?
    pub(super) fn ready(&mut self, state: &State, next: &Ca, fleet: &Fleet, now: i64) -> Result<(), Refusal> {
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
    pub(super) fn switch(&mut self, state: &State, next: &Ca, window: u32, now: i64) {
        // What was under way when the switch came may still be signed by the old one. Longer lives of nodes are known by their reports.
        let end = |old: &Ca| state.last_leaf(old, now + i64::from(URGENT));
        let from = state.active().map(|old| (old.key.clone(), end(old)));
        let reason = format!("site CA {} issues now", next.key.short());
        self.effects.push(Effect::Switch { to: next.key.clone(), from });
        self.effects.push(Effect::Reissue { window, reason });
    }
}
