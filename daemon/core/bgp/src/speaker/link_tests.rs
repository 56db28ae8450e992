//! Peers on links: link-local addresses, which mean something on one interface only (RFC 2545, RFC 4007).

use std::net::Ipv6Addr;

use super::{net::*, played::*, *};
use crate::{
    Families,
    dynamic::Template,
    fsm::AsnSet,
    wire::{Encoding, MessageType},
};

const FE80: &str = "fe80::1";
const OUR_LINK_LOCAL: &str = "fe80::99";

fn fe80() -> IpAddr {
    FE80.parse().unwrap()
}

fn on_link(n: usize, scope: Option<u32>) -> PeerConfig {
    PeerConfig { address: fe80(), scope, passive: true, ..peer(n, asn(n)) }
}

/// The octets of the next hop in the UPDATE with an IPv6 prefix that we send.
fn next_hop(stage: &mut Stage, n: usize) -> Vec<Ipv6Addr> {
    let bodies =
        stage.heard(n, |message| (message.kind == MessageType::Update).then(|| message.body.to_vec()));
    // AFI 2, SAFI 1, and behind them the length of the next hop.
    let found = bodies.iter().find_map(|body| {
        let at = body.windows(4).position(|octets| octets[..3] == [0, 2, 1] && octets[3] >= 16)?;
        Some(body[at + 4..at + 4 + usize::from(body[at + 3])].to_vec())
    });
    found.unwrap_or_default().chunks(16).map(|half| <[u8; 16]>::try_from(half).unwrap().into()).collect()
}

/// FRR #9110 and others: the same address on two interfaces is two peers.
#[test]
fn one_address_on_two_interfaces_is_two_peers() {
    let peers = vec![on_link(5, Some(3)), on_link(6, Some(4))];
    let mut stage = Stage::new(Config { peers, ..playing(&[]) });
    stage.connect_from(6, fe80(), Some(4), &[]).unwrap();
    assert_eq!(stage.status("node6").state, State::Established);
    assert_eq!(stage.status("node5").state, State::Active);
    stage.connect_from(5, fe80(), Some(3), &[]).unwrap();
    assert_eq!(stage.status("node5").state, State::Established);
    for scope in [None, Some(5)] {
        assert_eq!(stage.connect_from(7, fe80(), scope, &[]).err(), Some(Refused::Unknown), "{scope:?}");
    }
    stage.speaker.take_changed();
    stage.announce_link_local(5, "2001:db8:5::/48");
    stage.announce_link_local(6, "2001:db8:6::/48");
    let member = |prefix: &str| stage.speaker.members(net(prefix)).next().unwrap();
    assert_eq!((member("2001:db8:5::/48").next_hop, member("2001:db8:5::/48").interface), (fe80(), Some(3)));
    assert_eq!((member("2001:db8:6::/48").next_hop, member("2001:db8:6::/48").interface), (fe80(), Some(4)));
}

#[test]
fn the_interface_that_is_configured_comes_before_any() {
    let peers = vec![on_link(5, None), on_link(6, Some(4))];
    let mut stage = Stage::new(Config { peers, ..playing(&[]) });
    stage.connect_from(6, fe80(), Some(4), &[]).unwrap();
    assert_eq!(stage.status("node6").state, State::Established);
    stage.connect_from(5, fe80(), Some(9), &[]).unwrap();
    assert_eq!(stage.status("node5").state, State::Established);
}

#[test]
fn dynamic_peers_differ_by_interface_too() {
    let template = Template {
        name: "lan".into(),
        prefix: "fe80::/64".parse().unwrap(),
        asns: AsnSet::new([65_100..=65_199]),
        limit: 9,
        linger: std::time::Duration::ZERO,
    };
    let dynamic = vec![DynamicPeers { template, peer: peer(0, 0) }];
    let mut stage = Stage::new(Config { dynamic, ..playing(&[]) });
    stage.connect_from(5, fe80(), Some(3), &[]).unwrap();
    stage.connect_from(6, fe80(), Some(4), &[]).unwrap();
    for name in ["lan-fe80::1%3", "lan-fe80::1%4"] {
        assert_eq!(stage.status(name).state, State::Established);
    }
    stage.close(5);
    stage.pass(1);
    assert_eq!(stage.speaker.status().len(), 1, "only that one went");
}

#[test]
fn our_link_local_address_is_for_those_on_the_link() {
    let link_local: Ipv6Addr = OUR_LINK_LOCAL.parse().unwrap();
    let global = v6(0);
    let ours = |v6| NextHops { v6, link_local: Some(link_local), ..own(0) };
    let on_link = Topology::new([], [vec![net("10.99.0.0/24")]], []);
    let behind = Topology::new([], [], [(net("10.99.0.6/32"), "tunnel".into())]);
    let cases = [
        (v4(5).into(), Topology::default(), Some(global), vec![global]),
        (v4(5).into(), on_link.clone(), Some(global), vec![global, link_local]),
        (v4(5).into(), behind, Some(global), vec![global]),
        (fe80(), Topology::default(), Some(global), vec![global, link_local]),
        (fe80(), Topology::default(), None, vec![link_local, link_local]),
        // A peer that we know by another address does not know on which link that would be.
        (v4(5).into(), on_link, None, vec![]),
    ];
    for (number, (address, topology, v6, expected)) in cases.into_iter().enumerate() {
        let scope = (address == fe80()).then_some(3);
        let peers = vec![PeerConfig { address, scope, passive: true, ..peer(5, asn(5)) }];
        let mut stage = Stage::new(Config { peers, announce: vec![net(SIX)], ..playing(&[]) });
        stage.speaker.set_topology(topology);
        stage.accept(5, address, scope, ours(v6), &[]).unwrap();
        assert_eq!(next_hop(&mut stage, 5), expected, "case {number}");
    }
}

impl Stage {
    fn announce_link_local(&mut self, n: usize, prefix: &str) {
        let mut attributes = crate::wire::Attributes::originated(fe80());
        attributes.as_path = crate::wire::AsPath::new(vec![asn(n)]);
        let mut bytes = Vec::new();
        let prefixes = [prefix.parse().unwrap()];
        crate::wire::encode_announcement(&attributes, &prefixes, &Encoding::FOUR_OCTET, &mut bytes).unwrap();
        self.send(n, &bytes);
    }
}

#[test]
fn our_own_link_local_address_is_no_next_hop() {
    let own = NextHops { link_local: Some(OUR_LINK_LOCAL.parse().unwrap()), ..own(0) };
    assert_eq!(own.toward(v4(5).into(), false).with_link_local(), None);
    assert_eq!(own.toward(v4(5).into(), true).of(V6), Some(v6(0).into()));
    assert_eq!(Families::ALL.iter().filter(|family| own.of(*family).is_some()).count(), 2);
}
