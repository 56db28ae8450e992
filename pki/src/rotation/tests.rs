//! Tables of the guards, and a fabric on virtual time whose every live leaf must be verifiable by everybody at every moment.

use super::*;
use crate::{
    charter::{CaState, RootState},
    key::sha256_hex,
    keyhash::KeyHash,
};

mod edges;
mod guards;
mod simulation;

const DAY: i64 = 86_400;
const START: i64 = 1_780_000_000;

fn key(name: &str) -> KeyHash {
    KeyHash::parse(&sha256_hex(name.as_bytes())).unwrap()
}

fn ca(name: &str, root: &str, from: i64, days: i64) -> CaFacts {
    CaFacts { key: key(name), root: key(root), not_before: from, not_after: from + days * DAY }
}

fn view(sequence: u64, roots: &[(&str, RootState)], pins: &[(&str, CaState)]) -> CharterView {
    CharterView {
        sequence,
        refresh_hint: 300,
        roots: roots.iter().map(|(name, state)| RootView { key: key(name), state: *state }).collect(),
        pins: pins.iter().map(|(name, state)| (key(name), *state)).collect(),
    }
}

fn order(command: Command) -> Order {
    Order { command, override_reason: None, istio_checked: None }
}

fn report(sequence: u64, issuer: &str, not_after: i64, at: i64) -> Report {
    Report {
        charter_sequence: sequence,
        svid_issuer: Some(key(issuer)),
        svid_not_after: not_after,
        at,
        ..Report::default()
    }
}

/// Plans and carries out, as the daemon does.
fn carry_out(state: &mut State, order: &Order, fleet: &mut Fleet, now: i64) -> Result<Vec<Effect>, Refusal> {
    let effects = plan(state, order, fleet, now)?;
    for effect in &effects {
        if let Effect::Forget(node) = effect {
            fleet.forget(node);
        }
        state.apply(effect, now);
    }
    Ok(effects)
}
