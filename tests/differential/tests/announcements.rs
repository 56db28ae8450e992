//! What our encoder writes, other codecs read as the same.

use bgpkit_parser::models::{AsnLength, BgpMessage as KitMessage, NetworkPrefix};
use bytes::Bytes;
use ipnet::IpNet;
use isthmus_bgp::wire::{Attributes, Nlri, Update, encode_announcement, encode_withdrawal, frame};
use isthmus_differential::{attributes, context, encoding, prefixes};
use netgauze_bgp_pkt::{BgpMessage, wire::deserializer::BgpParsingContext};
use netgauze_iana::address_family::AddressType;
use netgauze_parse_utils::{WritablePdu, reader::SliceReader, traits::ParseFromWithOneInput};
use proptest::prelude::*;

fn example() -> impl Strategy<Value = (Attributes, Vec<Nlri>, bool)> {
    any::<(bool, bool)>()
        .prop_flat_map(|(v6, path_ids)| (attributes(v6), prefixes(v6, path_ids), Just(path_ids)))
}

fn ours(message: &[u8], path_ids: bool) -> Update {
    let message = frame(message).expect("a header").expect("a whole message");
    Update::decode(message.body, &context(path_ids)).expect("an UPDATE")
}

fn netgauze(path_ids: bool) -> BgpParsingContext {
    let families = [AddressType::Ipv4Unicast, AddressType::Ipv6Unicast];
    let add_path = families.into_iter().map(|family| (family, path_ids)).collect();
    BgpParsingContext::new(true, Default::default(), add_path, true, true, true, true)
}

/// Read by NetGauze, written by it, read by us.
fn through_netgauze(message: &[u8], path_ids: bool) -> Vec<u8> {
    let parsed = BgpMessage::parse(&mut SliceReader::new(message), &mut netgauze(path_ids));
    let mut again = Vec::new();
    parsed.expect("NetGauze reads it").write(&mut again).expect("NetGauze writes it");
    again
}

fn kit(message: &[u8], path_ids: bool) -> bgpkit_parser::models::BgpUpdateMessage {
    let mut bytes = Bytes::copy_from_slice(message);
    let parsed = bgpkit_parser::parser::bgp::parse_bgp_message(&mut bytes, path_ids, &AsnLength::Bits32);
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
    fn announcements((attributes, prefixes, path_ids) in example()) {
        let mut message = Vec::new();
        let count = encode_announcement(&attributes, &prefixes, &encoding(path_ids), &mut message).unwrap();

        let again = ours(&through_netgauze(&message, path_ids), path_ids);
        prop_assert_eq!(&again.faults, &[]);
        prop_assert_eq!(&again.announced[0].attributes, &attributes);
        prop_assert_eq!(&again.announced[0].prefixes[..], &prefixes[..count]);

        let read = kit(&message, path_ids);
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
        let communities = attributes.communities.len() + attributes.rare().large_communities.len();
        prop_assert_eq!(read.attributes.iter_communities().count(), communities);
    }

    #[test]
    fn withdrawals((_, prefixes, path_ids) in example()) {
        let mut message = Vec::new();
        let count = encode_withdrawal(&prefixes, &encoding(path_ids), &mut message).unwrap();
        let again = ours(&through_netgauze(&message, path_ids), path_ids);
        prop_assert_eq!(&again.withdrawn[..], &prefixes[..count]);
        let read = kit(&message, path_ids);
        let found = kit_prefixes(&read.withdrawn_prefixes, read.attributes.get_unreachable_nlri());
        prop_assert_eq!(found, pairs(&prefixes[..count]));
    }

    /// A message that NetGauze takes without a word, damaged or not, never costs us the session. Known differences: a message that
    /// announces nothing (RFC 7606 section 5.2), and next hops longer than the family has.
    #[test]
    fn what_netgauze_accepts_does_not_reset(
        (attributes, prefixes, path_ids) in example(),
        at in any::<prop::sample::Index>(),
        value: u8,
    ) {
        let mut message = Vec::new();
        encode_announcement(&attributes, &prefixes[..1], &encoding(path_ids), &mut message).unwrap();
        let at = 19 + at.index(message.len() - 19);
        message[at] = value;
        let mut reader = SliceReader::new(&message);
        let mut session = netgauze(path_ids);
        if BgpMessage::parse(&mut reader, &mut session).is_ok() {
            let body = frame(&message).unwrap().unwrap().body;
            let refused = Update::decode(body, &context(path_ids)).err();
            let known = refused.as_ref().is_none_or(|notification| matches!(notification.subcode, 1 | 9));
            prop_assert!(known, "{refused:?} {message:02x?}");
        }
    }
}
