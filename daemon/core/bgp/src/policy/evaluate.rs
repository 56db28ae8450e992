//! A route on its way through the rules.

use std::{borrow::Cow, fmt};

use ipnet::IpNet;

use super::{Action, NextHopChange, Policy, Rule, condition::Mismatch};
use crate::wire::Attributes;

/// A route as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Its prefix.
    pub prefix: IpNet,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Configured name of the neighbor that it was learned from; `None`: it starts here.
    pub neighbor: Option<&'a str>,
    /// Our own AS number, for what is prepended.
    pub local_asn: u32,
}

/// What a policy says about a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes.
    Accept(Accepted),
    /// It does not.
    Reject {
        /// The rule that says so, counted from 0; `None`: no rule decided.
        rule: Option<usize>,
    },
}

/// A route that passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The rule that says so, counted from 0.
    pub rule: usize,
    /// Its attributes, if a rule changed them.
    pub attributes: Option<Attributes>,
    /// The last change of its next hop, which only the session can carry out.
    pub next_hop: Option<NextHopChange>,
}

/// One rule's part in the outcome. Rules are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// It did not concern the route.
    Passed {
        /// Which.
        rule: usize,
        /// Why not.
        why: Mismatch,
    },
    /// It did.
    Matched {
        /// Which.
        rule: usize,
        /// And so.
        action: Action,
    },
}

/// Everything that happened to a route, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Rule by rule.
    pub steps: Vec<TraceStep>,
    /// The end.
    pub outcome: Outcome,
}

impl Policy {
    /// Sends a route through the rules.
    pub fn evaluate(&self, route: &Route<'_>) -> Outcome {
        self.walk(route, |_| {})
    }

    /// The same, with what each rule did.
    pub fn explain(&self, route: &Route<'_>) -> Trace {
        let mut steps = Vec::new();
        let outcome = self.walk(route, |step| steps.push(step));
        Trace { steps, outcome }
    }

    /// What the outcome depends on besides attributes and source: for prefixes with the same answer it is the same. `None`: too many
    /// rules ask for prefixes to tell.
    pub fn prefix_class(&self, prefix: &IpNet) -> Option<u64> {
        let mut class = 0;
        let asking = self.rules.iter().filter(|rule| rule.condition.asks_for_prefix());
        for (place, rule) in asking.enumerate() {
            let place = u32::try_from(place).ok().and_then(|place| 1u64.checked_shl(place))?;
            class |= if rule.condition.matches_prefix(prefix) { place } else { 0 };
        }
        Some(class)
    }

    fn walk(&self, route: &Route<'_>, mut note: impl FnMut(TraceStep)) -> Outcome {
        let mut attributes = Cow::Borrowed(route.attributes);
        let mut next_hop = None;
        for (rule, Rule { condition, change, action }) in self.rules.iter().enumerate() {
            let seen = Route { attributes: &attributes, ..*route };
            if let Some(why) = condition.mismatch(&seen) {
                note(TraceStep::Passed { rule, why });
                continue;
            }
            note(TraceStep::Matched { rule, action: *action });
            if *action == Action::Reject {
                return Outcome::Reject { rule: Some(rule) };
            }
            if !change.is_empty() {
                change.apply(attributes.to_mut(), route.local_asn);
            }
            next_hop = change.next_hop.or(next_hop);
            if *action == Action::Accept {
                let attributes = match attributes {
                    Cow::Owned(changed) => Some(changed),
                    Cow::Borrowed(_) => None,
                };
                return Outcome::Accept(Accepted { rule, attributes, next_hop });
            }
        }
        Outcome::Reject { rule: None }
    }
}

impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { rule, why } => write!(f, "rule {}: other {why}", rule + 1),
            Self::Matched { rule, action } => {
                let action = match action {
                    Action::Accept => "accepts",
                    Action::Reject => "rejects",
                    Action::Next => "matches, and others decide",
                };
                write!(f, "rule {} {action}", rule + 1)
            }
        }
    }
}
