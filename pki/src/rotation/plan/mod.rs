//! From a command to what must be done, or to why not. Each command has its guards in one function.

mod ca;
mod incident;
mod root;

use super::{
    command::{Command, Effect, Order},
    fleet::{Fleet, Lag},
    refusal::{Obstacle, Refusal},
    state::{Phase, State},
};

/// Over how many seconds leaves are reissued when nothing burns, at most; where leaves live for minutes it is less.
pub const JITTER: u32 = 60;
/// Over how many seconds when a CA is tainted.
pub const URGENT: u32 = 5;
/// What taint and revoke can't do.
pub const ISTIO_CAVEAT: &str = "Envoy and Istio peers learn only through ca-crl.pem or a changed root: export both again (`isthmus-ca export istio`) and roll them out";

/// Effects and obstacles of one command, as they are found.
#[derive(Default)]
struct Draft {
    effects: Vec<Effect>,
    obstacles: Vec<Obstacle>,
}

/// What the order needs done, in order; nothing: it was done before. Changes nothing.
pub fn plan(state: &State, order: &Order, fleet: &Fleet, now: i64) -> Result<Vec<Effect>, Refusal> {
    let Draft { mut effects, obstacles } = match &order.command {
        Command::Leaf => ca::leaf(state, now)?,
        Command::Prepare => ca::prepare(state)?,
        Command::Install(certificate) => ca::install(state, certificate, now)?,
        Command::Activate => ca::activate(state, true, fleet, now)?,
        Command::ActivateRoot => root::activate(state, order, fleet, now)?,
        Command::Retire => ca::retire(state, fleet, now)?,
        Command::Publish(view) => root::publish(state, view, fleet, now)?,
        Command::RetireRoot(view) => root::retire(state, view, fleet, now)?,
        Command::Taint(key) => incident::taint(state, key, fleet, now)?,
        Command::Revoke { ca, known } => incident::revoke(state, ca, *known, fleet, now)?,
        Command::Forget(node) => incident::forget(fleet, node)?,
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
