//! One speaker against a peer that the test plays byte for byte.

use std::time::Duration;

use proptest::prelude::*;

use super::{net::*, *};
use crate::{
    Families, Family,
    fsm::State,
    rib::Ineligible,
    wire::{
        AsPath, Attributes, Capability, Community, Encoding, Nlri, Open, Origin, Peering, RouteRefresh,
        Update, UpdateContext, encode_announcement, encode_withdrawal, frame,
    },
};

/// A peer played by the test, byte for byte.
struct Scripted {
    speaker: Speaker,
    connection: ConnectionId,
    now: Instant,
    context: UpdateContext,
}

const PEER_AS: u32 = 65_050;

impl Scripted {
    /// Established with node 0, whose other peer is node 1 (never there).
    fn new(four_octet: bool, local_asn: u32, announce: &[&str]) -> Self {
        let now = Instant::now();
        let mut speaker =
            Speaker::new(config(0, local_asn, announce, vec![peer(50, PEER_AS), peer(1, 65_002)]), 0, now);
        let connection = speaker.handle_accepted(v4(50).into(), None, own(0), now).unwrap();
        let mut open = Open::new(PEER_AS, 9, v4(50), Families::ALL);
        if !four_octet {
            open.capabilities.retain(|capability| !matches!(capability, Capability::FourOctetAsn(_)));
        }
        let mut bytes = Vec::new();
        open.encode(&mut bytes).unwrap();
        encode_keepalive(&mut bytes);
        speaker.handle_bytes(connection, &bytes, now);
        let context = UpdateContext {
            four_octet,
            peering: Peering::External { asn: local_asn },
            families: Families::ALL,
            add_path: Families::NONE,
            extended_next_hop: false,
        };
        let mut scripted = Self { speaker, connection, now, context };
        assert!(scripted.established());
        scripted.heard();
        scripted
    }

    fn established(&self) -> bool {
        self.speaker
            .status()
            .iter()
            .any(|status| &*status.name == "node50" && status.state == State::Established)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.speaker.handle_bytes(self.connection, bytes, self.now);
    }

    fn announce(&mut self, prefix: &str, change: impl Fn(&mut Attributes)) {
        let mut attributes = Attributes::originated(v4(50).into());
        attributes.as_path = AsPath::new(vec![PEER_AS]);
        change(&mut attributes);
        let encoding = Encoding { four_octet: self.context.four_octet, ..Encoding::default() };
        let mut bytes = Vec::new();
        encode_announcement(&attributes, &[prefix.parse().unwrap()], &encoding, &mut bytes).unwrap();
        self.send(&bytes);
    }

    /// An UPDATE from these path attributes and IPv4 prefixes.
    fn raw(&mut self, attributes: &[&[u8]], nlri: &[u8]) {
        let attributes = attributes.concat();
        let mut bytes = vec![0xff; 16];
        bytes.extend(u16::try_from(23 + attributes.len() + nlri.len()).unwrap().to_be_bytes());
        bytes.extend([2, 0, 0]);
        bytes.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
        bytes.extend(attributes);
        bytes.extend(nlri);
        self.send(&bytes);
    }

    fn used(&self, prefix: &str) -> bool {
        self.speaker.paths(&prefix.parse().unwrap()).iter().any(|path| path.verdict().selected())
    }

    /// UPDATEs that the speaker sent.
    fn heard(&mut self) -> Vec<Update> {
        let mut bytes = Vec::new();
        while self.speaker.poll_transmit(self.connection, &mut bytes) {}
        let mut updates = Vec::new();
        let mut stream = bytes.as_slice();
        while let Some(message) = frame(stream).unwrap() {
            stream = &stream[message.wire_length()..];
            if message.kind == crate::wire::MessageType::Update {
                updates.push(Update::decode(message.body, &self.context).unwrap());
            }
        }
        updates
    }
}

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfe, 0x1a];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 10, 99, 0, 51];
const NLRI: &[u8] = &[16, 10, 9];

#[test]
fn malformed_again_means_withdrawn() {
    for (bad, used_after) in [
        (&[0x80, 4, 1, 0][..], false),
        (&[0x40, 3, 3, 10, 0, 0][..], true),
        (&[0xc0, 8, 3, 0, 0, 0][..], false),
        // Tunnel encapsulation with nonsense inside is somebody else's business, not a reason to lose the session.
        (&[0xc0, 23, 3, 0, 7, 0][..], true),
    ] {
        let mut peer = Scripted::new(true, 65_001, &[]);
        peer.raw(&[ORIGIN, AS_PATH, NEXT_HOP], NLRI);
        assert!(peer.used("10.9.0.0/16"));
        peer.raw(&[ORIGIN, AS_PATH, NEXT_HOP, bad], NLRI);
        assert_eq!(peer.used("10.9.0.0/16"), used_after, "{bad:x?}");
        peer.raw(&[ORIGIN, AS_PATH, NEXT_HOP], &[16, 10, 8]);
        assert!(peer.established() && peer.used("10.8.0.0/16"), "the session lives on");
    }
}

/// RFC 7947 section 2.2.2.1: a route server leaves its own number out.
#[test]
fn a_route_server_need_not_be_first_on_the_path() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    let other = |attributes: &mut Attributes| attributes.as_path = AsPath::new(vec![65_003]);
    peer.announce("10.9.0.0/16", other);
    assert!(!peer.used("10.9.0.0/16"));
    let paths = peer.speaker.paths(&"10.9.0.0/16".parse().unwrap());
    assert_eq!(paths[0].verdict().ineligible(), Some(Ineligible::FirstAsn), "it is kept with the reason");
    let guards = Guards { enforce_first_as: false, ..Guards::default() };
    let server = PeerConfig { guards, ..net::peer(50, PEER_AS) };
    peer.speaker.apply(config(0, 65_001, &[], vec![server, net::peer(1, 65_002)]), peer.now);
    assert!(peer.established() && peer.used("10.9.0.0/16"), "judged again");
    peer.announce("10.8.0.0/16", other);
    assert!(peer.used("10.8.0.0/16"));
    peer.announce("10.8.0.0/16", |attributes| attributes.as_path = AsPath::default());
    assert!(!peer.used("10.8.0.0/16"), "nobody's path");
}

#[test]
fn treat_as_withdraw_is_reported_once_for_each_message() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    while peer.speaker.poll_event().is_some() {}
    let many = [0x80u8, 4, 1, 0].repeat(50);
    peer.raw(&[ORIGIN, AS_PATH, NEXT_HOP, &many], NLRI);
    let events: Vec<_> = std::iter::from_fn(|| peer.speaker.poll_event()).collect();
    assert!(matches!(&events[..], [Event::UpdateFault { fault, .. }] if fault.attribute == 4), "{events:?}");
}

#[test]
fn old_speaker_gets_as_trans_and_the_true_path_beside_it() {
    let mut peer = Scripted::new(false, 4_200_000_001, &[ONE]);
    let mut restarted = Scripted::new(false, 4_200_000_001, &[]);
    assert!(restarted.heard().is_empty());
    let now = peer.now;
    let mut changed = peer.speaker.config().clone();
    changed.announce.push(TWO.parse().unwrap());
    peer.speaker.apply(changed, now);
    let updates = peer.heard();
    assert_eq!(updates[0].faults, []);
    assert_eq!(updates[0].announced[0].attributes.as_path.asns(), [4_200_000_001]);
}

#[test]
fn gained_community_withdraws() {
    let mut net = mesh(&[65_001, 65_002]);
    net.seconds(5);
    // Node 0 gets a scripted peer whose route it passes on to node 1.
    let now = net.now;
    let mut changed = net.nodes[0].speaker.config().clone();
    changed.peers.push(peer(50, PEER_AS));
    net.nodes[0].speaker.apply(changed, now);
    let speaker = &mut net.nodes[0].speaker;
    let connection = speaker.handle_accepted(v4(50).into(), None, own(0), now).unwrap();
    let mut bytes = Vec::new();
    Open::new(PEER_AS, 0, v4(50), Families::ALL).encode(&mut bytes).unwrap();
    encode_keepalive(&mut bytes);
    speaker.handle_bytes(connection, &bytes, now);
    let say = |net: &mut Net, communities: Vec<Community>| {
        let mut attributes = Attributes::originated(v4(50).into());
        attributes.as_path = AsPath::new(vec![PEER_AS]);
        attributes.origin = Origin::Incomplete;
        attributes.communities = communities.into();
        let mut bytes = Vec::new();
        encode_announcement(
            &attributes,
            &["10.9.0.0/16".parse().unwrap()],
            &Encoding::FOUR_OCTET,
            &mut bytes,
        )
        .unwrap();
        let now = net.now;
        net.nodes[0].speaker.handle_bytes(connection, &bytes, now);
        net.run(Duration::ZERO);
        net.through(1, "10.9.0.0/16")
    };
    assert_eq!(say(&mut net, vec![]), ["node0"]);
    for community in [Community::NO_EXPORT, Community::NO_ADVERTISE, Community::NO_EXPORT_SUBCONFED] {
        assert!(say(&mut net, vec![community]).is_empty(), "{community}");
        assert_eq!(net.through(0, "10.9.0.0/16"), ["node50"]);
        assert_eq!(say(&mut net, vec![Community(7)]), ["node0"]);
    }
}

#[test]
fn a_route_is_not_told_to_whom_it_came_from() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    peer.announce("10.9.0.0/16", |_| {});
    assert!(peer.used("10.9.0.0/16"));
    assert!(peer.heard().is_empty());
    let mut bytes = Vec::new();
    encode_withdrawal(&["10.9.0.0/16".parse().unwrap()], &Encoding::FOUR_OCTET, &mut bytes).unwrap();
    peer.send(&bytes);
    assert!(!peer.used("10.9.0.0/16"));
    assert!(peer.heard().is_empty());
}

#[test]
fn next_hops_that_lead_nowhere_are_kept_with_the_reason() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    peer.announce("10.9.0.0/16", |attributes| attributes.next_hop = v4(0).into());
    assert!(!peer.used("10.9.0.0/16"));
    let verdict = peer.speaker.paths(&"10.9.0.0/16".parse().unwrap())[0].verdict();
    assert_eq!(verdict.to_string(), "its next hop is an address of this node");
    peer.announce("10.9.0.0/16", |_| {});
    assert!(peer.used("10.9.0.0/16"));
}

#[test]
fn a_refused_next_hop_is_told_once_for_each_update() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    let behind = [(IpAddr::from(v4(50)).into(), "tunnel-peer".into())];
    peer.speaker.set_topology(Topology::new([], [], behind));
    while peer.speaker.poll_event().is_some() {}
    let mut attributes = Attributes::originated("192.0.2.1".parse().unwrap());
    attributes.as_path = AsPath::new(vec![PEER_AS]);
    let prefixes = ["10.8.0.0/16", "10.9.0.0/16"].map(|prefix| prefix.parse::<Nlri>().unwrap());
    let mut bytes = Vec::new();
    encode_announcement(&attributes, &prefixes, &Encoding::FOUR_OCTET, &mut bytes).unwrap();
    let refused = Event::NextHopRefused {
        peer: "node50".into(),
        prefix: prefixes[0].prefix,
        next_hop: "192.0.2.1".parse().unwrap(),
        why: Ineligible::OtherPeerNextHop,
    };
    for _ in 0..2 {
        peer.send(&bytes);
        let told: Vec<_> = std::iter::from_fn(|| peer.speaker.poll_event()).collect();
        assert_eq!(told, std::slice::from_ref(&refused));
    }
    let status = peer.speaker.status();
    let of_peer = status.iter().find(|status| &*status.name == "node50").unwrap();
    assert_eq!((of_peer.prefixes_received, of_peer.prefixes_accepted), (2, 0));
    assert!(!peer.used("10.8.0.0/16") && !peer.used("10.9.0.0/16"));
    assert!(peer.heard().is_empty());
}

#[test]
fn framing_does_not_care_how_bytes_arrive() {
    for piece in [1, 2, 19, 20, 4096] {
        let mut net = pair();
        net.piece = piece;
        net.seconds(5);
        assert_eq!(net.through(0, SIX), ["node1"], "in pieces of {piece}");
    }
}

#[test]
fn header_error_is_answered_and_closed() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    assert_eq!(peer.last_words(&[0; 19])[18..], [3, 1, 1]);
    peer.send(&[0; 19]);
    assert!(peer.speaker.poll_event().is_none(), "the connection is forgotten");
}

#[test]
fn unknown_callers_are_refused() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    let refused =
        |peer: &mut Scripted, address: IpAddr| peer.speaker.handle_accepted(address, None, own(0), peer.now);
    assert_eq!(refused(&mut peer, v4(77).into()), Err(Refused::Unknown));
    assert!(matches!(refused(&mut peer, v4(50).into()), Err(Refused::Unwanted(_))));
    assert!(peer.established());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_bytes_never_panic(
        prefix in 0usize..4,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..7,
        established: bool,
    ) {
        let mut peer = Scripted::new(true, 65_001, &[ONE]);
        if !established {
            let now = peer.now;
            peer.speaker.handle_closed(peer.connection, "closed", now);
            peer.connection = peer.speaker.handle_accepted(v4(50).into(), None, own(0), now).unwrap();
        }
        let mut message = vec![0xff; 16];
        message.extend(u16::try_from(19 + bytes.len()).unwrap().to_be_bytes());
        message.push(kind);
        message.extend(&bytes);
        let start = if prefix == 0 { 19 } else { 0 };
        peer.send(&message[start..]);
        peer.speaker.handle_timeout(peer.now + Duration::from_secs(1));
        while peer.speaker.poll_event().is_some() {}
    }
}

impl Scripted {
    fn refresh(&mut self, family: Family, subtype: u8) {
        let mut bytes = Vec::new();
        RouteRefresh::new(family, subtype).encode(&mut bytes).unwrap();
        self.send(&bytes);
    }

    /// What the speaker says last, when these bytes end the session.
    fn last_words(&mut self, bytes: &[u8]) -> Vec<u8> {
        while self.speaker.poll_event().is_some() {}
        self.send(bytes);
        let events: Vec<_> = std::iter::from_fn(|| self.speaker.poll_event()).collect();
        let mut words = events.into_iter().filter_map(|event| match event {
            Event::Close { last_words, .. } => Some(last_words),
            _ => None,
        });
        words.next().unwrap()
    }

    /// Established, with this capability besides the usual ones.
    fn able(capability: Capability, announce: &[&str]) -> Self {
        let mut peer = Self::new(true, 65_001, announce);
        let now = peer.now;
        peer.speaker.handle_closed(peer.connection, "closed", now);
        peer.connection = peer.speaker.handle_accepted(v4(50).into(), None, own(0), now).unwrap();
        let mut open = Open::new(PEER_AS, 9, v4(50), Families::ALL);
        open.capabilities.push(capability);
        let mut bytes = Vec::new();
        open.encode(&mut bytes).unwrap();
        encode_keepalive(&mut bytes);
        peer.send(&bytes);
        assert!(peer.established());
        peer.heard();
        peer
    }
}

#[test]
fn who_asks_is_sent_everything_again() {
    let mut peer = Scripted::new(true, 65_001, &[ONE, TWO, SIX]);
    assert!(peer.heard().is_empty());
    peer.refresh(Family::Ipv4Unicast, 0);
    let updates = peer.heard();
    let announced: usize =
        updates.iter().flat_map(|update| &update.announced).map(|a| a.prefixes.len()).sum();
    assert_eq!(announced, 2, "of that family");
    peer.refresh(Family::Ipv4Unicast, 77);
    assert!(peer.heard().is_empty());
}

#[test]
fn requests_that_come_together_have_one_answer() {
    let mut peer = Scripted::new(true, 65_001, &[ONE]);
    let connection = peer.connection;
    let mut request = Vec::new();
    RouteRefresh::new(Family::Ipv4Unicast, 0).encode(&mut request).unwrap();
    peer.speaker.handle_bytes(connection, &request.repeat(100), peer.now);
    let answers = peer.heard();
    assert_eq!(answers.iter().flat_map(|update| &update.announced).count(), 1);
}

#[test]
fn what_a_marked_refresh_leaves_out_is_gone() {
    let mut peer = Scripted::able(Capability::EnhancedRouteRefresh, &[]);
    peer.announce("10.8.0.0/16", |_| {});
    peer.announce("10.9.0.0/16", |_| {});
    peer.refresh(Family::Ipv4Unicast, 1);
    assert!(peer.used("10.8.0.0/16") && peer.used("10.9.0.0/16"), "meanwhile they stay");
    peer.announce("10.9.0.0/16", |_| {});
    peer.refresh(Family::Ipv4Unicast, 2);
    assert!(!peer.used("10.8.0.0/16") && peer.used("10.9.0.0/16"));
}

/// RFC 7313 section 5.
#[test]
fn a_refresh_of_the_wrong_length_is_answered_as_was_agreed_on() {
    let without_safi = |subtype| [&[0xff; 16][..], &[0, 22, 5, 0, 1, subtype]].concat();
    let mut plain = Scripted::new(true, 65_001, &[]);
    assert_eq!(plain.last_words(&without_safi(RouteRefresh::BEGIN))[18..], [3, 1, 2, 0, 22]);
    let mut enhanced = Scripted::able(Capability::EnhancedRouteRefresh, &[]);
    enhanced.send(&without_safi(3));
    assert!(enhanced.established(), "unknown subtypes are ignored");
    let begin = without_safi(RouteRefresh::BEGIN);
    assert_eq!(enhanced.last_words(&begin)[18..], [&[3, 7, 1][..], &begin].concat());
}

#[test]
fn a_route_that_would_carry_its_own_session_is_kept_with_the_reason() {
    let mut peer = Scripted::new(true, 65_001, &[]);
    for (prefix, used) in [("10.99.0.0/16", false), ("0.0.0.0/0", false), ("10.98.0.0/16", true)] {
        peer.announce(prefix, |_| {});
        assert_eq!(peer.used(prefix), used, "{prefix}");
    }
    // The neighbor is on a subnet of ours: that is closer than what it announces.
    peer.speaker.set_topology(Topology::new([], [vec!["10.99.0.0/24".parse().unwrap()]], []));
    assert!(peer.used("10.99.0.0/16"), "judged again, without a word from the peer");
}
