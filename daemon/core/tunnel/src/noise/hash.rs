//! BLAKE2s in its three uses: hash, keyed MAC, and key derivation by HMAC (WireGuard paper, section 5.4).

use blake2::{
    Blake2s256, Blake2sMac, Digest,
    digest::{Mac, consts::U16, consts::U32},
};
use hmac::SimpleHmac;
use zeroize::Zeroizing;

/// A secret of 32 bytes.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// `Hash(parts, one behind the other)`.
pub(crate) fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Blake2s256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

/// `Mac(key, input)`: keyed BLAKE2s with 16 bytes of output. The key has at most 32 bytes.
pub(crate) fn mac(key: &[u8], input: &[u8]) -> [u8; 16] {
    let mac = <Blake2sMac<U16> as blake2::digest::KeyInit>::new_from_slice(key);
    let mut mac = mac.expect("no key here is longer than 32 bytes");
    Mac::update(&mut mac, input);
    mac.finalize().into_bytes().into()
}

/// `Hmac(key, parts, one behind the other)` over BLAKE2s.
fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> Secret {
    let mut mac =
        <SimpleHmac<Blake2s256> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    let output: blake2::digest::generic_array::GenericArray<u8, U32> = mac.finalize().into_bytes();
    Zeroizing::new(output.into())
}

/// `Kdf_n(key, input)`: n secrets.
pub(crate) fn kdf<const N: usize>(key: &[u8; 32], input: &[u8]) -> [Secret; N] {
    let extracted = hmac(key, &[input]);
    let mut last: Option<Secret> = None;
    let mut number = 0;
    std::array::from_fn(|_| {
        number += 1;
        let before = last.as_ref().map_or(&[][..], |secret| secret.as_slice());
        let secret = hmac(&extracted, &[before, &[number]]);
        last = Some(secret.clone());
        secret
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7693, appendix B.
    #[test]
    fn blake2s_of_abc() {
        let expected = "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982";
        assert_eq!(hex(&hash(&[b"a", b"bc"])), expected);
    }

    /// HKDF-BLAKE2s is RFC 5869 with an empty info: against its definition, written out with plain hashes.
    #[test]
    fn kdf_is_hkdf_with_an_empty_info() {
        fn plain_hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
            let mut block = [0; 64];
            block[..key.len()].copy_from_slice(key);
            let [inner, outer] = [0x36, 0x5c].map(|pad| block.map(|byte| byte ^ pad));
            hash(&[&outer, &hash(&[&inner, message])])
        }
        let (key, input) = ([7; 32], b"input");
        let extracted = plain_hmac(&key, input);
        let first = plain_hmac(&extracted, &[1]);
        let second = plain_hmac(&extracted, &[&first[..], &[2]].concat());
        let third = plain_hmac(&extracted, &[&second[..], &[3]].concat());
        assert_eq!(kdf::<3>(&key, input).map(|secret| *secret), [first, second, third]);
        assert_eq!(*kdf::<1>(&key, input)[0], first);
    }

    /// The first two hashes of every handshake, as published with the protocol's constants.
    #[test]
    fn initial_chaining_key() {
        let chain = hash(&[b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"]);
        assert_eq!(hex(&chain), "60e26daef327efc02ec335e2a025d2d016eb4206f87277f52d38d1988b78cd36");
        let hash = hash(&[&chain, b"WireGuard v1 zx2c4 Jason@zx2c4.com"]);
        assert_eq!(hex(&hash), "2211b361081ac566691243db458ad5322d9c6c662293e8b70ee19c65ba079ef3");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
