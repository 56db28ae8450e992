//! The batch beside AWS-LC packet by packet.

use isthmus_aead::{Key, Packet, TAG};

#[test]
fn smoke() {
    let key = core::array::from_fn(|i| i as u8 * 7 + 1);
    let (fast, slow) = (Key::new(&key), Key::portable(&key));
    for count in 1..40 {
        for length in (0..300).chain([1420, 1424, 2000]) {
            let plain: Vec<Vec<u8>> = (0..count).map(|p| (0..length + TAG).map(|i| (i * 13 + p * 5) as u8).collect()).collect();
            let (mut a, mut b) = (plain.clone(), plain.clone());
            let mut pa: Vec<_> = a.iter_mut().zip(5..).map(|(b, c)| Packet::new(c << 30, b)).collect();
            let mut pb: Vec<_> = b.iter_mut().zip(5..).map(|(b, c)| Packet::new(c << 30, b)).collect();
            fast.seal_batch(&mut pa);
            slow.seal_batch(&mut pb);
            assert!(pa.iter().all(|p| p.ok));
            assert_eq!(a, b, "{count} x {length}");
            let mut pa: Vec<_> = a.iter_mut().zip(5..).map(|(b, c)| Packet::new(c << 30, b)).collect();
            fast.open_batch(&mut pa);
            assert!(pa.iter().all(|p| p.ok), "{count} {length}");
            for (a, p) in a.iter().zip(&plain) { assert_eq!(a[..length], p[..length]); }
        }
    }
}
