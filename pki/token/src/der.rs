//! The few DER shapes between a token and the rest of the world.

use crate::Curve;

/// OBJECT IDENTIFIER prime256v1, 1.2.840.10045.3.1.7.
const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// OBJECT IDENTIFIER secp384r1, 1.3.132.0.34.
const P384: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
/// OBJECT IDENTIFIER id-ecPublicKey, 1.2.840.10045.2.1.
const EC_PUBLIC_KEY: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// Bytes of a coordinate, of r, of s and of the digest that goes with the curve.
pub(crate) fn field_len(curve: Curve) -> usize {
    match curve {
        Curve::P256 => 32,
        Curve::P384 => 48,
    }
}

/// What CKA_EC_PARAMS holds for a named curve.
pub(crate) fn curve_oid(curve: Curve) -> &'static [u8] {
    match curve {
        Curve::P256 => &P256,
        Curve::P384 => &P384,
    }
}

/// The curve that CKA_EC_PARAMS names.
pub(crate) fn curve(params: &[u8]) -> Option<Curve> {
    [Curve::P256, Curve::P384].into_iter().find(|curve| curve_oid(*curve) == params)
}

/// The uncompressed point in CKA_EC_POINT: in an OCTET STRING, as the standard has it, or bare, as some tokens do it.
pub(crate) fn point(curve: Curve, value: &[u8]) -> Option<Vec<u8>> {
    let length = 1 + 2 * field_len(curve);
    let header = [OCTET_STRING, u8::try_from(length).ok()?];
    let bare = value.strip_prefix(&header).unwrap_or(value);
    (bare.len() == length && bare[0] == 4).then(|| bare.to_vec())
}

/// SubjectPublicKeyInfo (RFC 5480 section 2).
pub(crate) fn spki(curve: Curve, point: &[u8]) -> Vec<u8> {
    let algorithm = tagged(SEQUENCE, &[&EC_PUBLIC_KEY, curve_oid(curve)].concat());
    let key = tagged(BIT_STRING, &[&[0], point].concat());
    tagged(SEQUENCE, &[algorithm, key].concat())
}

/// Ecdsa-Sig-Value (RFC 3279 section 2.2.3) of r and s, each of `length` bytes.
pub(crate) fn signature(raw: &[u8], length: usize) -> Option<Vec<u8>> {
    (raw.len() == 2 * length).then(|| {
        let (r, s) = raw.split_at(length);
        tagged(SEQUENCE, &[integer(r), integer(s)].concat())
    })
}

/// A positive number: without leading zeros, but with one before a set top bit.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let digits =
        &bytes[bytes.iter().take_while(|byte| **byte == 0).count().min(bytes.len().saturating_sub(1))..];
    let sign: &[u8] = if digits.first().is_some_and(|byte| byte & 0x80 != 0) { &[0] } else { &[] };
    tagged(INTEGER, &[sign, digits].concat())
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length =
        u8::try_from(content.len()).expect("nothing here is longer than 126 bytes but P-384's key, of 120");
    let header: &[u8] = if length < 0x80 { &[tag, length] } else { &[tag, 0x81, length] };
    [header, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positive_and_short() {
        assert_eq!(integer(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(integer(&[0x80, 0]), [2, 3, 0, 0x80, 0]);
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
        let raw = [[0xff; 48], [0x7f; 48]].concat();
        let signature = signature(&raw, 48).unwrap();
        assert_eq!((signature[..5].to_vec(), signature.len()), (vec![0x30, 101, 2, 49, 0], 103));
        assert_eq!(super::signature(&raw, 32), None);
    }

    #[test]
    fn points_in_both_shapes() {
        let bare = [&[4u8][..], &[7; 64]].concat();
        let wrapped = [&[4u8, 65][..], &bare].concat();
        assert_eq!(point(Curve::P256, &bare).as_ref(), Some(&bare));
        assert_eq!(point(Curve::P256, &wrapped).as_ref(), Some(&bare));
        assert_eq!(point(Curve::P384, &bare), None);
        assert_eq!(point(Curve::P256, &[2; 65]), None);
        assert_eq!(point(Curve::P256, &[]), None);
    }

    #[test]
    fn keys_have_the_header_that_everyone_knows() {
        assert_eq!(spki(Curve::P256, &[4; 65])[..4], [0x30, 0x59, 0x30, 0x13]);
        assert_eq!(spki(Curve::P384, &[4; 97])[..4], [0x30, 0x76, 0x30, 0x10]);
        assert_eq!((curve(&P384), curve(&P384[..6])), (Some(Curve::P384), None));
    }
}
