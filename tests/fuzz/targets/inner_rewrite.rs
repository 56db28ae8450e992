//! What the tunnel changes in inner packets or makes of them: MSS, ECN, ICMP answers, fragments.
#![no_main]

use isthmus_tunnel::checksum::sum;
use isthmus_tunnel::ecn::{self, Ecn};
use isthmus_tunnel::fragment::fragment;
use isthmus_tunnel::plaintext::Plaintext;
use isthmus_tunnel::{icmp, mss, packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(([high, low, outer], bytes)) = data.split_first_chunk::<3>() else { return };
    let mtu = u16::from_be_bytes([*high, *low]);
    clamp(bytes, mtu);
    mark(bytes, Ecn::from_bits(*outer));
    answer(bytes, mtu);
    cut(bytes, mtu);
});

fn clamp(bytes: &[u8], mtu: u16) {
    let mut packet = bytes.to_vec();
    let changed = mss::clamp(&mut packet, mtu);
    assert_eq!(changed, packet != bytes, "says what it does");
    assert!(!mss::clamp(&mut packet, mtu), "once is enough");
}

fn mark(bytes: &[u8], outer: Ecn) {
    let mut packet = bytes.to_vec();
    match ecn::decapsulate(&mut packet, outer) {
        Err(_) => assert!(packet == bytes && outer == Ecn::Ce && Ecn::of(bytes) == Ecn::NotEct),
        Ok(()) => assert!(Ecn::of(bytes) == Ecn::NotEct || outer != Ecn::Ce || Ecn::of(&packet) == Ecn::Ce),
    }
}

fn answer(bytes: &[u8], mtu: u16) {
    let mut out = [0; icmp::LONGEST];
    for own in ["192.0.2.1", "fd00::1"] {
        let own = own.parse().expect("an address");
        let Some(length) = icmp::too_big(bytes, mtu, own, &mut out) else { continue };
        let reply = packet::parse(&out[..length]).expect("an answer is a packet");
        assert_eq!((reply.bytes.len(), reply.source), (length, own));
        let mut again = [0; icmp::LONGEST];
        assert_eq!(icmp::too_big(reply.bytes, mtu, own, &mut again), None, "errors answer no errors");
    }
}

fn cut(bytes: &[u8], mtu: u16) {
    let Ok(fragments) = fragment(bytes, mtu) else { return };
    let header = usize::from(bytes[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let count = fragments.len();
    let mut payload: Vec<u8> = Vec::new();
    for (index, piece) in fragments.enumerate() {
        let mut written = vec![0xaa; piece.len()];
        piece.write(&mut written);
        let header = usize::from(written[0] & 15) * 4;
        assert!(written.len() <= usize::from(mtu) && index < count);
        assert_eq!(sum(&written[..header]), 0xffff, "the header sums right");
        assert_eq!(packet::parse(&written).map(|packet| packet.bytes.len()), Ok(written.len()));
        payload.extend(&written[header..]);
    }
    assert_eq!(payload, &bytes[header..total], "fragments hold the payload in order");
}
