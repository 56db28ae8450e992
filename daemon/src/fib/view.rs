//! What is wanted, what the kernel has, and what is to be done about the difference: the task's state without its sockets and clock.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use isthmus_prefix::PrefixTable;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    Adopted, Config, KernelState, Summary,
    netlink::Outcome,
    plan::{self, Kernel, KernelRoute, Memory, Rules, Step, Wanted},
    state::States,
};
use crate::{
    prefixes,
    routes::{Hop, PathGroup},
};

/// Failures logged one by one in a pass; of more, only the count.
const LOGGED: usize = 10;

/// A set of prefixes.
pub(super) type Prefixes = HashSet<IpNet>;

/// Counts of one pass, for the log.
#[derive(Default)]
pub(super) struct Pass {
    pub(super) changed: usize,
    pub(super) refused: usize,
    logged: usize,
}

impl Pass {
    /// One that did not get anywhere.
    pub(super) fn failed() -> Self {
        Self { refused: 1, ..Self::default() }
    }
}

/// What the removal of a route of ours means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It was there, and is to be put back.
    Known,
    /// It was known to be gone: the kernel was read in between.
    Old,
    /// Another of ours was known there. Only reading tells.
    Puzzling,
}

/// The task's knowledge.
pub(super) struct View {
    pub(super) config: Config,
    pub(super) kernel: Kernel,
    pub(super) wanted: Wanted,
    /// Prefixes of routes that the daemon before us left, until they are announced again or their time is over.
    pub(super) adopted: PrefixTable<()>,
    pub(super) underlay: Arc<[IpAddr]>,
    /// Prefixes of routes that somebody took from us, and that nothing has been decided about since. Each was in `kernel`.
    pub(super) lost: Prefixes,
    states: Arc<Mutex<States>>,
}

impl View {
    pub(super) fn new(config: Config, states: Arc<Mutex<States>>) -> Self {
        let (wanted, adopted) = (prefixes::table(), prefixes::table());
        Self {
            config,
            kernel: Kernel::default(),
            wanted,
            adopted,
            underlay: Arc::new([]),
            lost: Prefixes::new(),
            states,
        }
    }

    /// What the board says about a prefix now.
    pub(super) fn note(&mut self, prefix: IpNet, group: Option<Arc<PathGroup>>) {
        // Nothing is decided for each prefix where nothing is installed, and nothing kept.
        match group.filter(|_| self.config.install) {
            Some(group) => {
                self.adopted.remove(prefix);
                self.wanted.insert(prefix, group);
            }
            None => drop(self.wanted.remove(prefix)),
        }
    }

    /// What is there with our number at the first look was left by the daemon before us. Returns how many routes.
    pub(super) fn adopt(&mut self) -> usize {
        let mut ours = 0;
        for prefix in self.kernel.ours() {
            ours += 1;
            if !self.wanted.contains(prefix) {
                self.adopted.insert(prefix, ());
            }
        }
        ours
    }

    /// Families of what was adopted and not announced since.
    pub(super) fn adopted_families(&self) -> Adopted {
        let has = |v4| self.adopted.prefixes().any(|prefix| prefix.addr().is_ipv4() == v4);
        Adopted { v4: has(true), v6: has(false) }
    }

    /// Somebody removed a route of ours.
    pub(super) fn lose(&mut self, route: KernelRoute) -> Loss {
        let prefix = route.prefix;
        if self.kernel.remove(route) {
            self.lost.insert(prefix);
            return Loss::Known;
        }
        match self.kernel.at(prefix).iter().any(KernelRoute::is_ours) {
            true => Loss::Puzzling,
            false => Loss::Old,
        }
    }

    /// Every prefix that anything is known about.
    pub(super) fn known(&self) -> Prefixes {
        let states = self.states();
        self.wanted.prefixes().chain(self.kernel.ours()).chain(states.prefixes()).collect()
    }

    /// Prefixes with a router behind this interface.
    pub(super) fn behind(&self, interface: u32) -> Vec<IpNet> {
        let mut answers: HashMap<*const PathGroup, bool> = HashMap::new();
        let mut affected = |group: &Arc<PathGroup>| {
            let leads = || group.paths.iter().any(|path| self.leads_to(&path.hop, interface));
            *answers.entry(Arc::as_ptr(group)).or_insert_with(leads)
        };
        self.wanted.iter().filter(|(_, group)| affected(group)).map(|(prefix, _)| prefix).collect()
    }

    fn leads_to(&self, hop: &Hop, interface: u32) -> bool {
        match hop {
            Hop::Peer(_) => false,
            Hop::Gateway(address) => plan::device(*address, &self.kernel) == Some(interface),
            Hop::LinkLocal { interface: on, .. } => *on == interface,
        }
    }

    /// What to do about a prefix. `memory` is good for a pass.
    pub(super) fn decide(&self, prefix: IpNet, memory: &Memory) -> Step {
        let rules = Rules { config: &self.config, board: &self.wanted, underlay: &self.underlay, memory };
        plan::decide(prefix, self.adopted.contains(prefix), &self.kernel, rules)
    }

    /// Notes what came of a step.
    pub(super) fn record(&mut self, outcome: Outcome, pass: &mut Pass) {
        let Outcome { prefix, done, state, refused } = outcome;
        pass.changed += done.len();
        pass.refused += usize::from(refused);
        for operation in done {
            debug!(%prefix, operation = operation.label(), "kernel route changed");
            self.kernel.apply(operation);
        }
        let failure = match &state {
            Some(KernelState::Failed(why)) => Some(Arc::clone(why)),
            _ => None,
        };
        let news = self.states().set(prefix, state);
        match failure {
            Some(reason) if news && pass.logged < LOGGED => {
                pass.logged += 1;
                warn!(%prefix, %reason, "kernel route not installed");
            }
            _ => {}
        }
    }

    /// Gives back memory and tells the metrics. `board`: how many prefixes it has.
    pub(super) fn publish(&mut self, board: usize) -> Summary {
        self.kernel.shrink();
        self.wanted.shrink();
        self.adopted.shrink();
        let mut states = self.states();
        states.shrink();
        states.set_off((!self.config.install).then_some(board));
        states.publish();
        states.summary()
    }

    /// Tells those who ask when the next pass over everything is.
    pub(super) fn plan_pass(&self, at: Instant) {
        self.states().set_next_pass(at);
    }

    fn states(&self) -> MutexGuard<'_, States> {
        // Each change of a state is complete before anything can panic.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
