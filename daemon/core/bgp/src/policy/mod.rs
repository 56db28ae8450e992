//! Policies: which routes pass, and with what changes.
//!
//! A [`Policy`] is a list of [`Rule`]s. The first rule that a route matches decides, unless its action is [`Action::Next`]: then its
//! changes are made, and the following rules see the changed route. A route that no rule decides about is rejected, as an external
//! session without any policy rejects everything (RFC 8212).
//!
//! An import policy sees the route as the neighbor sent it. An export policy sees the route as it is used here, before our own AS
//! is put on its path and before the next hop becomes ours; towards an external neighbor it starts without the MED that another AS gave
//! it (RFC 4271 section 5.1.4).

mod as_path;
mod change;
mod community;
mod condition;
mod evaluate;

use std::sync::{Arc, LazyLock};

pub use as_path::{AsPathCondition, AsPathPattern};
pub use change::{Change, ListChange, MedChange, NextHopChange, Prepend};
pub use community::{CommunityPattern, LargeCommunityPattern, ListCondition};
pub use condition::{Condition, PrefixPattern};
pub use evaluate::{Accepted, Outcome, Route, Trace, TraceStep};

/// A named list of rules. Bounded: [`Policy::new`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Arc<str>,
    rules: Vec<Rule>,
}

/// What is done with the routes that match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Which routes.
    pub condition: Condition,
    /// What is changed on them; not looked at when they are rejected.
    pub change: Change,
    /// What then.
    pub action: Action,
}

/// The end of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The route passes.
    Accept,
    /// It does not.
    Reject,
    /// The following rules decide.
    Next,
}

/// A policy that is too large to be looked through for each route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} {what}, and at most {limit} are possible")]
pub struct TooLarge {
    /// What there is too much of.
    pub what: &'static str,
    /// How much.
    pub count: usize,
    /// The most that is possible.
    pub limit: usize,
}

impl Policy {
    /// Most rules of a policy.
    pub const MAX_RULES: usize = 1000;
    /// Most entries in all lists of a policy: prefixes, AS numbers, communities, names.
    pub const MAX_ENTRIES: usize = 20_000;

    /// A policy of these rules.
    ///
    /// # Errors
    /// More than [`Policy::MAX_RULES`], [`Policy::MAX_ENTRIES`] or [`Prepend::MAX_COUNT`].
    pub fn new(name: impl Into<Arc<str>>, rules: Vec<Rule>) -> Result<Self, TooLarge> {
        let entries = rules.iter().map(|rule| rule.condition.entries() + rule.change.entries()).sum();
        let prepended = rules.iter().map(|rule| rule.change.prepended()).max().unwrap_or(0);
        check("rules", rules.len(), Self::MAX_RULES)?;
        check("list entries", entries, Self::MAX_ENTRIES)?;
        check("AS numbers to prepend", prepended, usize::from(Prepend::MAX_COUNT))?;
        Ok(Self { name: name.into(), rules })
    }

    /// The built-in policy "all": every route passes, unchanged.
    pub fn all() -> Arc<Self> {
        static ALL: LazyLock<Arc<Policy>> = LazyLock::new(|| {
            let accept =
                Rule { condition: Condition::default(), change: Change::default(), action: Action::Accept };
            Arc::new(Policy { name: "all".into(), rules: vec![accept] })
        });
        Arc::clone(&ALL)
    }

    /// The built-in policy "none": no route passes.
    pub fn none() -> Arc<Self> {
        static NONE: LazyLock<Arc<Policy>> =
            LazyLock::new(|| Arc::new(Policy { name: "none".into(), rules: Vec::new() }));
        Arc::clone(&NONE)
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its rules; people count them from 1.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl Default for Rule {
    /// Rejects everything.
    fn default() -> Self {
        Self { condition: Condition::default(), change: Change::default(), action: Action::Reject }
    }
}

fn check(what: &'static str, count: usize, limit: usize) -> Result<(), TooLarge> {
    if count > limit { Err(TooLarge { what, count, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
