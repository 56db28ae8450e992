//! Steps of the plan as requests, and what came of them.

use std::{io, vec::IntoIter};

use ipnet::IpNet;
use metrics::counter;

use super::{Refusal, encode::Request, requests::Requests};
use crate::fib::{
    KernelState,
    plan::{KernelRoute, Operation, Step},
};

/// What came of one step.
pub(crate) struct Outcome {
    pub(crate) prefix: IpNet,
    /// What the kernel has done.
    pub(crate) done: Vec<Operation>,
    /// How the prefix stands now.
    pub(crate) state: Option<KernelState>,
    /// The kernel refused an operation; those after it were left out.
    pub(crate) refused: bool,
}

impl Outcome {
    /// Of a step that has nothing to do.
    pub(crate) fn nothing(step: Step) -> Self {
        Self { prefix: step.prefix, done: Vec::new(), state: step.state, refused: false }
    }
}

/// Carries out steps: the first operation of each, then the second of each, and so on. Most have one.
pub(super) fn carry_out(requests: &mut Requests, table: u32, steps: Vec<Step>) -> io::Result<Vec<Outcome>> {
    let mut works: Vec<Work> = steps.into_iter().map(Work::new).collect();
    loop {
        let mut round: Vec<(&mut Work, Operation)> =
            works.iter_mut().filter_map(|work| work.rest.next().map(|operation| (work, operation))).collect();
        if round.is_empty() {
            break;
        }
        let orders: Vec<Request<'_>> = round.iter().map(|(_, operation)| request(operation)).collect();
        let refusals = requests.order(&orders, table)?;
        let mut refused = Vec::new();
        for ((work, operation), refusal) in round.drain(..).zip(refusals) {
            match refusal
                .filter(|refusal| !(refusal.is_absence() && matches!(operation, Operation::Delete(_))))
            {
                None => work.done(operation),
                Some(refusal) => {
                    work.refused(&operation, &refusal);
                    if let Operation::Replace { old, .. } = operation {
                        refused.push((work, old));
                    }
                }
            }
        }
        take_back(requests, table, refused)?;
    }
    Ok(works.into_iter().map(|work| work.outcome).collect())
}

/// What could not be replaced is known to be wrong: better a less specific route than that.
fn take_back(requests: &mut Requests, table: u32, old: Vec<(&mut Work, KernelRoute)>) -> io::Result<()> {
    let orders: Vec<Request<'_>> = old.iter().map(|(_, route)| Request::Remove(route)).collect();
    let refusals = requests.order(&orders, table)?;
    for ((work, route), refusal) in old.into_iter().zip(refusals) {
        if refusal.is_none_or(|refusal| refusal.is_absence()) {
            work.outcome.done.push(Operation::Delete(route));
        }
    }
    Ok(())
}

fn request(operation: &Operation) -> Request<'_> {
    match operation {
        Operation::Add(new) => Request::Add(new),
        Operation::Replace { new, .. } => Request::Replace(new),
        Operation::Delete(old) => Request::Remove(old),
    }
}

/// A step under way.
struct Work {
    rest: IntoIter<Operation>,
    outcome: Outcome,
}

impl Work {
    fn new(step: Step) -> Self {
        let Step { prefix, operations, state } = step;
        let outcome = Outcome { prefix, done: Vec::new(), state, refused: false };
        Self { rest: operations.into_iter(), outcome }
    }

    fn done(&mut self, operation: Operation) {
        count(&operation, "ok");
        self.outcome.done.push(operation);
    }

    fn refused(&mut self, operation: &Operation, refusal: &Refusal) {
        count(operation, "refused");
        let why = match operation {
            Operation::Add(_) | Operation::Replace { .. } => refusal.explain(),
            Operation::Delete(_) => format!("cannot be removed: {}", refusal.explain()),
        };
        self.outcome.state = Some(KernelState::Failed(why.into()));
        self.outcome.refused = true;
        self.rest = Vec::new().into_iter();
    }
}

fn count(operation: &Operation, result: &'static str) {
    counter!("isthmus_fib_operations_total", "op" => operation.label(), "result" => result).increment(1);
}
