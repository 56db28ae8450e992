//! Private keys: ECDSA P-256 and P-384 in PKCS#8, plain or encrypted (PBES2, RFC 8018) so that OpenSSL reads them, or in a token.

mod external;

use std::{fmt, sync::Arc};

use aws_lc_rs::{
    digest,
    signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, UnparsedPublicKey},
};
pub use external::Signer;
use pkcs8::{
    EncryptedPrivateKeyInfo, PrivateKeyInfo,
    der::Decode as _,
    pkcs5::{EncryptionScheme, pbes2, scrypt},
};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PublicKeyData, SignatureAlgorithm, SigningKey,
};
use zeroize::{Zeroize as _, Zeroizing};

// scrypt with N = 2^14, r = 8, p = 5: OWASP's figures for the largest N whose memory (16 MiB) stays below OpenSSL's limit.
const SCRYPT: (u8, u32, u32) = (14, 8, 5);
// What an encrypted file may ask of us before we call it hostile: 256 MiB, and about ten times our own work.
const MAX_SCRYPT_BYTES: u64 = 256 << 20;
const MAX_PBKDF2_ROUNDS: u32 = 10_000_000;

/// Why a key can't be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The library refused to make a key.
    #[error("the cryptographic library failed to make a key")]
    Generate,
    /// Not PEM at all, or more than one block.
    #[error("not one PEM block with a private key: {0}")]
    Pem(String),
    /// PEM of something else.
    #[error("PEM block {0:?} is not a PKCS#8 key; convert it with `openssl pkcs8 -topk8`")]
    Label(String),
    /// RSA, Ed25519, another curve, or damaged.
    #[error("not an ECDSA P-256 or P-384 key in PKCS#8")]
    Unsupported,
    /// The key is encrypted and no passphrase was given.
    #[error("the key is encrypted and needs a passphrase")]
    Encrypted,
    /// Wrong passphrase, or damaged ciphertext: the two can't be told apart.
    #[error("wrong passphrase, or the encrypted key is damaged")]
    Decrypt,
    /// An encryption scheme we don't do, or parameters beyond reason.
    #[error("the key's encryption is not PBES2 with reasonable scrypt or PBKDF2 parameters")]
    Scheme,
    /// Encryption failed.
    #[error("the key can't be encrypted")]
    Encrypt,
    /// A key in a token or a service can't be used, or not be taken out of it.
    #[error("the external key can't be used: {0}")]
    External(String),
}

/// The curve of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// For site CAs and SVIDs.
    P256,
    /// For roots.
    P384,
}

impl Curve {
    fn algorithm(self) -> &'static SignatureAlgorithm {
        match self {
            Self::P256 => &PKCS_ECDSA_P256_SHA256,
            Self::P384 => &PKCS_ECDSA_P384_SHA384,
        }
    }
}

/// A private key, here or elsewhere. The serialized form of one here is zeroized on drop; the library zeroizes its own copy.
pub struct Key(Place);

enum Place {
    Here(KeyPair),
    Elsewhere { signer: Arc<dyn Signer>, public: rcgen::SubjectPublicKeyInfo, spki: Vec<u8> },
}

impl Key {
    /// Makes a key from the operating system's randomness, by the library.
    pub fn generate(curve: Curve) -> Result<Self, Error> {
        KeyPair::generate_for(curve.algorithm()).map(Self::here).map_err(|_| Error::Generate)
    }

    /// Reads a PKCS#8 PEM file; `passphrase` is used if the key is encrypted.
    pub fn from_pem(text: &[u8], passphrase: Option<&[u8]>) -> Result<Self, Error> {
        let mut blocks = pem::parse_many(text).map_err(|e| Error::Pem(e.to_string()))?;
        let block = blocks.pop().ok_or_else(|| Error::Pem("no PEM block".into()))?;
        if !blocks.is_empty() {
            return Err(Error::Pem("more than one PEM block".into()));
        }
        let label = block.tag().to_owned();
        let der = Zeroizing::new(block.into_contents());
        match (label.as_str(), passphrase) {
            ("PRIVATE KEY", _) => Self::from_pkcs8(&der),
            ("ENCRYPTED PRIVATE KEY", None) => Err(Error::Encrypted),
            ("ENCRYPTED PRIVATE KEY", Some(passphrase)) => decrypt(&der, passphrase),
            _ => Err(Error::Label(label)),
        }
    }

    /// Reads PKCS#8 DER.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, Error> {
        [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384]
            .into_iter()
            .find_map(|algorithm| KeyPair::from_pkcs8_der_and_sign_algo(&der.into(), algorithm).ok())
            .map(Self::here)
            .ok_or(Error::Unsupported)
    }

    /// Takes a key that signs elsewhere, after it has signed something that verifies.
    pub fn external(signer: Arc<dyn Signer>) -> Result<Self, Error> {
        let spki = signer.spki().to_vec();
        let key = PublicKey::from_spki(&spki)?;
        external::try_out(&*signer, &key)?;
        Ok(Self(Place::Elsewhere { signer, public: key.for_signing()?, spki }))
    }

    /// Opens a key in a PKCS#11 token, ready to sign: [`crate::token::Uri::parse`], [`crate::token::Location::new`], then this.
    pub fn in_token(location: &isthmus_token::Location) -> Result<Self, Error> {
        let key = location.open().map_err(|e| Error::External(e.to_string()))?;
        Self::external(Arc::new(key))
    }

    /// True if its bytes are not here, so that [`Key::to_pkcs8`] and [`Key::to_pem`] give none.
    pub fn is_external(&self) -> bool {
        matches!(self.0, Place::Elsewhere { .. })
    }

    fn here(pair: KeyPair) -> Self {
        Self(Place::Here(pair))
    }

    /// PKCS#8 DER; empty for a key that is elsewhere.
    pub fn to_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        match &self.0 {
            Place::Here(pair) => Zeroizing::new(pair.serialize_der()),
            Place::Elsewhere { .. } => Zeroizing::default(),
        }
    }

    /// PKCS#8 PEM; empty for a key that is elsewhere.
    pub fn to_pem(&self) -> Zeroizing<String> {
        match &self.0 {
            Place::Here(pair) => Zeroizing::new(pair.serialize_pem()),
            Place::Elsewhere { .. } => Zeroizing::default(),
        }
    }

    /// PKCS#8 PEM encrypted with PBES2: scrypt, AES-256-CBC. `salt` and `iv` must be fresh random bytes.
    pub fn to_encrypted_pem(
        &self,
        passphrase: &[u8],
        salt: &[u8; 16],
        iv: &[u8; 16],
    ) -> Result<String, Error> {
        let Place::Here(pair) = &self.0 else { return Err(Error::Encrypt) };
        let (log_n, r, p) = SCRYPT;
        let scrypt = scrypt::Params::new(log_n, r, p, 32).map_err(|_| Error::Encrypt)?;
        let scheme = pbes2::Parameters::scrypt_aes256cbc(scrypt, salt, iv).map_err(|_| Error::Encrypt)?;
        let info = PrivateKeyInfo::from_der(pair.serialized_der()).map_err(|_| Error::Encrypt)?;
        let sealed = info.encrypt_with_params(scheme, passphrase).map_err(|_| Error::Encrypt)?;
        Ok(pem::encode_config(
            &pem::Pem::new("ENCRYPTED PRIVATE KEY", sealed.as_bytes()),
            pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
        ))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        match &self.0 {
            Place::Here(pair) => PublicKey { spki: pair.subject_public_key_info() },
            Place::Elsewhere { spki, .. } => PublicKey { spki: spki.clone() },
        }
    }
}

fn decrypt(der: &[u8], passphrase: &[u8]) -> Result<Key, Error> {
    let info = EncryptedPrivateKeyInfo::from_der(der).map_err(|_| Error::Scheme)?;
    let EncryptionScheme::Pbes2(scheme) = &info.encryption_algorithm else { return Err(Error::Scheme) };
    let reasonable = match (scheme.kdf.scrypt(), scheme.kdf.pbkdf2()) {
        (Some(s), _) => {
            let bytes = s.cost_parameter.saturating_mul(128).saturating_mul(s.block_size.into());
            bytes <= MAX_SCRYPT_BYTES && s.parallelization <= 64
        }
        (_, Some(p)) => p.iteration_count <= MAX_PBKDF2_ROUNDS,
        _ => false,
    };
    if !reasonable {
        return Err(Error::Scheme);
    }
    let plain = info.decrypt(passphrase).map_err(|_| Error::Decrypt)?;
    Key::from_pkcs8(plain.as_bytes())
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Place::Here(pair) = &mut self.0 {
            pair.zeroize();
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match &self.0 {
            Place::Here(pair) => pair.sign(message),
            // The library has no room for words; who holds the signer asks it.
            Place::Elsewhere { signer, .. } => signer.sign(message).map_err(|_| rcgen::Error::RemoteKeyError),
        }
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        match &self.0 {
            Place::Here(pair) => pair.der_bytes(),
            Place::Elsewhere { public, .. } => public.der_bytes(),
        }
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match &self.0 {
            Place::Here(pair) => pair.algorithm(),
            Place::Elsewhere { public, .. } => public.algorithm(),
        }
    }
}

/// A public key as DER SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    spki: Vec<u8>,
}

impl PublicKey {
    /// Takes ECDSA P-256 and P-384 keys only; the point itself is checked by whoever verifies a signature with it.
    pub fn from_spki(der: &[u8]) -> Result<Self, Error> {
        let key = Self { spki: der.to_vec() };
        let algorithm = key.for_signing()?.algorithm();
        let known = [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384].contains(&algorithm);
        if known { Ok(key) } else { Err(Error::Unsupported) }
    }

    /// DER SubjectPublicKeyInfo.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Its curve.
    pub fn curve(&self) -> Curve {
        let p384 = self.for_signing().is_ok_and(|key| key.algorithm() == &PKCS_ECDSA_P384_SHA384);
        if p384 { Curve::P384 } else { Curve::P256 }
    }

    /// True if `signature` (ECDSA in DER; SHA-256 with P-256, SHA-384 with P-384) is this key's under `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(key) = self.for_signing() else { return false };
        let algorithm = match self.curve() {
            Curve::P256 => &ECDSA_P256_SHA256_ASN1,
            Curve::P384 => &ECDSA_P384_SHA384_ASN1,
        };
        UnparsedPublicKey::new(algorithm, key.der_bytes()).verify(message, signature).is_ok()
    }

    /// Lower-case hex SHA-256 of the SubjectPublicKeyInfo: what people compare over a phone.
    pub fn sha256(&self) -> String {
        sha256_hex(&self.spki)
    }

    pub(crate) fn for_signing(&self) -> Result<rcgen::SubjectPublicKeyInfo, Error> {
        rcgen::SubjectPublicKeyInfo::from_der(&self.spki).map_err(|_| Error::Unsupported)
    }
}

/// Lower-case hex SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn round_trips_plain_and_encrypted() {
        for curve in [Curve::P256, Curve::P384] {
            let key = Key::generate(curve).unwrap();
            assert_eq!(Key::from_pem(key.to_pem().as_bytes(), None).unwrap().public(), key.public());
            let sealed = key.to_encrypted_pem(b"correct horse", &[1; 16], &[2; 16]).unwrap();
            let read = |passphrase| Key::from_pem(sealed.as_bytes(), passphrase);
            assert_eq!(read(Some(b"correct horse".as_slice())).unwrap().public(), key.public());
            assert_eq!(read(Some(b"battery staple")).unwrap_err(), Error::Decrypt);
            assert_eq!(read(None).unwrap_err(), Error::Encrypted);
            assert!(PublicKey::from_spki(key.public().spki()).is_ok());
        }
    }

    #[test]
    fn refuses_other_kinds() {
        let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        assert_eq!(Key::from_pem(ed25519.serialize_pem().as_bytes(), None).unwrap_err(), Error::Unsupported);
        assert_eq!(PublicKey::from_spki(&ed25519.subject_public_key_info()).unwrap_err(), Error::Unsupported);
        let sec1 = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
        assert!(matches!(Key::from_pem(sec1.as_bytes(), None), Err(Error::Label(_))));
        assert!(matches!(Key::from_pem(b"", None), Err(Error::Pem(_))));
    }

    #[test]
    fn a_hostile_cost_is_refused_before_it_is_paid() {
        let key = Key::generate(Curve::P256).unwrap();
        let scrypt = scrypt::Params::new(10, 8, 1, 32).unwrap();
        let mut scheme = pbes2::Parameters::scrypt_aes256cbc(scrypt, &[0; 16], &[0; 16]).unwrap();
        let pbes2::Kdf::Scrypt(params) = &mut scheme.kdf else { panic!("scrypt") };
        params.cost_parameter = 1 << 40;
        let info =
            EncryptedPrivateKeyInfo { encryption_algorithm: scheme.into(), encrypted_data: &key.to_pkcs8() };
        let der = pkcs8::der::Encode::to_der(&info).unwrap();
        assert_eq!(decrypt(&der, b"x").unwrap_err(), Error::Scheme);
    }

    /// A token for tests: signs with the key it holds, and shows what it is told to.
    struct Elsewhere(Key, Vec<u8>);

    impl Signer for Elsewhere {
        fn spki(&self) -> &[u8] {
            &self.1
        }

        fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
            SigningKey::sign(&self.0, message).map_err(|e| e.to_string())
        }
    }

    #[test]
    fn a_key_elsewhere_is_tried_out_and_gives_nothing_away() {
        for curve in [Curve::P256, Curve::P384] {
            let inside = Key::generate(curve).unwrap();
            let public = inside.public();
            let key = Key::external(Arc::new(Elsewhere(inside, public.spki().to_vec()))).unwrap();
            assert_eq!((key.public(), key.is_external(), public.curve()), (public.clone(), true, curve));
            assert!(key.to_pkcs8().is_empty() && key.to_pem().is_empty());
            assert!(key.to_encrypted_pem(b"x", &[1; 16], &[2; 16]).is_err());
            assert!(public.verifies(b"message", &SigningKey::sign(&key, b"message").unwrap()));
            assert!(!public.verifies(b"another", &SigningKey::sign(&key, b"message").unwrap()));
            let other = Key::generate(curve).unwrap().public().spki().to_vec();
            let wrong = Key::external(Arc::new(Elsewhere(Key::generate(curve).unwrap(), other)));
            assert!(matches!(wrong, Err(Error::External(_))));
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Key::generate(Curve::P256).unwrap()), "Key(..)");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Key::from_pem(&bytes, Some(b"x"));
            let _ = Key::from_pkcs8(&bytes);
            let _ = PublicKey::from_spki(&bytes);
            let _ = decrypt(&bytes, b"x");
        }
    }
}
