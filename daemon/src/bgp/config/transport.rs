//! How a session's TCP connection is made: from where, how far, and who may take part.

use std::{net::IpAddr, num::NonZeroU8, path::PathBuf};

use toml::Spanned;

use super::{Password, Place, Preset, password};
use crate::config::Checker;

/// Settings of a neighbor's TCP connections. A change of them ends the session: what is connected was made by the old ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Where we dial from; `None`: what the route to the neighbor says.
    pub local_address: Option<IpAddr>,
    /// How far our packets go, and from how far its may come.
    pub reach: Reach,
    /// Both sides sign every segment with it (RFC 2385).
    pub password: Option<Password>,
}

/// The hops between us and the neighbor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// As far as packets go, with TTL 255: internal neighbors.
    #[default]
    Any,
    /// We send with this TTL: 1 for an external neighbor on a link of ours, as every other speaker does.
    Ttl(NonZeroU8),
    /// We send with TTL 255, and drop what has come over more than this many hops (RFC 5082).
    Secured(NonZeroU8),
}

impl Reach {
    const LINK: Self = Self::Ttl(NonZeroU8::MIN);

    /// TTL of what we send.
    pub fn ttl(self) -> u8 {
        match self {
            Self::Ttl(ttl) => ttl.get(),
            Self::Any | Self::Secured(_) => u8::MAX,
        }
    }

    /// The lowest TTL that is taken; `None`: any. One hop away nothing has counted it down yet (RFC 5082 section 3).
    pub fn lowest_ttl(self) -> Option<u8> {
        match self {
            Self::Secured(hops) => Some(u8::MAX - (hops.get() - 1)),
            Self::Any | Self::Ttl(_) => None,
        }
    }
}

/// The keys of a neighbor about its connection.
pub(super) struct RawTransport {
    pub(super) local_address: Option<Spanned<String>>,
    pub(super) multihop: Option<Spanned<i64>>,
    pub(super) ttl_security: Option<Spanned<toml::Value>>,
    pub(super) password_file: Option<Spanned<PathBuf>>,
}

impl RawTransport {
    pub(super) fn check(
        self,
        c: &mut Checker<'_>,
        external: bool,
        place: Option<&Place>,
        preset: Option<&Preset>,
    ) -> Option<Transport> {
        let local_address = self.local_address.map(|raw| check_local(c, &raw, place));
        let reach = check_reach(c, self.multihop.as_ref(), self.ttl_security.as_ref(), external, preset);
        let password = self.password_file.map(|raw| password::check(c, &raw));
        Some(Transport {
            local_address: local_address.map_or(Some(None), |checked| checked.map(Some))?,
            reach: reach?,
            password: password.map_or(Some(None), |checked| checked.map(Some))?,
        })
    }
}

fn check_local(c: &mut Checker<'_>, raw: &Spanned<String>, place: Option<&Place>) -> Option<IpAddr> {
    let address = raw.get_ref().parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let address = address.filter(|address| !address.is_unspecified() && !address.is_multicast());
    let help = "write one of this node's addresses, without a prefix length";
    c.require(address.is_some(), raw, "this is not an address to dial from", help);
    let fits = place.zip(address).is_none_or(|(place, local)| place.address.is_ipv4() == local.is_ipv4());
    let help = "write an address of the neighbor's family";
    c.require(fits, raw, "the neighbor has an address of the other family", help).then_some(address)?
}

fn check_reach(
    c: &mut Checker<'_>,
    multihop: Option<&Spanned<i64>>,
    ttl_security: Option<&Spanned<toml::Value>>,
    external: bool,
    preset: Option<&Preset>,
) -> Option<Reach> {
    if let (Some(multihop), Some(security)) = (multihop, ttl_security)
        && *security.get_ref() != toml::Value::Boolean(false)
    {
        let help = "keep ttl_security = HOPS alone: it also says how far away the neighbor is (RFC 5082)";
        c.problem(multihop.span(), "multihop and ttl_security say two things about the same TTL", help);
        return None;
    }
    let of_kind = || match preset.and_then(|preset| preset.multihop) {
        Some(hops) if external => Reach::Ttl(hops),
        _ if external => Reach::LINK,
        _ => Reach::Any,
    };
    let secured = match ttl_security {
        Some(raw) => check_security(c, raw)?,
        None => None,
    };
    match (secured, multihop) {
        (Some(hops), _) => Some(Reach::Secured(hops)),
        (None, Some(raw)) => check_multihop(c, raw, external).map(Reach::Ttl),
        (None, None) => Some(of_kind()),
    }
}

fn check_multihop(c: &mut Checker<'_>, raw: &Spanned<i64>, external: bool) -> Option<NonZeroU8> {
    let help = "remove it: internal neighbors may be any number of hops away";
    c.require(external, raw, "multihop is for external neighbors (eBGP)", help).then_some(())?;
    let hops = u8::try_from(*raw.get_ref()).ok().filter(|hops| *hops > 1).and_then(NonZeroU8::new);
    let help =
        "write how many hops away the neighbor may be, 2 to 255; without the key it is on a link of ours";
    c.require(hops.is_some(), raw, "this is no number of hops", help);
    hops
}

/// The hops; `Some(None)`: off.
#[expect(clippy::option_option, reason = "the two levels are two different facts")]
fn check_security(c: &mut Checker<'_>, raw: &Spanned<toml::Value>) -> Option<Option<NonZeroU8>> {
    let hops = match raw.get_ref() {
        toml::Value::Boolean(false) => return Some(None),
        toml::Value::Boolean(true) => Some(NonZeroU8::MIN),
        toml::Value::Integer(hops) => u8::try_from(*hops).ok().and_then(NonZeroU8::new),
        _ => None,
    };
    let help = "write true for a neighbor on a link of ours, or how many hops away it may be, 1 to 255";
    c.require(hops.is_some(), raw, "this does not say how far away the neighbor is", help).then_some(hops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reach_means() {
        let hops = |n| NonZeroU8::new(n).unwrap();
        let table = [
            (Reach::Any, 255, None),
            (Reach::LINK, 1, None),
            (Reach::Ttl(hops(5)), 5, None),
            (Reach::Secured(hops(1)), 255, Some(255)),
            (Reach::Secured(hops(3)), 255, Some(253)),
            (Reach::Secured(hops(255)), 255, Some(1)),
        ];
        for (reach, ttl, lowest) in table {
            assert_eq!((reach.ttl(), reach.lowest_ttl()), (ttl, lowest), "{reach:?}");
        }
    }
}
