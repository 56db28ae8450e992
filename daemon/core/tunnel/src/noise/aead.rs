//! ChaCha20-Poly1305 in place (RFC 8439) for handshakes, with WireGuard's nonces: four zero bytes and a counter, little-endian. Data
//! messages have `isthmus_aead`.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
pub(crate) use isthmus_aead::TAG;

/// A key, ready for use. Its memory belongs to AWS-LC, which overwrites what it frees (`OPENSSL_free`).
pub(crate) struct Cipher(LessSafeKey);

impl Cipher {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let key =
            UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the length of the algorithm's");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts all of `bytes` but the last [`TAG`], which become the tag. No counter may be used twice. False: there is no room for a
    /// tag, or more than 256 GiB to encrypt.
    #[must_use]
    pub(crate) fn seal(&self, counter: u64, associated: &[u8], bytes: &mut [u8]) -> bool {
        let Some((plain, tag)) = bytes.split_last_chunk_mut::<TAG>() else { return false };
        let sealed = self.0.seal_in_place_separate_tag(nonce(counter), Aad::from(associated), plain);
        let Ok(sealed) = sealed else { return false };
        tag.copy_from_slice(sealed.as_ref());
        true
    }

    /// Decrypts; the plaintext is in front of the last [`TAG`] bytes. `None`: not authentic, and what is in `bytes` is worthless.
    #[must_use]
    pub(crate) fn open<'a>(
        &self,
        counter: u64,
        associated: &[u8],
        bytes: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        self.0.open_in_place(nonce(counter), Aad::from(associated), bytes).ok()
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, appendix A.5: its nonce has the form of ours.
    #[test]
    fn rfc_8439_example() {
        let key = hex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0");
        let associated = hex("f33388860000000000004e91");
        let mut sealed = hex(
            "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d26b0bdb7b73c\
             321b0100d4f03b7f355894cf332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c8559797a06ef4f0ef61\
             c186324e2b3506383606907b6a7c02b0f9f6157b53c867e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0\
             a06c523eaf4534d7f83fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a0bb2316053fa76991955ebd63159434e\
             cebb4e466dae5a1073a6727627097a1049e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29a6ad5cb4\
             022b02709beead9d67890cbb22392336fea1851f38",
        );
        let counter = u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        let cipher = Cipher::new(key.as_slice().try_into().unwrap());
        let whole = sealed.clone();
        let plain = cipher.open(counter, &associated, &mut sealed).expect("authentic").to_vec();
        assert!(plain.starts_with(b"Internet-Drafts are draft documents valid for a maximum of six"));
        let mut again = [plain.as_slice(), &[0; TAG]].concat();
        assert!(cipher.seal(counter, &associated, &mut again));
        assert_eq!(again, whole);
    }

    #[test]
    fn anything_else_is_refused() {
        let cipher = Cipher::new(&[1; 32]);
        assert!(!cipher.seal(0, &[], &mut [0; TAG - 1]));
        let mut sealed = [0; 20 + TAG];
        assert!(cipher.seal(1, b"head", &mut sealed));
        assert!(cipher.open(2, b"head", &mut sealed.clone()).is_none());
        assert!(cipher.open(1, b"tail", &mut sealed.clone()).is_none());
        for length in 0..sealed.len() {
            assert!(cipher.open(1, b"head", &mut sealed[..length].to_vec()).is_none());
        }
        assert_eq!(cipher.open(1, b"head", &mut sealed).map(|plain| plain.to_vec()), Some(vec![0; 20]));
    }

    fn hex(text: &str) -> Vec<u8> {
        text.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }
}
