//! Poly1305 beside a model that doubles and adds.

use proptest::prelude::*;

use super::*;
use crate::avx512::Kernel;

/// A number below 2^131: the bits from 128 on, and those below.
type Wide = (u128, u128);

/// 2^130 - 5.
const P: Wide = (3, u128::MAX - 4);

fn add_mod(a: Wide, b: Wide) -> Wide {
    let (low, over) = a.1.overflowing_add(b.1);
    let mut sum = (a.0 + b.0 + u128::from(over), low);
    while sum >= P {
        let (low, under) = sum.1.overflowing_sub(P.1);
        sum = (sum.0 - P.0 - u128::from(under), low);
    }
    sum
}

fn multiply_mod(a: Wide, b: u128) -> Wide {
    (0..128).rev().fold((0, 0), |product, bit| {
        let double = add_mod(product, product);
        if b >> bit & 1 == 1 { add_mod(double, a) } else { double }
    })
}

/// Poly1305 of whole blocks.
fn model(r: u128, s: u128, blocks: &[u128]) -> u128 {
    let r = r & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
    blocks.iter().fold((0, 0), |sum, block| multiply_mod(add_mod(sum, (1, *block)), r)).1.wrapping_add(s)
}

/// The blocks that ChaCha20-Poly1305 authenticates for a message.
fn blocks(message: &[u8]) -> Vec<u128> {
    let mut blocks: Vec<u128> = message
        .chunks(16)
        .map(|bytes| {
            let mut block = [0; 16];
            block[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(block)
        })
        .collect();
    blocks.push(u128::try_from(message.len()).unwrap() << 64);
    blocks
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn tags_of(keys: &[(u128, u128); LANES], messages: &[&[u8]; LANES]) -> [u128; LANES] {
    let mut rows = [_mm512_setzero_si512(); LANES];
    for (row, (r, s)) in rows.iter_mut().zip(keys) {
        *row = load_some(&[r.to_le_bytes(), s.to_le_bytes()].concat());
    }
    tags(&rows, messages, messages[0].len())
}

/// Holds the kernel against the model: one message in each lane, under one key.
fn check(key: (u128, u128), messages: &[Vec<u8>; LANES]) {
    if Kernel::detect().is_none() {
        return;
    }
    let (mut keys, mut next) = ([key; LANES], key);
    for key in &mut keys {
        *key = next;
        next = (next.0.rotate_left(16), next.1.wrapping_add(1));
    }
    let slices = messages.each_ref().map(Vec::as_slice);
    // SAFETY: the kernel was found to run here.
    let tags = unsafe { tags_of(&keys, &slices) };
    for lane in 0..LANES {
        let (r, s) = keys[lane];
        assert_eq!(
            tags[lane],
            model(r, s, &blocks(&messages[lane])),
            "lane {lane}: r {r:x}, s {s:x}, {messages:x?}"
        );
    }
}

/// RFC 8439, appendix A.3, test vectors 7 to 11: what they say of p's neighbourhood. They hold the model, which holds the kernel.
#[test]
fn the_model_is_the_rfcs() {
    const F: u128 = u128::MAX;
    assert_eq!(model(2, 0, &[F]), 3);
    assert_eq!(model(2, F, &[2]), 3);
    assert_eq!(model(1, 0, &[F, F - 0xf, 0x11]), 5);
    assert_eq!(
        model(
            1,
            0,
            &[F, 0xfefe_fefe_fefe_fefe_fefe_fefe_fefe_fefb, 0x0101_0101_0101_0101_0101_0101_0101_0101]
        ),
        0
    );
    assert_eq!(model(2, 0, &[F - 2]), F - 5);
    let r = 1 | 4 << 64;
    let (a, b) = (0xb943_5e50_d794_35e3, 0xcd79_435e_50d7_9433 | 1 << 64);
    assert_eq!(model(r, 0, &[a, b, 0, 1]), 0x14 | 0x55 << 64);
    assert_eq!(model(r, 0, &[a, b, 0]), 0x13);
}

#[test]
fn sums_around_p() {
    // r = 1 and three blocks, the last of them the length: the sum before its reduction is 2^130 - 5 + delta.
    for start in (-40..40).step_by(LANES) {
        let messages = std::array::from_fn(|lane| {
            let delta = start + i128::try_from(lane).unwrap();
            let rest = (u128::MAX - 104 - (32 << 64)).wrapping_add_signed(delta);
            [100_u128.to_le_bytes(), rest.to_le_bytes()].concat()
        });
        check_plain(1, &messages);
        check_plain(2, &messages);
    }
}

/// With the same key in each lane.
fn check_plain(r: u128, messages: &[Vec<u8>; LANES]) {
    if Kernel::detect().is_none() {
        return;
    }
    let slices = messages.each_ref().map(Vec::as_slice);
    // SAFETY: the kernel was found to run here.
    let tags = unsafe { tags_of(&[(r, 0); LANES], &slices) };
    assert_eq!(tags, messages.each_ref().map(|message| model(r, 0, &blocks(message))), "r {r}");
}

#[test]
fn greatest_limbs_everywhere() {
    for length in (0..=320).chain([1420, 1424, 4096]) {
        for r in [u128::MAX, 0, 1, 4 << 64, 0x0fff_fffc << 96, 0x0fff_ffff] {
            check((r, u128::MAX), &std::array::from_fn(|_| vec![0xff; length]));
        }
    }
}

#[test]
fn reduction_of_every_edge() {
    const TOP: u64 = (1 << 44) - 1;
    let low = [0, 1, 4, 5, 6, TOP - 5, TOP - 4, TOP - 3, TOP];
    let middle = [0, 1, TOP - 1, TOP, TOP + 1, TOP + (1 << 16)];
    let high = [0, 1, (1 << 42) - 2, (1 << 42) - 1];
    for a in low {
        for b in middle {
            for c in high {
                let scaled = |limb: u64, twice: u32| {
                    (0..twice).fold((0, u128::from(limb)), |number, _| add_mod(number, number))
                };
                let (_, expected) = add_mod(add_mod(scaled(a, 0), scaled(b, 44)), scaled(c, 88));
                assert_eq!(reduce([a, b, c]), expected, "{a:x} {b:x} {c:x}");
            }
        }
    }
}

/// Mostly bytes that make limbs full, empty, or nearly so.
fn block() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![
        Just([0xff; 16]),
        Just([0; 16]),
        (0_u8..8).prop_map(|low| {
            let mut block = [0xff; 16];
            block[0] = 0xff - low;
            block
        }),
        (0_u32..128).prop_map(|bit| (1_u128 << bit).to_le_bytes()),
        (0_u32..128).prop_map(|bit| (u128::MAX << bit).to_le_bytes()),
        any::<[u8; 16]>(),
    ]
}

proptest! {
    #[test]
    fn the_kernel_agrees_with_the_model(
        r in block(),
        s in block(),
        length in 0_usize..200,
        messages in prop::array::uniform8(prop::collection::vec(block(), 13)),
    ) {
        let messages = messages.map(|blocks| blocks.concat()[..length].to_vec());
        check((u128::from_le_bytes(r), u128::from_le_bytes(s)), &messages);
    }
}
