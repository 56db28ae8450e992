//! What became of a prefix in the kernel, for a person and for the metrics.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use ipnet::IpNet;
use isthmus_prefix::PrefixTable;
use metrics::gauge;
use tokio::time::Instant;

use crate::prefixes;

/// What became of a prefix in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelState {
    /// The kernel has it and uses it.
    Installed,
    /// The kernel has it, but prefers another program's route to the same prefix; the reason names it.
    Shadowed(Arc<str>),
    /// It does not belong in the kernel, for this reason.
    NotWanted(Arc<str>),
    /// It belongs in the kernel and is not there, for this reason; it is tried again.
    Failed(Arc<str>),
    /// Left by the daemon that ran before, kept until the routing protocols had time to announce it again.
    Stale,
}

impl KernelState {
    /// The state as one word, as metrics and tables show it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Shadowed(_) => "shadowed",
            Self::NotWanted(_) => "not_wanted",
            Self::Failed(_) => "failed",
            Self::Stale => "stale",
        }
    }

    /// Why it is so; empty where the word says all.
    pub fn reason(&self) -> &str {
        match self {
            Self::Installed => "",
            Self::Shadowed(reason) | Self::NotWanted(reason) | Self::Failed(reason) => reason,
            Self::Stale => "waiting for the routing protocols to announce it again",
        }
    }
}

impl fmt::Display for KernelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => f.write_str(self.label()),
            reason => write!(f, "{}: {reason}", self.label()),
        }
    }
}

/// How many prefixes are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// In the kernel and in use.
    pub installed: usize,
    /// In the kernel behind another program's route.
    pub shadowed: usize,
    /// On the board, but not for the kernel.
    pub not_wanted: usize,
    /// Should be in the kernel and are not.
    pub failed: usize,
    /// Adopted and not yet announced again.
    pub stale: usize,
}

/// Every prefix with its state, and the counts. Nearly all are installed: those cost a place in a set, the others their words.
pub(super) struct States {
    installed: PrefixTable<()>,
    others: PrefixTable<KernelState>,
    summary: Summary,
    /// Nothing is to be installed: what the board has so many prefixes of is not wanted.
    off: Option<usize>,
    /// When everything is looked at again, and what was refused is tried again.
    next_pass: Option<Instant>,
}

impl Default for States {
    fn default() -> Self {
        let (installed, others) = (prefixes::table(), prefixes::table());
        Self { installed, others, summary: Summary::default(), off: None, next_pass: None }
    }
}

impl States {
    pub(super) fn get(&self, prefix: IpNet) -> Option<KernelState> {
        let installed = || self.installed.contains(prefix).then_some(KernelState::Installed);
        let off = || self.off.map(|_| KernelState::NotWanted("fib.install is false".into()));
        installed().or_else(|| self.others.get(prefix).cloned()).or_else(off)
    }

    pub(super) fn all(&self) -> HashMap<IpNet, KernelState> {
        let installed = self.installed.prefixes().map(|prefix| (prefix, KernelState::Installed));
        installed.chain(self.others.iter().map(|(prefix, state)| (prefix, state.clone()))).collect()
    }

    pub(super) fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.installed.prefixes().chain(self.others.prefixes())
    }

    pub(super) fn summary(&self) -> Summary {
        let not_wanted = self.summary.not_wanted + self.off.unwrap_or(0);
        Summary { not_wanted, ..self.summary }
    }

    /// Says that nothing is to be installed, and of how many prefixes; `None`: it is.
    pub(super) fn set_off(&mut self, prefixes: Option<usize>) {
        self.off = prefixes;
    }

    /// From now; zero while a pass is under way.
    pub(super) fn next_pass(&self, now: Instant) -> Duration {
        self.next_pass.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    pub(super) fn set_next_pass(&mut self, at: Instant) {
        self.next_pass = Some(at);
    }

    /// Records a state; `None`: nothing is left to say about the prefix. Returns whether it is news.
    pub(super) fn set(&mut self, prefix: IpNet, state: Option<KernelState>) -> bool {
        let old = self.take(prefix);
        let news = old != state;
        if let Some(state) = state {
            *self.counter(&state) += 1;
            match state {
                KernelState::Installed => drop(self.installed.insert(prefix, ())),
                other => drop(self.others.insert(prefix, other)),
            }
        }
        news
    }

    /// Gives back the memory of what is not recorded any more.
    pub(super) fn shrink(&mut self) {
        self.installed.shrink();
        self.others.shrink();
    }

    fn take(&mut self, prefix: IpNet) -> Option<KernelState> {
        let installed = self.installed.remove(prefix).map(|()| KernelState::Installed);
        let old = installed.or_else(|| self.others.remove(prefix))?;
        *self.counter(&old) -= 1;
        Some(old)
    }

    /// `isthmus_fib_routes{state}`.
    pub(super) fn publish(&self) {
        let Summary { installed, shadowed, not_wanted, failed, stale } = self.summary();
        let counts = [
            ("installed", installed),
            ("shadowed", shadowed),
            ("not_wanted", not_wanted),
            ("failed", failed),
            ("stale", stale),
        ];
        for (state, count) in counts {
            gauge!("isthmus_fib_routes", "state" => state).set(count as f64);
        }
    }

    fn counter(&mut self, state: &KernelState) -> &mut usize {
        match state {
            KernelState::Installed => &mut self.summary.installed,
            KernelState::Shadowed(_) => &mut self.summary.shadowed,
            KernelState::NotWanted(_) => &mut self.summary.not_wanted,
            KernelState::Failed(_) => &mut self.summary.failed,
            KernelState::Stale => &mut self.summary.stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_every_change() {
        let prefix: IpNet = "10.0.0.0/8".parse().unwrap();
        let mut states = States::default();
        assert!(states.set(prefix, Some(KernelState::Stale)));
        assert!(!states.set(prefix, Some(KernelState::Stale)));
        assert!(states.set(prefix, Some(KernelState::Failed("no such device".into()))));
        assert_eq!(states.summary(), Summary { failed: 1, ..Summary::default() });
        assert!(states.set(prefix, None));
        assert!(!states.set(prefix, None));
        assert_eq!(states.summary(), Summary::default());
    }

    #[test]
    fn a_state_says_why() {
        assert_eq!(KernelState::Installed.to_string(), "installed");
        assert_eq!(KernelState::Failed("link is down".into()).to_string(), "failed: link is down");
    }
}
