//! `[[bgp.policy]]`: named lists of rules.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashSet},
    ops::Range,
    sync::Arc,
};

use isthmus_bgp::policy::Policy;
use serde::Deserialize;
use toml::Spanned;

use super::rule::RawRule;
use crate::config::{Checker, check_name, likely};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicy {
    name: Spanned<String>,
    #[serde(default)]
    rules: Vec<Spanned<RawRule>>,
}

/// The policies by name, the built-in ones too.
pub(super) struct Policies {
    by_name: BTreeMap<String, Known>,
}

struct Known {
    /// `None`: a problem of it was recorded.
    policy: Option<Arc<Policy>>,
    /// Where its name stands; `None`: built in.
    named: Option<Range<usize>>,
    used: Cell<bool>,
}

impl Policies {
    /// `None` only if a problem was recorded.
    pub(super) fn check(c: &mut Checker<'_>, raw: Vec<RawPolicy>, neighbors: &HashSet<String>) -> Self {
        let built_in = |policy: Arc<Policy>| {
            (policy.name().to_string(), Known { policy: Some(policy), named: None, used: Cell::new(true) })
        };
        let mut by_name = BTreeMap::from([Policy::all(), Policy::none()].map(built_in));
        for raw in raw {
            let name = check_name(c, &raw.name).filter(|_| is_new(c, &raw.name, &by_name));
            let (span, policy) = (raw.name.span(), raw.check(c, neighbors));
            if let Some(name) = name {
                by_name.insert(name, Known { policy, named: Some(span), used: Cell::new(false) });
            }
        }
        Self { by_name }
    }

    /// The policy that a neighbor names.
    pub(super) fn find(&self, c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Arc<Policy>> {
        let name = raw.get_ref();
        if let Some(known) = self.by_name.get(name) {
            known.used.set(true);
            return known.policy.clone();
        }
        let names = self.by_name.keys().map(String::as_str);
        let help = match likely(name, names.clone()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
        };
        c.problem(raw.span(), format!("there is no policy called \"{}\"", name.escape_debug()), help);
        None
    }

    /// Who writes a policy means it to be used.
    pub(super) fn warn_unused(&self, c: &mut Checker<'_>) {
        for (name, known) in &self.by_name {
            if let (Some(span), false) = (&known.named, known.used.get()) {
                let message = format!("no neighbor uses the policy \"{name}\"");
                c.warning(span.clone(), message, "name it in import or export of a neighbor, or remove it");
            }
        }
    }
}

fn is_new(c: &mut Checker<'_>, raw: &Spanned<String>, known: &BTreeMap<String, Known>) -> bool {
    let name = raw.get_ref();
    match known.get(name) {
        None => true,
        Some(known) if known.named.is_none() => {
            c.problem(raw.span(), format!("\"{name}\" is built in"), "give the policy another name");
            false
        }
        Some(_) => {
            c.problem(raw.span(), format!("a second policy is called \"{name}\""), "give each its own name");
            false
        }
    }
}

impl RawPolicy {
    fn check(self, c: &mut Checker<'_>, neighbors: &HashSet<String>) -> Option<Arc<Policy>> {
        let count = self.rules.len();
        let rules: Vec<_> =
            self.rules.into_iter().filter_map(|raw| RawRule::check(raw, c, neighbors)).collect();
        (rules.len() == count).then_some(())?;
        match Policy::new(self.name.get_ref().as_str(), rules) {
            Ok(policy) => Some(Arc::new(policy)),
            Err(error) => {
                let help =
                    "a shorter list does it faster: put prefixes together with le, or split the policy";
                c.problem(self.name.span(), format!("this policy is too large: {error}"), help);
                None
            }
        }
    }
}
