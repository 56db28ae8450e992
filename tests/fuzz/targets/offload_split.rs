//! What the TUN device hands over, header and packet: every segment fits its headers, sums right and is no more than the burst held.
#![no_main]

use isthmus_tunnel::checksum::{fold, pseudo_v4, pseudo_v6, sum};
use isthmus_tunnel::offload::split::{MAX_SEGMENTS, split};
use isthmus_tunnel::offload::vnet::{GSO_NONE, VnetHeader};
use isthmus_tunnel::packet;
use isthmus_tunnel::plaintext::Plaintext;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((header, bytes)) = data.split_first_chunk() else { return };
    let header = VnetHeader::parse(*header);
    assert_eq!(header.encode(), data[..10], "every header is encoded as it was");
    let mut burst = bytes.to_vec();
    let Ok(segments) = split(header, &mut burst) else { return };
    let count = segments.len();
    assert!((1..=MAX_SEGMENTS).contains(&count));
    let mut seen = 0;
    for segment in segments {
        let mut packet = vec![0xaa; segment.len()];
        segment.write(&mut packet);
        seen += 1;
        if header.gso_type == GSO_NONE {
            assert_eq!(packet.len(), bytes.len(), "a packet that is no burst stays one");
        } else {
            check(&packet);
        }
    }
    assert_eq!(seen, count, "as many segments as promised");
});

/// Lengths and checksums of a segment; those of IPv6 only without extension headers, behind which the destination may be another.
fn check(segment: &[u8]) {
    let parsed = packet::parse(segment).expect("a segment is a packet");
    assert_eq!(parsed.bytes.len(), segment.len(), "of the length its header says");
    let (at, protocol) =
        if segment[0] >> 4 == 4 { (usize::from(segment[0] & 15) * 4, segment[9]) } else { (40, segment[6]) };
    if !matches!(protocol, 6 | 17) {
        return;
    }
    let length = u16::try_from(segment.len() - at).expect("16 bits");
    let pseudo = if at == 40 && segment[0] >> 4 == 6 {
        pseudo_v6(segment[8..].first_chunk().expect("a header"), protocol, length.into())
    } else {
        assert_eq!(sum(&segment[..at]), 0xffff, "the IPv4 header sums right");
        pseudo_v4(segment[12..].first_chunk().expect("a header"), protocol, length)
    };
    assert_eq!(fold(pseudo + u64::from(sum(&segment[at..]))), 0xffff, "the transport sums right");
}
