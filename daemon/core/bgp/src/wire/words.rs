//! Capabilities and ORIGIN in words, for showing.

use std::fmt;

use super::{AddPathMode, Capability, Origin};
use crate::Family;

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MultiProtocol { afi, safi } => write!(f, "multiprotocol {}", family(*afi, *safi)),
            Self::FourOctetAsn(asn) => write!(f, "4-octet AS number {asn}"),
            Self::RouteRefresh => f.write_str("route refresh"),
            Self::EnhancedRouteRefresh => f.write_str("enhanced route refresh"),
            Self::ExtendedNextHop(all) => {
                f.write_str("extended next hop")?;
                all.iter().try_for_each(|(afi, safi, next)| {
                    let safi = u8::try_from(*safi).unwrap_or(u8::MAX);
                    write!(f, " {} over AFI {next}", family(*afi, safi))
                })
            }
            Self::Role(role) => match role_name(*role) {
                Some(name) => write!(f, "role {name}"),
                None => write!(f, "role {role}"),
            },
            Self::GracefulRestart { restarting, notification, time, families } => {
                write!(f, "graceful restart {time} s")?;
                f.write_str(if *restarting { ", restarting" } else { "" })?;
                f.write_str(if *notification { ", through NOTIFICATIONs" } else { "" })?;
                families.iter().try_for_each(|one| {
                    let kept = if one.forwarding { " forwarded on" } else { "" };
                    write!(f, ", {}{kept}", family(one.afi, one.safi))
                })
            }
            Self::AddPath(all) => {
                f.write_str("add-path")?;
                all.iter()
                    .try_for_each(|(afi, safi, mode)| write!(f, " {} {}", family(*afi, *safi), word(*mode)))
            }
            Self::Other { code, value } => {
                write!(f, "code {code}")?;
                f.write_str(if value.is_empty() { "" } else { ": " })?;
                value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Igp => "igp",
            Self::Egp => "egp",
            Self::Incomplete => "incomplete",
        })
    }
}

fn family(afi: u16, safi: u8) -> String {
    let known = Family::ALL.into_iter().find(|family| (family.afi(), family.safi()) == (afi, safi));
    known.map_or_else(|| format!("AFI {afi} SAFI {safi}"), |family| family.to_string())
}

/// RFC 9234 section 4.1.
fn role_name(role: u8) -> Option<&'static str> {
    ["provider", "route server", "route server client", "customer", "peer"].get(usize::from(role)).copied()
}

fn word(mode: AddPathMode) -> &'static str {
    match mode {
        AddPathMode::Receive => "receive",
        AddPathMode::Send => "send",
        AddPathMode::Both => "send and receive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RestartFamily;

    #[test]
    fn each_one_has_its_words() {
        let family = RestartFamily { afi: 1, safi: 1, forwarding: true };
        let restart = |restarting, notification, families| Capability::GracefulRestart {
            restarting,
            notification,
            time: 120,
            families,
        };
        for (capability, words) in [
            (Capability::MultiProtocol { afi: 2, safi: 1 }, "multiprotocol ipv6-unicast"),
            (Capability::MultiProtocol { afi: 25, safi: 70 }, "multiprotocol AFI 25 SAFI 70"),
            (Capability::FourOctetAsn(7), "4-octet AS number 7"),
            (Capability::ExtendedNextHop(vec![(1, 1, 2)]), "extended next hop ipv4-unicast over AFI 2"),
            (Capability::Role(3), "role customer"),
            (Capability::Role(9), "role 9"),
            (restart(false, false, vec![]), "graceful restart 120 s"),
            (
                restart(true, true, vec![family]),
                "graceful restart 120 s, restarting, through NOTIFICATIONs, ipv4-unicast forwarded on",
            ),
            (Capability::AddPath(vec![(1, 1, AddPathMode::Both)]), "add-path ipv4-unicast send and receive"),
            (Capability::Other { code: 71, value: vec![] }, "code 71"),
            (Capability::Other { code: 73, value: vec![1, 0xab] }, "code 73: 01ab"),
        ] {
            assert_eq!(capability.to_string(), words);
        }
    }
}
