//! Routes and addresses: the table finds what a look at every route finds.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, atomic::AtomicBool};

use ipnet::IpNet;
use isthmus_tunnel::packet::Packet;
use isthmus_tunnel::table::{Member, Slot, Table, Underlay};
use libfuzzer_sys::fuzz_target;

/// Routes at most: the model looks at all of them for every address.
const ROUTES: usize = 256;
const PEERS: u8 = 4;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let routes: Vec<(IpNet, Slot)> = std::iter::from_fn(|| route(&mut rest)).take(ROUTES).collect();
    let endpoints: Vec<IpAddr> = address(&mut rest).into_iter().collect();
    let (table, model) = build(&routes, &endpoints);
    assert_eq!(table.len(), model.len());
    let mut router = table.router();
    let ends = routes.iter().flat_map(|(prefix, _)| [prefix.network(), prefix.broadcast()]);
    for address in ends.chain(std::iter::from_fn(|| address(&mut rest))) {
        let covering = model.iter().filter(|(prefix, _)| prefix.contains(&address));
        let longest = covering.max_by_key(|(prefix, _)| prefix.prefix_len());
        let packet = Packet { bytes: &[], source: address, destination: address, flow: 0 };
        assert_eq!(table.route(&packet), longest.map(|(_, peer)| *peer), "{address}");
        assert_eq!(router.route(&packet), table.route(&packet), "{address}");
        for peer in 0..PEERS.into() {
            assert_eq!(router.is_feasible(address, peer), longest.is_some_and(|(_, owner)| *owner == peer));
        }
        if address.to_canonical() == address {
            let captured =
                longest.is_some_and(|(prefix, _)| !endpoints.iter().any(|end| prefix.contains(end)));
            assert_eq!(table.captures(address), captured, "{address}");
        }
    }
});

/// The table, and its routes without those that a later one replaced.
fn build(routes: &[(IpNet, Slot)], endpoints: &[IpAddr]) -> (Table, Vec<(IpNet, Slot)>) {
    let member = |key| Member { key, live: Arc::new(AtomicBool::new(true)) };
    let mut builder = Table::builder((0..PEERS.into()).map(member).collect());
    let mut model: Vec<(IpNet, Slot)> = Vec::new();
    for (prefix, peer) in routes {
        builder.route(*prefix, &[*peer], &[]);
        model.retain(|(other, _)| *other != prefix.trunc());
        model.push((prefix.trunc(), *peer));
    }
    builder.underlay(Underlay { overlay: vec![], endpoints: endpoints.to_vec() });
    (builder.build(), model)
}

/// Peer, length, address; a length that no prefix can have ends the routes.
fn route(rest: &mut &[u8]) -> Option<(IpNet, Slot)> {
    let (&[peer, length], behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some((IpNet::new(address(rest)?, length).ok()?, (peer % PEERS).into()))
}

/// An even first byte: IPv4, an odd one: IPv6.
fn address(rest: &mut &[u8]) -> Option<IpAddr> {
    let (family, behind) = rest.split_first()?;
    if family % 2 == 0 {
        let (octets, behind) = behind.split_first_chunk::<4>()?;
        *rest = behind;
        return Some(Ipv4Addr::from(*octets).into());
    }
    let (octets, behind) = behind.split_first_chunk::<16>()?;
    *rest = behind;
    // An endpoint in IPv4 form would be looked up as such.
    Some(IpAddr::from(Ipv6Addr::from(*octets)).to_canonical())
}
