//! One rule of a policy: what a route must be like, what is changed on it, and what then.

use std::{collections::HashSet, fmt::Display, net::IpAddr, ops::RangeInclusive, str::FromStr, sync::Arc};

use ipnet::IpNet;
use isthmus_bgp::{
    Family,
    policy::{
        Action, AsPathCondition, Change, Condition, ListChange, ListCondition, MedChange, NextHopChange,
        PrefixPattern, Prepend, Rule,
    },
    wire::Origin,
};
use serde::Deserialize;
use toml::Spanned;

use crate::config::{Checker, likely};

type Texts = Vec<Spanned<String>>;
type Numbers = Vec<Spanned<i64>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    prefix: Option<Spanned<String>>,
    ge: Option<Spanned<i64>>,
    le: Option<Spanned<i64>>,
    #[serde(default)]
    prefixes: Texts,
    family: Option<Spanned<String>>,
    #[serde(default)]
    neighbors: Texts,
    originated: Option<bool>,
    #[serde(default)]
    next_hops: Texts,
    origin: Option<Spanned<String>>,
    #[serde(default)]
    as_path: Texts,
    #[serde(default)]
    as_path_contains: Numbers,
    #[serde(default)]
    origin_as: Numbers,
    #[serde(default)]
    neighbor_as: Numbers,
    as_path_length: Option<Spanned<toml::Value>>,
    #[serde(default)]
    communities: Texts,
    #[serde(default)]
    all_communities: Texts,
    #[serde(default)]
    large_communities: Texts,
    #[serde(default)]
    all_large_communities: Texts,
    local_pref: Option<Spanned<i64>>,
    med: Option<Spanned<toml::Value>>,
    prepend: Option<Spanned<i64>>,
    prepend_as: Option<Spanned<i64>>,
    #[serde(default)]
    add_communities: Texts,
    #[serde(default)]
    remove_communities: Texts,
    #[serde(default)]
    add_large_communities: Texts,
    #[serde(default)]
    remove_large_communities: Texts,
    next_hop: Option<Spanned<String>>,
    action: Spanned<String>,
}

impl RawRule {
    /// `None` only if a problem was recorded.
    pub(super) fn check(
        raw: Spanned<Self>,
        c: &mut Checker<'_>,
        neighbors: &HashSet<String>,
    ) -> Option<Rule> {
        let (span, raw) = (raw.span(), raw.into_inner());
        let condition = raw.condition(c, neighbors);
        let change = raw.change(c);
        let action = match raw.action.get_ref().as_str() {
            "accept" => Action::Accept,
            "reject" => Action::Reject,
            "next" => Action::Next,
            _ => {
                let help = "write \"accept\", \"reject\", or \"next\" for the following rules to decide";
                c.problem(raw.action.span(), "this is no action", help);
                return None;
            }
        };
        let (condition, change) = (condition?, change?);
        if action == Action::Reject && change != Change::default() {
            let help = "remove what it changes, or write action = \"accept\" or \"next\"";
            c.problem(span, "this rule changes routes and then rejects them", help);
            return None;
        }
        Some(Rule { condition, change, action })
    }

    fn condition(&self, c: &mut Checker<'_>, known: &HashSet<String>) -> Option<Condition> {
        let prefixes = self.check_prefixes(c);
        let family = optional(self.family.as_ref(), |raw| check_family(c, raw));
        let neighbors = all(&self.neighbors, |raw| check_neighbor(c, raw, known));
        let next_hops = all(&self.next_hops, |raw| check_net(c, raw));
        let origin = optional(self.origin.as_ref(), |raw| check_origin(c, raw));
        let as_path = self.check_as_path(c);
        let communities = list(c, &self.communities, &self.all_communities);
        let large_communities = list(c, &self.large_communities, &self.all_large_communities);
        Some(Condition {
            prefixes: prefixes?,
            family: family?,
            neighbors: neighbors?,
            originated: self.originated,
            next_hops: next_hops?,
            origin: origin?,
            as_path: as_path?,
            communities: communities?,
            large_communities: large_communities?,
        })
    }

    fn check_prefixes(&self, c: &mut Checker<'_>) -> Option<Vec<PrefixPattern>> {
        for bound in self.ge.iter().chain(&self.le).filter(|_| self.prefix.is_none()) {
            c.problem(
                bound.span(),
                "ge and le are about prefix",
                "add prefix, or write \"10.0.0.0/8 le 24\"",
            );
        }
        let single = optional(self.prefix.as_ref(), |raw| {
            let prefix = c.prefix(raw)?;
            let ge = optional(self.ge.as_ref(), |raw| number(c, raw, 0..=128))?;
            let le = optional(self.le.as_ref(), |raw| number(c, raw, 0..=128))?;
            bounded(c, raw, prefix, ge, le)
        });
        let several = all(&self.prefixes, |raw| check_pattern(c, raw));
        Some(single?.into_iter().chain(several?).collect())
    }

    fn check_as_path(&self, c: &mut Checker<'_>) -> Option<AsPathCondition> {
        let patterns =
            all(&self.as_path, |raw| parsed(c, raw, "see as_path in docs/reference/bgp-policy.md"));
        let mut asns = |raw: &Numbers| all(raw, |raw| number(c, raw, 1..=u32::MAX));
        let (contains, origin, neighbor) =
            (asns(&self.as_path_contains), asns(&self.origin_as), asns(&self.neighbor_as));
        let length = optional(self.as_path_length.as_ref(), |raw| check_length(c, raw));
        Some(AsPathCondition {
            contains: contains?,
            origin: origin?,
            neighbor: neighbor?,
            length: length?,
            patterns: patterns?,
        })
    }

    fn change(&self, c: &mut Checker<'_>) -> Option<Change> {
        let local_pref = optional(self.local_pref.as_ref(), |raw| number(c, raw, 0..=u32::MAX));
        let med = optional(self.med.as_ref(), |raw| check_med(c, raw));
        let prepend = self.check_prepend(c);
        let communities = changes(c, &self.remove_communities, &self.add_communities);
        let large_communities = changes(c, &self.remove_large_communities, &self.add_large_communities);
        let next_hop = optional(self.next_hop.as_ref(), |raw| check_next_hop(c, raw));
        Some(Change {
            local_pref: local_pref?,
            med: med?,
            prepend: prepend?,
            communities: communities?,
            large_communities: large_communities?,
            next_hop: next_hop?,
        })
    }

    #[expect(clippy::option_option, reason = "the two levels are two different facts")]
    fn check_prepend(&self, c: &mut Checker<'_>) -> Option<Option<Prepend>> {
        if let (None, Some(raw)) = (&self.prepend, &self.prepend_as) {
            c.problem(raw.span(), "prepend_as says which AS, and nothing how often", "add prepend = 1 to 32");
            return None;
        }
        let longest = u32::from(Prepend::MAX_COUNT);
        let count = optional(self.prepend.as_ref(), |raw| number(c, raw, 1..=longest))?;
        let asn = optional(self.prepend_as.as_ref(), |raw| number(c, raw, 1..=u32::MAX))?;
        Some(count.map(|count| Prepend { asn, count: u8::try_from(count).unwrap_or(Prepend::MAX_COUNT) }))
    }
}

/// What is absent is fine (`Some(None)`).
#[expect(clippy::option_option, reason = "the two levels are two different facts")]
fn optional<R, T>(raw: Option<&R>, check: impl FnOnce(&R) -> Option<T>) -> Option<Option<T>> {
    raw.map_or(Some(None), |raw| check(raw).map(Some))
}

/// Each is checked, whatever is wrong with the others.
fn all<R, T>(raw: &[R], check: impl FnMut(&R) -> Option<T>) -> Option<Vec<T>> {
    let checked: Vec<_> = raw.iter().filter_map(check).collect();
    (checked.len() == raw.len()).then_some(checked)
}

fn number(c: &mut Checker<'_>, raw: &Spanned<i64>, range: RangeInclusive<u32>) -> Option<u32> {
    let number = u32::try_from(*raw.get_ref()).ok().filter(|number| range.contains(number));
    let help = format!("write a number from {} to {}", range.start(), range.end());
    c.require(number.is_some(), raw, "this number is out of range", &help);
    number
}

fn parsed<T: FromStr<Err: Display>>(c: &mut Checker<'_>, raw: &Spanned<String>, help: &str) -> Option<T> {
    raw.get_ref().parse().map_err(|error: T::Err| c.problem(raw.span(), error.to_string(), help)).ok()
}

/// `10.0.0.0/8`, `10.0.0.0/8 le 24`, `10.0.0.0/8 ge 16 le 24`.
fn check_pattern(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<PrefixPattern> {
    let words: Vec<_> = raw.get_ref().split_whitespace().collect();
    let (prefix, ge, le) = match words[..] {
        [prefix] => (prefix, None, None),
        [prefix, "ge", ge] => (prefix, Some(ge), None),
        [prefix, "le", le] => (prefix, None, Some(le)),
        [prefix, "ge", ge, "le", le] => (prefix, Some(ge), Some(le)),
        _ => ("", None, None),
    };
    let length = |text: Option<&str>| text.map_or(Some(None), |text| text.parse::<u32>().ok().map(Some));
    let (Some(ge), Some(le), false) = (length(ge), length(le), prefix.is_empty()) else {
        let help = "write \"10.0.0.0/8\", \"10.0.0.0/8 le 24\" or \"10.0.0.0/8 ge 16 le 24\"";
        c.problem(raw.span(), "this describes no prefixes", help);
        return None;
    };
    let prefix = c.prefix(&Spanned::new(raw.span(), prefix.to_owned()))?;
    bounded(c, raw, prefix, ge, le)
}

fn bounded(
    c: &mut Checker<'_>,
    raw: &Spanned<String>,
    prefix: IpNet,
    ge: Option<u32>,
    le: Option<u32>,
) -> Option<PrefixPattern> {
    // What is larger than any length fits no prefix.
    let length = |bound: Option<u32>| bound.map(|bound| u8::try_from(bound).unwrap_or(u8::MAX));
    let pattern = PrefixPattern::with_bounds(prefix, length(ge), length(le));
    let message = format!("no prefix within {prefix} has such a length");
    let help =
        format!("use lengths from {} to {}, ge not above le", prefix.prefix_len(), prefix.max_prefix_len());
    c.require(pattern.is_some(), raw, &message, &help);
    pattern
}

fn check_net(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<IpNet> {
    match raw.get_ref().parse::<IpAddr>() {
        Ok(address) => Some(address.into()),
        Err(_) => c.prefix(raw),
    }
}

pub(super) fn check_family(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Family> {
    match raw.get_ref().as_str() {
        "ipv4" => Some(Family::Ipv4Unicast),
        "ipv6" => Some(Family::Ipv6Unicast),
        _ => {
            c.problem(raw.span(), "this is no address family", "write \"ipv4\" or \"ipv6\"");
            None
        }
    }
}

fn check_neighbor(c: &mut Checker<'_>, raw: &Spanned<String>, known: &HashSet<String>) -> Option<Arc<str>> {
    let name = raw.get_ref().as_str();
    if known.contains(name) {
        return Some(name.into());
    }
    let help = match likely(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => "name a [[bgp.neighbor]] that has an address".into(),
    };
    c.problem(raw.span(), format!("there is no neighbor called \"{}\"", name.escape_debug()), help);
    None
}

fn check_origin(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Origin> {
    match raw.get_ref().as_str() {
        "igp" => Some(Origin::Igp),
        "egp" => Some(Origin::Egp),
        "incomplete" => Some(Origin::Incomplete),
        _ => {
            c.problem(raw.span(), "this is no ORIGIN", "write \"igp\", \"egp\" or \"incomplete\"");
            None
        }
    }
}

/// `3`, or `"1-3"`.
fn check_length(c: &mut Checker<'_>, raw: &Spanned<toml::Value>) -> Option<RangeInclusive<u32>> {
    let range = match raw.get_ref() {
        toml::Value::Integer(length) => u32::try_from(*length).ok().map(|length| length..=length),
        toml::Value::String(text) => text.split_once('-').and_then(|(first, last)| {
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some(first..=last)
        }),
        _ => None,
    };
    let help = "write how many ASes, 3, or from how many to how many, \"1-3\"";
    c.require(range.is_some(), raw, "this is no length of a path", help);
    range
}

/// `50`, `"+50"`, `"-50"`, `"remove"`.
fn check_med(c: &mut Checker<'_>, raw: &Spanned<toml::Value>) -> Option<MedChange> {
    let change = match raw.get_ref() {
        toml::Value::Integer(med) => u32::try_from(*med).ok().map(MedChange::Set),
        toml::Value::String(text) if text == "remove" => Some(MedChange::Remove),
        toml::Value::String(text) => match text.split_at_checked(1) {
            Some(("+", more)) => more.parse().ok().map(MedChange::Add),
            Some(("-", less)) => less.parse().ok().map(MedChange::Subtract),
            _ => None,
        },
        _ => None,
    };
    let help = "write a number up to 4294967295, \"+50\", \"-50\" or \"remove\"";
    c.require(change.is_some(), raw, "this is no change of a MED", help);
    change
}

fn check_next_hop(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<NextHopChange> {
    match raw.get_ref().as_str() {
        "self" => Some(NextHopChange::SelfAddress),
        "peer" => Some(NextHopChange::PeerAddress),
        "unchanged" => Some(NextHopChange::Unchanged),
        address => {
            let address = address.parse::<IpAddr>().ok().filter(|address| !address.is_unspecified());
            let help = "write \"self\", \"peer\", \"unchanged\" or an address";
            c.require(address.is_some(), raw, "this is no next hop", help);
            address.map(NextHopChange::Address)
        }
    }
}

const COMMUNITIES: &str = "see communities in docs/reference/bgp-policy.md";

fn list<P: FromStr<Err: Display>>(
    c: &mut Checker<'_>,
    any: &Texts,
    every: &Texts,
) -> Option<ListCondition<P>> {
    let any = all(any, |raw| parsed(c, raw, COMMUNITIES));
    let every = all(every, |raw| parsed(c, raw, COMMUNITIES));
    Some(ListCondition { any: any?, all: every? })
}

fn changes<P: FromStr<Err: Display>, T: FromStr<Err: Display>>(
    c: &mut Checker<'_>,
    remove: &Texts,
    add: &Texts,
) -> Option<ListChange<P, T>> {
    let remove = all(remove, |raw| parsed(c, raw, COMMUNITIES));
    let add = all(add, |raw| parsed(c, raw, COMMUNITIES));
    Some(ListChange { remove: remove?, add: add? })
}
