use std::net::Ipv4Addr;

use super::*;
use crate::{
    Families, Family,
    fsm::{
        AddPath, AsnSet, Offer, PeerRestart, RestartOffer,
        offer::{Wording, offer},
    },
    wire::{AddPathMode, RestartFamily},
};

const OURS: u32 = 65_001;
const THEIRS: u32 = 65_002;

fn config(asn: u32, remote: u32, offer: Offer) -> SessionConfig {
    SessionConfig {
        local_asn: asn,
        router_id: Ipv4Addr::from(asn),
        remote_asn: remote.into(),
        passive: false,
        hold_time: 9,
        families: Families::ALL,
        offer,
    }
}

fn open(asn: u32, capabilities: Vec<Capability>) -> Open {
    let mut open = Open::new(asn, 9, Ipv4Addr::from(asn), Families::ALL);
    open.capabilities.extend(capabilities);
    open
}

/// What comes of our offer and the peer's OPEN.
fn outcome(ours: Offer, theirs: &Open) -> Result<Negotiated, (u8, u8)> {
    let config = config(OURS, THEIRS, ours);
    let ours = offer(&config, Wording::Full, true);
    negotiate(&config, &ours, theirs).map_err(|refusal| (refusal.0.code, refusal.0.subcode))
}

fn v4() -> Families {
    Families::from_iter([Family::Ipv4Unicast])
}

fn v6() -> Families {
    Families::from_iter([Family::Ipv6Unicast])
}

#[test]
fn both_sides_understand_an_exchange_alike() {
    let restart = |time, forwarding| Some(RestartOffer { time, restarting: true, forwarding });
    let ours = Offer {
        add_path: AddPath { send: Families::ALL, receive: v4() },
        extended_next_hop: true,
        restart: restart(120, v4()),
        role: Some(Role::Provider),
        strict_role: true,
    };
    let theirs = Offer {
        add_path: AddPath { send: v4(), receive: v6() },
        extended_next_hop: true,
        restart: restart(60, v6()),
        role: Some(Role::Customer),
        strict_role: true,
    };
    let configs = [config(OURS, THEIRS, ours), config(THEIRS, OURS, theirs)];
    let opens = configs.each_ref().map(|config| offer(config, Wording::Full, true));
    let here = negotiate(&configs[0], &opens[0], &opens[1]).unwrap();
    let there = negotiate(&configs[1], &opens[1], &opens[0]).unwrap();
    assert_eq!((here.add_path.send, here.add_path.receive), (v6(), v4()));
    assert_eq!((there.add_path.send, there.add_path.receive), (v4(), v6()));
    for side in [&here, &there] {
        assert!(side.extended_next_hop && side.route_refresh && side.enhanced_refresh && side.four_octet);
    }
    let expected = PeerRestart {
        restarting: true,
        notification: true,
        time: Duration::from_secs(60),
        families: Families::ALL,
        forwarding: v6(),
    };
    assert_eq!(here.restart, Some(expected));
    assert_eq!((here.role, there.role), (Some(Role::Provider), Some(Role::Customer)));
    assert_eq!((&here.offered, &here.capabilities), (&there.capabilities, &there.offered));
}

#[test]
fn what_one_side_does_not_offer_is_not_agreed_on() {
    let everything = Offer {
        add_path: AddPath { send: Families::ALL, receive: Families::ALL },
        extended_next_hop: true,
        restart: Some(RestartOffer { time: 9, restarting: false, forwarding: Families::ALL }),
        role: Some(Role::Peer),
        strict_role: false,
    };
    let full = offer(&config(THEIRS, OURS, everything.clone()), Wording::Full, true);
    for (ours, theirs) in [(everything, open(THEIRS, vec![])), (Offer::default(), full)] {
        let agreed = outcome(ours, &theirs).unwrap();
        assert_eq!((agreed.add_path, agreed.extended_next_hop, agreed.restart), Default::default());
    }
    assert!(!outcome(Offer::default(), &open(THEIRS, vec![])).unwrap().route_refresh);
}

#[test]
fn as_numbers_are_what_they_say() {
    let four = Capability::FourOctetAsn;
    let short = |my_as, capabilities| Open { my_as, capabilities, ..open(THEIRS, vec![]) };
    let cases = [
        (short(65_002, vec![]), Ok((THEIRS, false))),
        (short(65_002, vec![four(THEIRS)]), Ok((THEIRS, true))),
        // maghemite #294 the other way round: a number that would have fitted, behind AS_TRANS
        (short(23_456, vec![four(THEIRS)]), Ok((THEIRS, true))),
        (short(23_456, vec![]), Err((2, 2))),
        (short(23_456, vec![four(23_456)]), Err((2, 2))),
        (short(65_003, vec![four(THEIRS)]), Err((2, 2))),
        (short(65_002, vec![four(THEIRS), four(7)]), Err((2, 2))),
        (short(65_002, vec![four(THEIRS), four(THEIRS)]), Ok((THEIRS, true))),
        (short(0, vec![four(THEIRS)]), Err((2, 2))),
        (short(65_002, vec![four(0)]), Err((2, 2))),
        (short(65_003, vec![]), Err((2, 2))),
    ];
    for (theirs, expected) in cases {
        let got = outcome(Offer::default(), &theirs).map(|n| (n.remote_asn, n.four_octet));
        assert_eq!(got, expected, "{theirs:?}");
    }
}

#[test]
fn a_template_takes_any_of_its_as_numbers() {
    let remote_asn = AsnSet::new([65_002..=65_005, OURS..=OURS]);
    let config = SessionConfig { remote_asn, ..config(OURS, 0, Offer::default()) };
    let ours = offer(&config, Wording::Full, true);
    let peering = |asn| negotiate(&config, &ours, &open(asn, vec![])).map(|n| n.peering).ok();
    assert_eq!(peering(65_004), Some(Peering::External { asn: 65_004 }));
    assert_eq!(peering(65_006), None);
    assert_eq!(peering(OURS), None, "our own identifier inside our AS");
}

#[test]
fn roles_pair_up_or_there_is_no_session() {
    let role = |role: Role| Capability::Role(role.code());
    let offer = |strict_role| Offer { role: Some(Role::Provider), strict_role, ..Offer::default() };
    let cases = [
        (vec![], false, Ok(())),
        (vec![], true, Err((2, 11))),
        (vec![role(Role::Customer)], true, Ok(())),
        (vec![role(Role::Customer), role(Role::Customer)], true, Ok(())),
        (vec![role(Role::Customer), role(Role::Peer)], false, Err((2, 11))),
        (vec![role(Role::Provider)], false, Err((2, 11))),
        (vec![Capability::Role(200)], false, Err((2, 11))),
    ];
    for (capabilities, strict, expected) in cases {
        let got = outcome(offer(strict), &open(THEIRS, capabilities.clone())).map(|_| ());
        assert_eq!(got, expected, "{capabilities:?}, strict: {strict}");
    }
    let without = outcome(Offer::default(), &open(THEIRS, vec![role(Role::Provider)])).unwrap();
    assert_eq!(without.role, None, "who has no role minds none");
}

#[test]
fn inside_an_as_there_are_no_roles() {
    let offer_role = Offer { role: Some(Role::Provider), strict_role: true, ..Offer::default() };
    let config = SessionConfig { router_id: Ipv4Addr::new(9, 9, 9, 9), ..config(OURS, OURS, offer_role) };
    let ours = offer(&config, Wording::Full, true);
    assert!(!ours.capabilities.iter().any(|capability| matches!(capability, Capability::Role(_))));
    assert_eq!(negotiate(&config, &ours, &open(OURS, vec![])).unwrap().role, None);
}

#[test]
fn of_several_restart_capabilities_the_last_counts() {
    let restart = |time| Capability::GracefulRestart {
        restarting: false,
        notification: false,
        time,
        families: vec![
            RestartFamily { afi: 1, safi: 1, forwarding: true },
            RestartFamily { afi: 25, safi: 70, forwarding: true },
        ],
    };
    let ours = Offer {
        restart: Some(RestartOffer { time: 1, restarting: false, forwarding: Families::NONE }),
        ..Offer::default()
    };
    let agreed = outcome(ours, &open(THEIRS, vec![restart(5), restart(7)])).unwrap().restart.unwrap();
    assert_eq!((agreed.time, agreed.notification), (Duration::from_secs(7), false));
    assert_eq!((agreed.families, agreed.forwarding), (v4(), v4()));
}

#[test]
fn restart_bits_of_the_first_session_and_of_later_ones() {
    let restart = RestartOffer { time: 60_000, restarting: true, forwarding: v4() };
    let config = config(OURS, THEIRS, Offer { restart: Some(restart), ..Offer::default() });
    let said = |first| {
        let open = offer(&config, Wording::Full, first);
        open.capabilities.into_iter().find(|c| matches!(c, Capability::GracefulRestart { .. })).unwrap()
    };
    let expected = |restarting, second| Capability::GracefulRestart {
        restarting,
        notification: true,
        time: 4095,
        families: vec![
            RestartFamily { afi: 1, safi: 1, forwarding: true },
            RestartFamily { afi: 2, safi: 1, forwarding: second },
        ],
    };
    assert_eq!(said(true), expected(true, false));
    assert_eq!(said(false), expected(false, true));
}

#[test]
fn unknown_capabilities_are_kept_for_showing() {
    let unknown = Capability::Other { code: 73, value: vec![1, 2] };
    let agreed = outcome(Offer::default(), &open(THEIRS, vec![unknown.clone()])).unwrap();
    assert!(agreed.capabilities.contains(&unknown));
}

#[test]
fn add_path_entries_add_up() {
    let entry = |afi, mode| Capability::AddPath(vec![(afi, 1, mode), (25, 70, AddPathMode::Both)]);
    let ours = Offer { add_path: AddPath { send: Families::ALL, receive: v4() }, ..Offer::default() };
    let cases = [
        (entry(1, AddPathMode::Receive), (v4(), Families::NONE)),
        (entry(1, AddPathMode::Send), (Families::NONE, v4())),
        (entry(1, AddPathMode::Both), (v4(), v4())),
        (entry(2, AddPathMode::Both), (v6(), Families::NONE)),
    ];
    for (theirs, (send, receive)) in cases {
        let agreed = outcome(ours.clone(), &open(THEIRS, vec![theirs])).unwrap();
        assert_eq!(agreed.add_path, AddPath { send, receive });
    }
}
