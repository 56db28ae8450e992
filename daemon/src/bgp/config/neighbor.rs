//! `[[bgp.neighbor]]`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use isthmus_bgp::{Families, Family, NextHopMode, PeerConfig, fsm::AddPath, policy::Policy, wire::Role};
use serde::Deserialize;
use toml::Spanned;

use super::{
    Place, Preset, Transport, address, check_asn, check_hold_time,
    policy::Policies,
    preset::{self, PRESETS},
    rule::check_family,
    transport::RawTransport,
};
use crate::config::{Bfd, Checker, RawBfd, check_name, likely};

/// A validated `[[bgp.neighbor]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// What the speaker is told. Its `scope` and `offer.restart` are the shell's to fill in: they depend on the moment.
    pub peer: PeerConfig,
    /// Where it is, as its address says.
    pub place: Place,
    /// How connections with it are made.
    pub transport: Transport,
    /// Watches the path: when it fails the session ends with Cease/10 (RFC 9384).
    pub bfd: Option<Bfd>,
    /// What is agreed about restarts.
    pub graceful_restart: GracefulRestart,
    /// The cloud router that it is.
    pub preset: Option<&'static str>,
    /// What fights the facts of that, for a person; the session is tried all the same.
    pub warnings: Vec<String>,
}

/// A neighbor's part in graceful restart (RFC 4724).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GracefulRestart {
    /// Neither side keeps routes of the other.
    Off,
    /// We keep the neighbor's, and do not ask it to keep ours.
    Helper,
    /// Both keep.
    #[default]
    Full,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNeighbor {
    pub(super) name: Spanned<String>,
    pub(super) address: Option<Spanned<String>>,
    pub(super) prefix: Option<Spanned<String>>,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) asn: Option<Spanned<i64>>,
    pub(super) asns: Option<Spanned<Vec<Spanned<toml::Value>>>>,
    pub(super) limit: Option<Spanned<i64>>,
    pub(super) linger: Option<Spanned<String>>,
    preset: Option<Spanned<String>>,
    import: Option<Spanned<String>>,
    export: Option<Spanned<String>>,
    hold_time: Option<Spanned<String>>,
    pub(super) passive: Option<Spanned<bool>>,
    shutdown: Option<Spanned<String>>,
    pub(super) local_address: Option<Spanned<String>>,
    multihop: Option<Spanned<i64>>,
    ttl_security: Option<Spanned<toml::Value>>,
    password_file: Option<Spanned<PathBuf>>,
    families: Option<Spanned<Vec<Spanned<String>>>>,
    max_prefixes: Option<Spanned<i64>>,
    max_prefixes_out: Option<Spanned<i64>>,
    role: Option<Spanned<String>>,
    strict_role: Option<Spanned<bool>>,
    reflector_client: Option<Spanned<bool>>,
    next_hop_self: Option<bool>,
    add_path: Option<Spanned<String>>,
    #[serde(default)]
    extended_next_hop: bool,
    graceful_restart: Option<Spanned<toml::Value>>,
    #[serde(default)]
    allow_default: bool,
    enforce_first_as: Option<Spanned<bool>>,
    remove_private_as: Option<Spanned<bool>>,
    pub(super) bfd: Option<Spanned<RawBfd>>,
}

/// What a neighbor takes from the section around it.
pub(super) struct Section<'a> {
    pub(super) asn: u32,
    pub(super) hold_time: Duration,
    /// Zero: none.
    pub(super) graceful_restart: Duration,
    /// Prefixes that start here.
    pub(super) announced: usize,
    pub(super) policies: &'a Policies,
}

impl RawNeighbor {
    /// `None` only if a problem was recorded.
    pub(super) fn check(self, c: &mut Checker<'_>, section: &Section<'_>) -> Option<NeighborConfig> {
        self.refuse_what_is_for_templates(c);
        let help = "add address = \"ADDRESS\", or prefix = \"PREFIX\" for whoever connects from there";
        let present = self.address.is_some();
        c.require(present, &self.name, "nothing says where this neighbor is", help);
        let help = "add asn, its AS number";
        // Who wrote asns was told what to write instead.
        let numbered = self.asn.is_some() || self.asns.is_some();
        c.require(numbered, &self.name, "nothing says which AS number this neighbor has", help);
        let place = self.address.as_ref().and_then(|raw| address::check(c, raw));
        let asn = self.asn.as_ref().and_then(|raw| check_asn(c, raw));
        self.check_settings(c, section, asn, place)
    }

    /// What one neighbor has in common with all that come by a prefix. `asn`, `place`: `None` only if a problem was recorded.
    pub(super) fn check_settings(
        mut self,
        c: &mut Checker<'_>,
        section: &Section<'_>,
        asn: Option<u32>,
        place: Option<Place>,
    ) -> Option<NeighborConfig> {
        let preset = self.preset.as_ref().map(|raw| check_preset(c, raw));
        let preset = preset.map_or(Some(None), |found| found.map(Some))?;
        let name = check_name(c, &self.name);
        let external = asn.is_none_or(|asn| asn != section.asn);
        let far = self.multihop.is_some();
        let transport = RawTransport {
            local_address: self.local_address.take(),
            multihop: self.multihop.take(),
            ttl_security: self.ttl_security.take(),
            password_file: self.password_file.take(),
        };
        let transport = transport.check(c, external, place.as_ref(), preset);
        let graceful_restart = self.check_restart(c, section);
        let bfd = self.bfd.as_ref().map_or(Some(None), |raw| raw.get_ref().check(c, far).map(Some));
        self.check_kind(c, external);
        let (name, asn, place) = (name?, asn?, place?);
        let peer = PeerConfig::new(name, place.address, asn);
        let peer = self.check_peer(c, peer, section, preset);
        let (peer, transport, graceful_restart, bfd) = (peer?, transport?, graceful_restart?, bfd?);
        let warnings =
            preset.map(|preset| self.warn(c, preset, &peer, &transport, graceful_restart, section));
        Some(NeighborConfig {
            peer,
            place,
            transport,
            bfd,
            graceful_restart,
            preset: preset.map(|preset| preset.name),
            warnings: warnings.unwrap_or_default(),
        })
    }

    /// Keys that have a meaning for one kind of neighbor only.
    fn check_kind(&self, c: &mut Checker<'_>, external: bool) {
        let is_on = |raw: &Option<Spanned<bool>>| raw.as_ref().filter(|on| *on.get_ref()).map(Spanned::span);
        let for_external = [
            (self.role.as_ref().map(Spanned::span), "role"),
            (self.enforce_first_as.as_ref().map(Spanned::span), "enforce_first_as"),
            (is_on(&self.remove_private_as), "remove_private_as"),
        ];
        for (span, key) in for_external {
            if let (Some(span), false) = (span, external) {
                let help = "remove it, or give asn a number other than our own";
                c.problem(span, format!("{key} is for external neighbors (eBGP)"), help);
            }
        }
        if let (Some(span), true) = (is_on(&self.reflector_client), external) {
            let help = "remove it: only routes between internal neighbors need reflection (RFC 4456)";
            c.problem(span, "reflector_client is for internal neighbors (iBGP)", help);
        }
        if let (Some(span), None) = (is_on(&self.strict_role), &self.role) {
            c.problem(span, "strict_role needs a role", "add role, or remove it (RFC 9234 section 4.2)");
        }
    }

    fn check_peer(
        &self,
        c: &mut Checker<'_>,
        mut peer: PeerConfig,
        section: &Section<'_>,
        preset: Option<&Preset>,
    ) -> Option<PeerConfig> {
        let external = peer.asn != section.asn;
        let (import, export) = self.check_policies(c, section.policies, external);
        let hold_time = self.check_hold_time(c, section, preset);
        let families = self.check_families(c, preset);
        let max_prefixes = check_limit(c, self.max_prefixes.as_ref(), "import = \"none\"");
        let max_prefixes_out = check_limit(c, self.max_prefixes_out.as_ref(), "export = \"none\"");
        let role = self.role.as_ref().map_or(Some(None), |raw| check_role(c, raw).map(Some));
        let shutdown = self.shutdown.as_ref().map_or(Some(None), |raw| check_shutdown(c, raw).map(Some));
        (peer.families, peer.hold_time) = (families?, hold_time?);
        let add_path = self.add_path.as_ref().map(|raw| check_add_path(c, raw, peer.families));
        peer.offer.add_path = add_path.unwrap_or(Some(AddPath::default()))?;
        (peer.import, peer.export) = (import?, export?);
        (peer.offer.role, peer.offer.strict_role) = (role?, is(self.strict_role.as_ref(), false));
        peer.offer.extended_next_hop = self.extended_next_hop;
        peer.guards.max_prefixes = max_prefixes?.or(preset.and_then(|preset| preset.announces));
        peer.guards.allow_default = self.allow_default;
        peer.guards.enforce_first_as = is(self.enforce_first_as.as_ref(), true);
        peer.max_prefixes_out = max_prefixes_out?.or(preset.and_then(|preset| preset.takes));
        (peer.passive, peer.shutdown) = (is(self.passive.as_ref(), self.prefix.is_some()), shutdown?);
        peer.port = self.port.as_ref().map_or(PeerConfig::PORT, |port| *port.get_ref());
        peer.route_reflector_client = is(self.reflector_client.as_ref(), false);
        peer.remove_private_as = is(self.remove_private_as.as_ref(), false);
        peer.next_hop =
            if self.next_hop_self == Some(true) { NextHopMode::SelfAddress } else { NextHopMode::Standard };
        Some(peer)
    }

    fn check_policies(
        &self,
        c: &mut Checker<'_>,
        policies: &Policies,
        external: bool,
    ) -> (Option<Arc<Policy>>, Option<Arc<Policy>>) {
        // Without a policy an external neighbor gets nothing in and nothing out (RFC 8212).
        let default = || Some(if external { Policy::none() } else { Policy::all() });
        let import = self.import.as_ref().map_or_else(default, |raw| policies.find(c, raw));
        let export = self.export.as_ref().map_or_else(default, |raw| policies.find(c, raw));
        (import, export)
    }

    /// In seconds.
    fn check_hold_time(
        &self,
        c: &mut Checker<'_>,
        section: &Section<'_>,
        preset: Option<&Preset>,
    ) -> Option<u16> {
        let of_preset = preset.map(|preset| Duration::from_secs(preset.hold_time.into()));
        let default = of_preset.unwrap_or(section.hold_time);
        let hold_time = self.hold_time.as_ref().map_or(Some(default), |raw| check_hold_time(c, raw))?;
        if let (true, Some(raw), None) = (hold_time.is_zero(), &self.hold_time, &self.bfd) {
            let message =
                "without hold time and BFD only TCP notices that the neighbor is gone, after a minute";
            c.warning(raw.span(), message, "add bfd, or write a hold time");
        }
        Some(u16::try_from(hold_time.as_secs()).expect("check_hold_time allows no more than 65535 s"))
    }

    fn check_families(&self, c: &mut Checker<'_>, preset: Option<&Preset>) -> Option<Families> {
        let Some(raw) = &self.families else {
            let only_v4 = preset.is_some_and(|preset| !preset.ipv6);
            return Some(if only_v4 { [Family::Ipv4Unicast].into_iter().collect() } else { Families::ALL });
        };
        let checked: Vec<_> = raw.get_ref().iter().filter_map(|family| check_family(c, family)).collect();
        (checked.len() == raw.get_ref().len()).then_some(())?;
        let help = "write [\"ipv4\"], [\"ipv6\"] or both; to carry nothing, use shutdown";
        c.require(!checked.is_empty(), raw, "a session without a family carries nothing", help)
            .then(|| checked.into_iter().collect())
    }

    fn check_restart(&self, c: &mut Checker<'_>, section: &Section<'_>) -> Option<GracefulRestart> {
        let Some(raw) = &self.graceful_restart else {
            // Who keeps nothing itself can still help others.
            let off = section.graceful_restart.is_zero();
            return Some(if off { GracefulRestart::Helper } else { GracefulRestart::Full });
        };
        match raw.get_ref() {
            toml::Value::Boolean(false) => Some(GracefulRestart::Off),
            toml::Value::String(text) if text == "helper" => Some(GracefulRestart::Helper),
            toml::Value::Boolean(true) => {
                let help = "give [bgp] graceful_restart a time, or write \"helper\" here";
                let possible = !section.graceful_restart.is_zero();
                let message = "[bgp] graceful_restart says that nothing is kept here";
                c.require(possible, raw, message, help).then_some(GracefulRestart::Full)
            }
            _ => {
                c.problem(
                    raw.span(),
                    "this is no part in graceful restart",
                    "write true, false or \"helper\"",
                );
                None
            }
        }
    }

    fn warn(
        &self,
        c: &mut Checker<'_>,
        preset: &Preset,
        peer: &PeerConfig,
        transport: &Transport,
        graceful_restart: GracefulRestart,
        section: &Section<'_>,
    ) -> Vec<String> {
        let settings = preset::Settings {
            own_asn: section.asn,
            asn: peer.asn,
            hold_time: peer.hold_time,
            passive: peer.passive,
            ttl_security: transport.reach.lowest_ttl().is_some(),
            bfd: self.bfd.is_some(),
            graceful_restart: graceful_restart == GracefulRestart::Full,
            ipv6: peer.families.contains(Family::Ipv6Unicast),
            max_prefixes_out: peer.max_prefixes_out,
            announced: section.announced,
        };
        let at = self.preset.as_ref().map_or(self.name.span(), Spanned::span);
        let mut told = Vec::new();
        for (message, help) in preset.judge(&settings) {
            c.warning(at.clone(), message.as_str(), help.as_str());
            told.push(format!("{message} ({help})"));
        }
        told
    }
}

fn is(raw: Option<&Spanned<bool>>, default: bool) -> bool {
    raw.map_or(default, |raw| *raw.get_ref())
}

fn check_preset(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<&'static Preset> {
    let name = raw.get_ref();
    let found = Preset::named(name);
    if found.is_none() {
        let names = PRESETS.iter().map(|preset| preset.name);
        let help = match likely(name, names.clone()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
        };
        c.problem(raw.span(), format!("there is no preset called \"{}\"", name.escape_debug()), help);
    }
    found
}

#[expect(clippy::option_option, reason = "the two levels are two different facts")]
fn check_limit(c: &mut Checker<'_>, raw: Option<&Spanned<i64>>, none: &str) -> Option<Option<u32>> {
    let Some(raw) = raw else { return Some(None) };
    let limit = u32::try_from(*raw.get_ref()).ok().filter(|limit| *limit > 0);
    let help = format!("use 1 to 4294967295; {none} lets no prefix pass");
    c.require(limit.is_some(), raw, "this is no limit of prefixes", &help).then_some(limit)
}

fn check_role(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Role> {
    let found = Role::ALL.into_iter().find(|role| role.to_string() == *raw.get_ref());
    if found.is_none() {
        let names = Role::ALL.map(|role| format!("\"{role}\"")).join(", ");
        let message = format!("\"{}\" is no role", raw.get_ref().escape_debug());
        c.problem(raw.span(), message, format!("say what this node is to the neighbor: {names}"));
    }
    found
}

fn check_add_path(c: &mut Checker<'_>, raw: &Spanned<String>, families: Families) -> Option<AddPath> {
    let (send, receive) = match raw.get_ref().as_str() {
        "send" => (families, Families::NONE),
        "receive" => (Families::NONE, families),
        "both" => (families, families),
        _ => {
            let help = "write \"send\", \"receive\" or \"both\" (RFC 7911)";
            c.problem(raw.span(), "this is no direction for add-path", help);
            return None;
        }
    };
    Some(AddPath { send, receive })
}

fn check_shutdown(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Arc<str>> {
    let text = raw.get_ref();
    let fits = text.len() <= 255 && !text.chars().any(char::is_control);
    let help = "use at most 255 bytes on one line; \"\" says nothing (RFC 9003)";
    c.require(fits, raw, "the neighbor cannot be told this", help).then(|| text.as_str().into())
}
