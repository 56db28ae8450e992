//! `[[bgp.neighbor]]` with `prefix`: whoever connects from it is a neighbor.

use std::{
    net::IpAddr,
    ops::{Range, RangeInclusive},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use isthmus_bgp::{
    dynamic::{Remote, Template},
    fsm::AsnSet,
};
use toml::Spanned;

use super::{
    Config, NeighborConfig, Place, check_asn,
    neighbor::{RawNeighbor, Section},
};
use crate::config::Checker;

/// How many neighbors there may be at once, where the file does not say.
const LIMIT: usize = 100;
/// Each one has buffers, and a session to answer.
const LIMITS: RangeInclusive<usize> = 1..=1000;
/// As long as the keeper of graceful restart has use for it.
const LINGER: Duration = Duration::from_secs(300);
const LINGERS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// A validated `[[bgp.neighbor]]` with `prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateConfig {
    /// Who may come.
    pub template: Template,
    /// What is settled with each of them; its place is the prefix's first address.
    pub settings: NeighborConfig,
}

impl TemplateConfig {
    /// True if a neighbor that came by this template is called so.
    pub fn names(&self, neighbor: &str) -> bool {
        let tail = neighbor.strip_prefix(&*self.template.name).and_then(|tail| tail.strip_prefix('-'));
        let address = tail.and_then(|tail| tail.split('%').next()?.parse::<IpAddr>().ok());
        address.is_some_and(|address| self.template.prefix.contains(&address))
    }

    fn neighbor_at(&self, place: &Place, scope: Option<u32>) -> NeighborConfig {
        let mut neighbor = self.settings.clone();
        neighbor.peer.name = self.template.peer_name(Remote::new(place.address, scope));
        neighbor.peer.address = place.address;
        neighbor.place = place.clone();
        neighbor
    }
}

impl Config {
    /// The neighbor at this place: a configured one, or else what the template of the longest prefix makes of it. `scope`: the index of the
    /// place's interface.
    pub fn neighbor_at(&self, place: &Place, scope: Option<u32>) -> Option<NeighborConfig> {
        let known = self.neighbors.iter().find(|neighbor| neighbor.place == *place);
        known.cloned().or_else(|| {
            let covering = self.templates.iter().filter(|one| one.template.prefix.contains(&place.address));
            let longest = covering.max_by_key(|one| one.template.prefix.prefix_len())?;
            Some(longest.neighbor_at(place, scope))
        })
    }

    /// The template that the neighbor of this name came by; `None`: it is a configured one.
    pub fn template_of(&self, neighbor: &str) -> Option<&TemplateConfig> {
        self.templates.iter().find(|one| one.names(neighbor))
    }

    /// What a neighbor is counted under: its name, or that of its template.
    pub fn counted_under(&self, neighbor: &Arc<str>) -> Arc<str> {
        let template = self.template_of(neighbor);
        Arc::clone(template.map_or(neighbor, |one| &one.template.name))
    }

    /// Every name that something is counted under.
    pub fn counted(&self) -> impl Iterator<Item = &Arc<str>> {
        let templates = self.templates.iter().map(|one| &one.template.name);
        self.neighbors.iter().map(|one| &one.peer.name).chain(templates)
    }
}

impl RawNeighbor {
    /// `None` only if a problem was recorded.
    pub(super) fn check_template(self, c: &mut Checker<'_>, section: &Section<'_>) -> Option<TemplateConfig> {
        self.refuse_what_is_not_for_templates(c);
        let prefix = self.prefix.as_ref().map(|raw| check_prefix(c, raw))?;
        let asns = self.check_asns(c, section.asn);
        let limit = self.limit.as_ref().map_or(Some(LIMIT), |raw| check_limit(c, raw));
        let linger = self.linger.as_ref().map_or(Some(LINGER), |raw| c.duration(raw, LINGERS));
        let place = prefix.map(|prefix| Place { address: prefix.addr(), interface: None });
        let first = asns.as_ref().and_then(|ranges| Some(*ranges.first()?.start()));
        let settings = self.check_settings(c, section, first, place)?;
        let name = settings.peer.name.clone();
        let (prefix, limit, linger, asns) = (prefix?, limit?, linger?, AsnSet::new(asns?));
        Some(TemplateConfig { template: Template { name, prefix, asns, limit, linger }, settings })
    }

    /// What the file says of one that connects from a prefix must make sense for somebody whom we never dial and do not know before.
    fn refuse_what_is_not_for_templates(&self, c: &mut Checker<'_>) {
        let never_dialed = "remove it: who comes by a prefix connects to us, and is never dialed";
        let active = self.passive.as_ref().filter(|passive| !*passive.get_ref());
        let refused = [
            (
                self.address.as_ref().map(Spanned::span),
                "address",
                "remove one: a neighbor has an address or comes by a prefix",
            ),
            (self.port.as_ref().map(Spanned::span), "port", never_dialed),
            (self.local_address.as_ref().map(Spanned::span), "local_address", never_dialed),
            (active.map(Spanned::span), "passive = false", never_dialed),
            (
                self.bfd.as_ref().map(Spanned::span),
                "bfd",
                "remove it, or give the neighbor an entry with its address: a path is watched between two known ends (RFC 5881)",
            ),
        ];
        for (span, key, help) in refused {
            if let Some(span) = span {
                c.problem(span, format!("{key} does not go with prefix"), help);
            }
        }
    }

    /// Keys that are about several neighbors.
    pub(super) fn refuse_what_is_for_templates(&self, c: &mut Checker<'_>) {
        let refused = [
            (self.asns.as_ref().map(Spanned::span), "asns", "write asn, the one number that it has"),
            (
                self.limit.as_ref().map(Spanned::span),
                "limit",
                "remove it, or write prefix instead of address",
            ),
            (
                self.linger.as_ref().map(Spanned::span),
                "linger",
                "remove it, or write prefix instead of address",
            ),
        ];
        for (span, key, help) in refused {
            if let Some(span) = span {
                c.problem(span, format!("{key} is for neighbors by prefix"), help);
            }
        }
    }

    /// Never empty.
    fn check_asns(&self, c: &mut Checker<'_>, own: u32) -> Option<Vec<RangeInclusive<u32>>> {
        match (&self.asn, &self.asns) {
            (Some(asn), None) => check_asn(c, asn).map(|asn| vec![asn..=asn]),
            (None, Some(asns)) => check_ranges(c, asns, own),
            (Some(_), Some(asns)) => {
                c.problem(asns.span(), "asn and asns say the same thing twice", "put all into asns");
                None
            }
            (None, None) => {
                let help = "add asn = 65010, or asns = [\"65000-65100\", 65200]";
                c.problem(self.name.span(), "nothing says which AS numbers these neighbors may have", help);
                None
            }
        }
    }
}

fn check_prefix(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<IpNet> {
    let prefix = c.prefix(raw)?;
    let (first, v4_length) = (prefix.addr(), 96);
    let help = "write the IPv4 or IPv6 prefix that the neighbors' own addresses are in: \"10.0.0.0/24\"";
    let mapped = first.is_ipv6() && first.to_canonical().is_ipv4() && prefix.prefix_len() >= v4_length;
    c.require(!first.is_multicast() && !mapped, raw, "no neighbor connects from such an address", help)
        .then_some(prefix)
}

fn check_limit(c: &mut Checker<'_>, raw: &Spanned<i64>) -> Option<usize> {
    let limit = usize::try_from(*raw.get_ref()).ok().filter(|limit| LIMITS.contains(limit));
    let help = format!("write how many there may be at once, {} to {}", LIMITS.start(), LIMITS.end());
    c.require(limit.is_some(), raw, "this is no limit of neighbors", &help).then_some(limit)?
}

/// Those that come by a template have names made of its own; a configured neighbor must not look like one of them.
pub(super) fn check_names(
    c: &mut Checker<'_>,
    section: Range<usize>,
    neighbors: &[NeighborConfig],
    templates: &[TemplateConfig],
) -> Option<()> {
    for neighbor in neighbors {
        if let Some(template) = templates.iter().find(|one| one.names(&neighbor.peer.name)) {
            let (name, by) = (&neighbor.peer.name, &template.template.name);
            let message = format!("neighbor \"{name}\" is called as one that comes by \"{by}\"");
            c.problem(section, message, "give one of the two another name");
            return None;
        }
    }
    Some(())
}

/// Internal and external neighbors differ in what they are told, so a template is about the one or the other.
fn check_ranges(
    c: &mut Checker<'_>,
    raw: &Spanned<Vec<Spanned<toml::Value>>>,
    own: u32,
) -> Option<Vec<RangeInclusive<u32>>> {
    let ranges: Vec<_> = raw.get_ref().iter().filter_map(|one| check_range(c, one)).collect();
    (ranges.len() == raw.get_ref().len()).then_some(())?;
    let help = "write numbers and ranges: [\"65000-65100\", 65200]";
    c.require(!ranges.is_empty(), raw, "nobody has no AS number", help).then_some(())?;
    let internal = ranges.iter().all(|range| *range == (own..=own));
    let mixed = !internal && ranges.iter().any(|range| range.contains(&own));
    let help = "leave it out, or write asn with it alone: internal neighbors have an entry of their own";
    c.require(!mixed, raw, "our own AS number is among those of others", help).then_some(ranges)
}

/// A number, or `"FIRST-LAST"`.
fn check_range(c: &mut Checker<'_>, raw: &Spanned<toml::Value>) -> Option<RangeInclusive<u32>> {
    let range = match raw.get_ref() {
        toml::Value::Integer(asn) => u32::try_from(*asn).ok().map(|asn| asn..=asn),
        toml::Value::String(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            first.trim().parse().ok().zip(last.trim().parse().ok()).map(|(first, last)| first..=last)
        }
        _ => None,
    };
    let possible = range.filter(|range| *range.start() > 0 && *range.end() < u32::MAX && !range.is_empty());
    let help = "write a number, or \"FIRST-LAST\": \"65000-65100\", from 1 to 4294967294";
    c.require(possible.is_some(), raw, "these are no AS numbers", help).then_some(possible)?
}
