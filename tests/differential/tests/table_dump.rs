//! Our table dumps, read by bgpkit-parser.

use bgpkit_parser::models::{MrtMessage, TableDumpV2Message};
use isthmus_bgp::mrt::{Entry, Peer, encode_peer_index, encode_rib};
use isthmus_differential::{attributes, prefixes};
use proptest::prelude::*;

fn read(record: &[u8]) -> TableDumpV2Message {
    let read = bgpkit_parser::parse_mrt_record(&mut &record[..]).expect("bgpkit reads it");
    match read.message {
        MrtMessage::TableDumpV2Message(message) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn peer_index() {
    let peers: Vec<Peer> = ["192.0.2.2", "2001:db8::2"]
        .map(|address| Peer {
            router_id: [10, 0, 0, 2].into(),
            address: address.parse().unwrap(),
            asn: 4_200_000_001,
        })
        .into();
    let mut out = Vec::new();
    encode_peer_index(1, [10, 0, 0, 1].into(), "view", &peers, &mut out).unwrap();
    let TableDumpV2Message::PeerIndexTable(table) = read(&out) else { panic!("no index") };
    assert_eq!((table.collector_bgp_id, table.view_name.as_str()), ([10, 0, 0, 1].into(), "view"));
    for (id, peer) in (0u16..).zip(&peers) {
        let found = table.id_peer_map[&id];
        assert_eq!((found.peer_address, u32::from(found.peer_asn)), (peer.address, peer.asn));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn records((attributes, nlri, path_ids) in any::<(bool, bool)>().prop_flat_map(|(v6, path_ids)| {
        (attributes(v6), prefixes(v6, path_ids), Just(path_ids))
    })) {
        let nlri = nlri[0];
        let entry = Entry { peer: 3, originated: 77, path_id: nlri.path_id, attributes: &attributes };
        let mut out = Vec::new();
        encode_rib(9, 5, nlri.prefix, path_ids, &[entry, entry], &mut out).unwrap();
        let TableDumpV2Message::RibAfi(rib) = read(&out) else { panic!("no RIB") };
        prop_assert_eq!((rib.sequence_number, rib.prefix.prefix), (5, nlri.prefix));
        prop_assert_eq!(rib.rib_entries.len(), 2);
        for found in &rib.rib_entries {
            prop_assert_eq!((found.peer_index, found.originated_time), (3, 77));
            prop_assert_eq!(found.attributes.local_preference(), attributes.local_pref);
            let path = found.attributes.as_path().expect("AS_PATH").to_u32_vec_opt(false).unwrap_or_default();
            prop_assert_eq!(path, attributes.as_path.asns());
        }
    }
}
