//! What cloud routers do, whatever we would like: defaults for sessions with them, and warnings for settings that fight the facts.
//!
//! Each row's facts are in docs/reference/bgp-presets.md with where they come from; change both together.

use std::{num::NonZeroU8, ops::RangeInclusive};

/// One kind of cloud router.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// As `preset` in the configuration names it.
    pub name: &'static str,
    /// Hold time in seconds to offer.
    pub(super) hold_time: u16,
    /// The router keeps its own timers: what we offer below that ends sessions that are well.
    pub(super) fixed_timers: bool,
    /// It answers and never dials.
    pub(super) waits: bool,
    /// How far away it is; `None`: on a link of ours.
    pub(super) multihop: Option<NonZeroU8>,
    /// It has BFD for such sessions.
    pub(super) bfd: bool,
    /// It carries IPv6, too.
    pub(super) ipv6: bool,
    /// Its AS number, where nobody can choose it.
    pub(super) asn: Option<u32>,
    /// Peers may have 2-octet AS numbers only.
    pub(super) two_octet: bool,
    /// AS numbers that it refuses as a peer's.
    pub(super) refused: &'static [RangeInclusive<u32>],
    /// Prefixes that it takes before it ends the session.
    pub(super) takes: Option<u32>,
    /// Prefixes that it may announce.
    pub(super) announces: Option<u32>,
    /// Its maker advises against graceful restart beside BFD.
    pub(super) restart_or_bfd: bool,
}

const fn hops(hops: u8) -> Option<NonZeroU8> {
    NonZeroU8::new(hops)
}

/// What Azure keeps for itself (Microsoft Learn, "About BGP and VPN Gateway").
const AZURE_REFUSES: &[RangeInclusive<u32>] = &[8074..=8075, 12076..=12076, 65515..=65515, 65517..=65520];

/// Every preset, by name.
pub(super) const PRESETS: [Preset; 5] = [
    // Site-to-site VPN (generated device configurations carry hold 30) and Connect (GRE, needs TTL 2) on a transit gateway.
    // 1,000 prefixes in, 5,000 out; the generated configurations have no BFD.
    Preset {
        name: "aws-tgw",
        hold_time: 30,
        fixed_timers: false,
        waits: false,
        multihop: hops(2),
        bfd: false,
        ipv6: true,
        asn: None,
        two_octet: false,
        refused: &[],
        takes: Some(1000),
        announces: Some(5000),
        restart_or_bfd: true,
    },
    // In the VPC without a tunnel. The appliance dials; liveness by BFD or keepalives; persist-routes stands in for graceful restart.
    Preset {
        name: "aws-route-server",
        hold_time: 30,
        fixed_timers: false,
        waits: true,
        multihop: hops(2),
        bfd: true,
        ipv6: true,
        asn: None,
        two_octet: false,
        refused: &[],
        takes: None,
        announces: None,
        restart_or_bfd: true,
    },
    // 60/180 that follow no lower offer; to the address in GatewaySubnet, or to a link-local one, which it doesn't dial.
    // 4,000 prefixes, then it ends the session. No BFD.
    Preset {
        name: "azure-vpn-gateway",
        hold_time: 180,
        fixed_timers: true,
        waits: true,
        multihop: hops(255),
        bfd: false,
        ipv6: false,
        asn: None,
        two_octet: false,
        refused: AZURE_REFUSES,
        takes: Some(4000),
        announces: None,
        restart_or_bfd: false,
    },
    // Both instances, several hops away, 60/180, IPv4, always AS 65515, and 16-bit AS numbers only. No BFD.
    Preset {
        name: "azure-route-server",
        hold_time: 180,
        fixed_timers: true,
        waits: false,
        multihop: hops(255),
        bfd: false,
        ipv6: false,
        asn: Some(65515),
        two_octet: true,
        refused: AZURE_REFUSES,
        takes: None,
        announces: None,
        restart_or_bfd: false,
    },
    // 20/60 on a /30 of 169.254/16, or within a VPC, whose subnets have a router between any two machines: TTL 2, which does no harm
    // on a VPN. BFD on Interconnect only, neither on HA VPN nor for router appliances.
    Preset {
        name: "gcp-cloud-router",
        hold_time: 60,
        fixed_timers: false,
        waits: false,
        multihop: hops(2),
        bfd: false,
        ipv6: true,
        asn: None,
        two_octet: false,
        refused: &[],
        takes: None,
        announces: None,
        restart_or_bfd: false,
    },
];

/// A neighbor's settings, as far as presets judge them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) own_asn: u32,
    pub(super) asn: u32,
    /// Seconds; 0: none.
    pub(super) hold_time: u16,
    pub(super) passive: bool,
    pub(super) ttl_security: bool,
    pub(super) bfd: bool,
    pub(super) graceful_restart: bool,
    pub(super) ipv6: bool,
    pub(super) max_prefixes_out: Option<u32>,
    /// Prefixes that start here.
    pub(super) announced: usize,
}

impl Preset {
    /// The preset of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// What in these settings cannot work with such a router, or not as well as it looks; each with its remedy.
    pub(super) fn judge(&self, settings: &Settings) -> Vec<(String, String)> {
        let all = [
            self.judge_own_asn(settings),
            self.judge_asn(settings),
            self.judge_hold_time(settings),
            self.judge_dialing(settings),
            self.judge_distance(settings),
            self.judge_bfd(settings),
            self.judge_restart(settings),
            self.judge_families(settings),
            self.judge_amount(settings),
        ];
        let owned = |(message, help): (String, &str)| (format!("{}: {message}", self.name), help.to_owned());
        all.into_iter().flatten().map(owned).collect()
    }

    fn judge_own_asn(&self, s: &Settings) -> Verdict {
        let own = s.own_asn;
        if self.refused.iter().any(|range| range.contains(&own)) {
            return warn(
                format!("AS {own} is reserved there, so our OPEN is refused"),
                "use another AS number",
            );
        }
        (self.two_octet && own > u32::from(u16::MAX)).then_some(())?;
        let message = format!("it takes 16-bit AS numbers only, and ours is {own}");
        warn(message, "use one of 64512 to 65514 on the nodes that peer with it")
    }

    fn judge_asn(&self, s: &Settings) -> Verdict {
        if s.asn == s.own_asn {
            let message =
                "it has our AS number: what we announce over iBGP it does not use as it would eBGP's";
            return warn(message.into(), "give the two different AS numbers");
        }
        let fixed = self.asn.filter(|asn| *asn != s.asn)?;
        warn(format!("its AS number is always {fixed}, not {}", s.asn), "correct asn")
    }

    fn judge_hold_time(&self, s: &Settings) -> Verdict {
        let lowered = self.fixed_timers && s.hold_time != 0 && s.hold_time < self.hold_time;
        let message = format!(
            "it sends a KEEPALIVE every {} s whatever we offer, so a hold time of {} s ends sessions that are well",
            self.hold_time / 3,
            s.hold_time
        );
        if lowered {
            return warn(message, "remove hold_time: the preset has the one that goes with it");
        }
        (s.hold_time == 0).then_some(())?;
        warn("without a hold time nobody notices when it is gone".into(), "remove hold_time")
    }

    fn judge_dialing(&self, s: &Settings) -> Verdict {
        (self.waits && s.passive).then_some(())?;
        warn("it never dials, so with passive there is no session".into(), "remove passive")
    }

    fn judge_distance(&self, s: &Settings) -> Verdict {
        s.ttl_security.then_some(())?;
        warn("it does not send with TTL 255, so ttl_security drops all it says".into(), "remove ttl_security")
    }

    fn judge_bfd(&self, s: &Settings) -> Verdict {
        (s.bfd && !self.bfd).then_some(())?;
        warn("it has no BFD for such sessions, so it never answers ours".into(), "remove bfd")
    }

    fn judge_restart(&self, s: &Settings) -> Verdict {
        (s.bfd && self.bfd && self.restart_or_bfd && s.graceful_restart).then_some(())?;
        let message =
            "its maker advises BFD or graceful restart, not both: the one ends what the other keeps";
        warn(message.into(), "add graceful_restart = false, or remove bfd")
    }

    fn judge_families(&self, s: &Settings) -> Verdict {
        (s.ipv6 && !self.ipv6).then_some(())?;
        warn("it carries IPv4 only".into(), "remove families, or write families = [\"ipv4\"]")
    }

    fn judge_amount(&self, s: &Settings) -> Verdict {
        let takes = self.takes?;
        let bound = s.max_prefixes_out.unwrap_or(takes);
        let announced = u32::try_from(s.announced).unwrap_or(u32::MAX);
        if announced > takes {
            let message = format!("it takes {takes} prefixes, and {announced} are announced here alone");
            return warn(message, "announce fewer, longer ones put together");
        }
        (bound > takes).then_some(())?;
        warn(format!("it ends the session after {takes} prefixes"), "remove max_prefixes_out, or lower it")
    }
}

type Verdict = Option<(String, &'static str)>;

#[expect(clippy::unnecessary_wraps, reason = "reads as the verdict that it is")]
fn warn(message: String, remedy: &'static str) -> Verdict {
    Some((message, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> &'static Preset {
        Preset::named(name).unwrap()
    }

    /// Settings that no preset objects to.
    fn good(preset: &Preset) -> Settings {
        Settings {
            own_asn: 64_600,
            asn: preset.asn.unwrap_or(64_512),
            hold_time: preset.hold_time,
            passive: false,
            ttl_security: false,
            bfd: false,
            graceful_restart: true,
            ipv6: preset.ipv6,
            max_prefixes_out: preset.takes,
            announced: 10,
        }
    }

    #[test]
    fn every_preset_is_content_with_its_own_defaults() {
        for preset in &PRESETS {
            assert_eq!(preset.judge(&good(preset)), [], "{}", preset.name);
        }
    }

    #[test]
    fn settings_that_fight_the_facts() {
        type Change = fn(&mut Settings);
        let table: &[(&str, Change, &str)] = &[
            ("azure-vpn-gateway", |s| s.own_asn = 65_515, "reserved there"),
            ("azure-vpn-gateway", |s| s.own_asn = 8_074, "reserved there"),
            ("azure-vpn-gateway", |s| s.own_asn = 65_520, "reserved there"),
            ("azure-vpn-gateway", |s| s.hold_time = 30, "every 60 s whatever we offer"),
            ("azure-vpn-gateway", |s| s.passive = true, "never dials"),
            ("azure-vpn-gateway", |s| s.announced = 4001, "takes 4000 prefixes"),
            ("azure-vpn-gateway", |s| s.max_prefixes_out = Some(5000), "after 4000 prefixes"),
            ("azure-vpn-gateway", |s| s.ipv6 = true, "IPv4 only"),
            ("azure-route-server", |s| s.own_asn = 4_200_000_001, "16-bit"),
            ("azure-route-server", |s| s.asn = 65_000, "always 65515"),
            ("azure-route-server", |s| s.bfd = true, "no BFD"),
            ("azure-route-server", |s| s.hold_time = 0, "nobody notices"),
            ("aws-tgw", |s| s.bfd = true, "no BFD"),
            ("aws-tgw", |s| s.asn = s.own_asn, "our AS number"),
            ("aws-tgw", |s| s.announced = 1001, "takes 1000 prefixes"),
            ("aws-route-server", |s| s.passive = true, "never dials"),
            ("aws-route-server", |s| s.bfd = true, "BFD or graceful restart"),
            ("gcp-cloud-router", |s| s.bfd = true, "no BFD"),
            ("gcp-cloud-router", |s| s.ttl_security = true, "ttl_security drops"),
        ];
        for (name, change, reason) in table {
            let mut settings = good(preset(name));
            change(&mut settings);
            let found = preset(name).judge(&settings);
            assert!(found.len() == 1 && found[0].0.contains(reason), "{name}, {reason}: {found:?}");
            assert!(found[0].0.starts_with(name), "{found:?}");
        }
    }

    #[test]
    fn what_only_some_mind() {
        let of = |name: &str, change: fn(&mut Settings)| {
            let mut settings = good(preset(name));
            change(&mut settings);
            preset(name).judge(&settings)
        };
        assert_eq!(of("aws-tgw", |s| s.hold_time = 9), [], "AWS follows a lower offer");
        assert_eq!(of("gcp-cloud-router", |s| s.own_asn = 4_200_000_001), [], "4-octet AS numbers are fine");
        assert_eq!(of("aws-route-server", |s| (s.bfd, s.graceful_restart) = (true, false)), []);
        assert_eq!(of("azure-route-server", |s| s.hold_time = 200), [], "longer than theirs");
    }
}
