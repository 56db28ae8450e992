//! Which prefixes a peer may announce at all, whatever its policy says.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Ineligible;

/// What a peer may send, whatever its import policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    /// Paths of one family after which the session is ended with Cease/1; `None`: the speaker's ceiling.
    pub max_prefixes: Option<u32>,
    /// Default routes are used.
    pub allow_default: bool,
    /// The first AS on a path must be the peer's (RFC 4271 section 6.3). Not so with a route server. For external peers only.
    pub enforce_first_as: bool,
    /// How often our own AS may be on a path that we still use.
    pub allow_own_as: u8,
}

impl Default for Guards {
    fn default() -> Self {
        Self { max_prefixes: None, allow_default: false, enforce_first_as: true, allow_own_as: 0 }
    }
}

impl Guards {
    /// `None`: routes may have this prefix.
    pub(super) fn judge(&self, prefix: &IpNet) -> Option<Ineligible> {
        if !is_routable(prefix) {
            return Some(Ineligible::Prefix);
        }
        (prefix.prefix_len() == 0 && !self.allow_default).then_some(Ineligible::Default)
    }
}

/// Prefixes inside these are never routed by (RFC 6890, RFC 4291). The default routes contain them and are fine.
const MARTIANS: [IpNet; 9] = [
    // This network, loopback, link-local; multicast and what is reserved above it.
    v4([0, 0, 0, 0], 8),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([224, 0, 0, 0], 3),
    // Unspecified, loopback, IPv4 written as IPv6, link-local, multicast.
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length))
}

fn is_routable(prefix: &IpNet) -> bool {
    !MARTIANS.iter().any(|martian| martian.contains(prefix))
}
