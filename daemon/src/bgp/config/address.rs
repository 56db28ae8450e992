//! Where a neighbor is: an address, and for a link-local one the interface that it belongs to.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use ipnet::IpNet;
use toml::Spanned;

use super::neighbor::RawNeighbor;
use crate::config::Checker;

/// A neighbor's address. The same link-local address on two interfaces is two neighbors (RFC 4007 section 6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Never IPv4 in IPv6's clothes.
    pub address: IpAddr,
    /// The interface of a link-local address; `None` for every other one.
    pub interface: Option<String>,
}

impl Place {
    /// Reads `192.0.2.1`, `2001:db8::1` or `fe80::1%eth0`.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    fn parse(text: &str) -> Result<Self, (&'static str, &'static str)> {
        let (address, interface) = match text.split_once('%') {
            Some((address, interface)) => (address, Some(interface)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map(|address| address.to_canonical());
        let usable = address.ok().filter(|address| !address.is_unspecified() && !address.is_multicast());
        let help = "write an IPv4 or IPv6 address without a prefix length";
        let address = usable.ok_or(("this is not a neighbor's address", help))?;
        let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        match interface {
            None if link_local => {
                Err(("a link-local address is one of an interface", "name it: \"fe80::1%eth0\""))
            }
            Some(_) if !link_local => Err((
                "only a link-local address belongs to an interface",
                "remove what follows the address; local_address says where the session starts from",
            )),
            Some(name) if !is_interface(name) => {
                Err(("this is no interface's name", "write the name that `ip link` shows: \"fe80::1%eth0\""))
            }
            interface => Ok(Self { address, interface: interface.map(str::to_owned) }),
        }
    }
}

/// As Linux has it (`dev_valid_name`): 1 to 15 bytes, no blank, no `/`, no `:`.
fn is_interface(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !b"/:%".contains(&byte);
    (1..=15).contains(&name.len()) && ![".", ".."].contains(&name) && name.bytes().all(allowed)
}

pub(super) fn check(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Place> {
    Place::parse(raw.get_ref()).map_err(|(message, help)| c.problem(raw.span(), message, help)).ok()
}

/// No two neighbors with one name, with one place or with one prefix.
pub(super) fn check_unique(c: &mut Checker<'_>, neighbors: &[RawNeighbor]) {
    let (mut names, mut places, mut prefixes) = (HashSet::new(), HashMap::new(), HashMap::new());
    for neighbor in neighbors {
        let name = neighbor.name.get_ref();
        if !names.insert(name) {
            let message = format!("a second neighbor is called \"{}\"", name.escape_debug());
            c.problem(neighbor.name.span(), message, "give each neighbor its own name");
        }
        // What is no address, or no prefix, is told by its own check.
        let place = neighbor.address.as_ref().and_then(|raw| Some((Place::parse(raw.get_ref()).ok()?, raw)));
        let prefix =
            neighbor.prefix.as_ref().and_then(|raw| Some((raw.get_ref().parse::<IpNet>().ok()?, raw)));
        let taken = place.and_then(|(place, raw)| Some((places.insert(place, name)?, raw, "address")));
        let taken = taken
            .or_else(|| prefix.and_then(|(net, raw)| Some((prefixes.insert(net, name)?, raw, "prefix"))));
        if let Some((first, raw, what)) = taken {
            let message = format!("neighbor \"{}\" has this {what} already", first.escape_debug());
            c.problem(raw.span(), message, "there is one session to an address: merge the two");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |text: &str| Place::parse(text).map(|place| (place.address.to_string(), place.interface));
        assert_eq!(place("::ffff:192.0.2.1").unwrap(), ("192.0.2.1".into(), None));
        assert_eq!(place("fe80::1%eth0.7").unwrap(), ("fe80::1".into(), Some("eth0.7".into())));
        let refused = [
            ("fe80::1", "is one of an interface"),
            ("2001:db8::1%eth0", "only a link-local"),
            ("192.0.2.1%eth0", "only a link-local"),
            ("fe80::1%", "no interface's name"),
            ("fe80::1%a/b", "no interface's name"),
            ("fe80::1%averylonginterface", "no interface's name"),
            ("ff02::1%eth0", "not a neighbor's address"),
            ("0.0.0.0", "not a neighbor's address"),
            ("10.0.0.2/24", "not a neighbor's address"),
        ];
        for (text, reason) in refused {
            assert!(place(text).unwrap_err().0.contains(reason), "{text}");
        }
    }
}
