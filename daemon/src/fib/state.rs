//! What became of a prefix in the kernel, for a person and for the metrics.

use std::{collections::HashMap, fmt, sync::Arc};

use ipnet::IpNet;
use metrics::gauge;

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

/// Every prefix with its state, and the counts.
#[derive(Default)]
pub(super) struct States {
    states: HashMap<IpNet, KernelState>,
    summary: Summary,
}

impl States {
    pub(super) fn get(&self, prefix: &IpNet) -> Option<&KernelState> {
        self.states.get(prefix)
    }

    pub(super) fn all(&self) -> HashMap<IpNet, KernelState> {
        self.states.clone()
    }

    pub(super) fn prefixes(&self) -> Vec<IpNet> {
        self.states.keys().copied().collect()
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }

    /// Records a state; `None`: nothing is left to say about the prefix. Returns whether it is news.
    pub(super) fn set(&mut self, prefix: IpNet, state: Option<KernelState>) -> bool {
        if self.states.get(&prefix) == state.as_ref() {
            return false;
        }
        if let Some(state) = &state {
            *self.counter(state) += 1;
        }
        let old = match state {
            Some(state) => self.states.insert(prefix, state),
            None => self.states.remove(&prefix),
        };
        if let Some(old) = &old {
            *self.counter(old) -= 1;
        }
        true
    }

    /// `isthmus_fib_routes{state}`.
    pub(super) fn publish(&self) {
        let Summary { installed, shadowed, not_wanted, failed, stale } = self.summary;
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
