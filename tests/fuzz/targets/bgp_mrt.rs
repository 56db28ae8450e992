//! Whatever attributes a neighbor sends, the table dump with them is a chain of whole records.
#![no_main]

use isthmus_bgp::Families;
use isthmus_bgp::mrt::{Entry, Peer, encode_peer_index, encode_rib};
use isthmus_bgp::wire::{Announcement, Peering, Update, UpdateContext};
use libfuzzer_sys::fuzz_target;

/// The first byte chooses path identifiers and the width of AS numbers, the second the number of paths; then comes an UPDATE.
fuzz_target!(|data: &[u8]| {
    let [choice, paths, body @ ..] = data else { return };
    let path_ids = choice & 1 != 0;
    let context = UpdateContext {
        four_octet: choice & 2 == 0,
        peering: Peering::Internal,
        families: Families::ALL,
        add_path: if path_ids { Families::ALL } else { Families::NONE },
        extended_next_hop: choice & 4 != 0,
    };
    let Ok(update) = Update::decode(body, &context) else { return };
    let mut file = Vec::new();
    let peer = Peer { router_id: [10, 0, 0, 2].into(), address: [192, 0, 2, 2].into(), asn: 65_001 };
    encode_peer_index(1, [10, 0, 0, 1].into(), "view", &[peer], &mut file).expect("one peer fits");
    for announced in &update.announced {
        dump(announced, path_ids, usize::from(*paths), &mut file);
    }
    walk(&file, path_ids);
});

fn dump(announced: &Announcement, path_ids: bool, paths: usize, file: &mut Vec<u8>) {
    for (sequence, nlri) in (0u32..).zip(&announced.prefixes) {
        let entry =
            Entry { peer: 0, originated: 7, path_id: nlri.path_id, attributes: &announced.attributes };
        let before = file.len();
        if encode_rib(9, sequence, nlri.prefix, path_ids, &vec![entry; paths], file).is_err() {
            assert_eq!(file.len(), before, "a record that fails leaves nothing");
        }
    }
}

fn walk(mut file: &[u8], path_ids: bool) {
    while let Some((header, rest)) = file.split_first_chunk::<12>() {
        let [_, _, _, _, 0, 13, _, kind, a, b, c, d] = *header else {
            panic!("not TABLE_DUMP_V2: {header:?}")
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).expect("64 bits");
        let (record, rest) = rest.split_at(length);
        if kind != 1 {
            walk_paths(record, path_ids);
        }
        file = rest;
    }
    assert!(file.is_empty(), "half a header");
}

/// Sequence number, prefix, number of paths, and of each path what stands before its attributes, and they.
fn walk_paths(record: &[u8], path_ids: bool) {
    let prefix = usize::from(record[4]).div_ceil(8);
    let (count, mut rest) = record[5 + prefix..].split_first_chunk::<2>().expect("a count");
    for _ in 0..u16::from_be_bytes(*count) {
        let length_at = if path_ids { 10 } else { 6 };
        let length = usize::from(u16::from_be_bytes([rest[length_at], rest[length_at + 1]]));
        rest = &rest[length_at + 2 + length..];
    }
    assert!(rest.is_empty(), "{} octets are no path", rest.len());
}
