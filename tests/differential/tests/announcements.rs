//! What our encoder writes, other codecs read as the same.

use bgpkit_parser::models::{AsnLength, BgpMessage as KitMessage, NetworkPrefix};
use bytes::Bytes;
use ipnet::IpNet;
use isthmus_bgp::wire::{Nlri, Notification, Update, encode_announcement, encode_withdrawal, frame};
use isthmus_differential::{Session, examples};
use netgauze_bgp_pkt::{
    BgpMessage,
    path_attribute::{PathAttribute, PathAttributeValue},
    update::BgpUpdateMessage,
    wire::deserializer::BgpParsingContext,
};
use netgauze_iana::address_family::AddressType;
use netgauze_parse_utils::{WritablePdu, reader::SliceReader, traits::ParseFromWithOneInput};
use proptest::prelude::*;

fn ours(message: &[u8], session: &Session) -> Update {
    let message = frame(message).expect("a header").expect("a whole message");
    Update::decode(message.body, &session.context()).expect("an UPDATE")
}

fn netgauze(session: &Session) -> BgpParsingContext {
    let families = [AddressType::Ipv4Unicast, AddressType::Ipv6Unicast];
    let add_path = families.into_iter().map(|family| (family, session.path_ids)).collect();
    BgpParsingContext::new(session.four_octet, Default::default(), add_path, true, true, true, true)
}

/// Read by NetGauze, written by it, read by us.
fn through_netgauze(message: &[u8], session: &Session) -> Vec<u8> {
    let parsed = BgpMessage::parse(&mut SliceReader::new(message), &mut netgauze(session));
    let mut again = Vec::new();
    parsed.expect("NetGauze reads it").write(&mut again).expect("NetGauze writes it");
    again
}

fn kit(message: &[u8], session: &Session) -> bgpkit_parser::models::BgpUpdateMessage {
    let mut bytes = Bytes::copy_from_slice(message);
    let width = if session.four_octet { AsnLength::Bits32 } else { AsnLength::Bits16 };
    let parsed = bgpkit_parser::parser::bgp::parse_bgp_message(&mut bytes, session.path_ids, &width);
    match parsed.expect("bgpkit reads it") {
        KitMessage::Update(update) => update,
        other => panic!("{other:?}"),
    }
}

fn kit_prefixes(classic: &[NetworkPrefix], mp: Option<&bgpkit_parser::models::Nlri>) -> Vec<(IpNet, u32)> {
    let mp = mp.into_iter().flat_map(|mp| &mp.prefixes);
    classic.iter().chain(mp).map(|found| (found.prefix, found.path_id)).collect()
}

fn pairs(nlri: &[Nlri]) -> Vec<(IpNet, u32)> {
    nlri.iter().map(|nlri| (nlri.prefix, nlri.path_id)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn announcements((session, attributes, prefixes) in examples()) {
        let mut message = Vec::new();
        let count = encode_announcement(&attributes, &prefixes, &session.encoding(), &mut message).unwrap();

        let again = ours(&through_netgauze(&message, &session), &session);
        prop_assert_eq!(&again.faults, &[]);
        prop_assert_eq!(&again.announced[0].attributes, &attributes);
        prop_assert_eq!(&again.announced[0].prefixes[..], &prefixes[..count]);

        let read = kit(&message, &session);
        let found = kit_prefixes(&read.announced_prefixes, read.attributes.get_reachable_nlri());
        prop_assert_eq!(found, pairs(&prefixes[..count]));
        prop_assert_eq!(read.attributes.multi_exit_discriminator(), attributes.med);
        prop_assert_eq!(read.attributes.local_preference(), attributes.local_pref);
        prop_assert_eq!(read.attributes.atomic_aggregate(), attributes.rare().atomic_aggregate);
        prop_assert_eq!(read.attributes.only_to_customer().map(u32::from), attributes.rare().only_to_customer);
        let mp_next_hop = read.attributes.get_reachable_nlri().and_then(|nlri| nlri.next_hop.map(|hop| hop.addr()));
        prop_assert_eq!(read.attributes.next_hop().or(mp_next_hop), Some(attributes.next_hop));
        let path = read.attributes.as_path().expect("AS_PATH").to_u32_vec_opt(false).unwrap_or_default();
        prop_assert_eq!(path, attributes.as_path.asns());
        let rare = attributes.rare();
        let extended = rare.opaque.iter().filter(|opaque| opaque.code == 16).map(|opaque| opaque.value.len() / 8);
        let communities = attributes.communities.len() + rare.large_communities.len() + extended.sum::<usize>();
        prop_assert_eq!(read.attributes.iter_communities().count(), communities);
    }

    #[test]
    fn withdrawals((session, _, prefixes) in examples()) {
        let mut message = Vec::new();
        let count = encode_withdrawal(&prefixes, &session.encoding(), &mut message).unwrap();
        let again = ours(&through_netgauze(&message, &session), &session);
        prop_assert_eq!(&again.withdrawn[..], &prefixes[..count]);
        let read = kit(&message, &session);
        let found = kit_prefixes(&read.withdrawn_prefixes, read.attributes.get_unreachable_nlri());
        prop_assert_eq!(found, pairs(&prefixes[..count]));
    }

    /// A message that NetGauze takes without a word, damaged or not, costs us the session only for what [`is_known`] names.
    #[test]
    fn what_netgauze_accepts_does_not_reset(
        (session, attributes, prefixes) in examples(),
        at in any::<prop::sample::Index>(),
        value: u8,
    ) {
        let mut message = Vec::new();
        encode_announcement(&attributes, &prefixes[..1], &session.encoding(), &mut message).unwrap();
        let at = 19 + at.index(message.len() - 19);
        message[at] = value;
        if let Ok(BgpMessage::Update(theirs)) = BgpMessage::parse(&mut SliceReader::new(&message), &mut netgauze(&session)) {
            let body = frame(&message).unwrap().unwrap().body;
            let refused = Update::decode(body, &session.context()).err();
            prop_assert!(refused.as_ref().is_none_or(|refused| is_known(refused, &theirs)), "{refused:?} {message:02x?}");
        }
    }
}

/// What NetGauze lets pass and RFC 7606 does not: faults beside no announcement (section 5.2), and MP attributes with the flags of others
/// (5.3) or with a next hop of a length that the family cannot have (7.11).
fn is_known(refused: &Notification, theirs: &BgpUpdateMessage) -> bool {
    let reaches = |attribute: &PathAttribute| matches!(attribute.value(), PathAttributeValue::MpReach(_));
    match refused.subcode {
        1 => theirs.nlri().is_empty() && !theirs.path_attributes().iter().any(reaches),
        9 => {
            let [flags, code, rest @ ..] = &refused.data[..] else { return false };
            let value = if flags & 0x10 == 0 { &rest[1..] } else { &rest[2..] };
            flags & 0xc0 != 0x80 || (*code == 14 && ![4, 16, 32].contains(&value[3]))
        }
        _ => false,
    }
}
