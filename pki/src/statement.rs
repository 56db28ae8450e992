//! Statements that a CA signs: a JWS in compact form (RFC 7515 section 7.1) whose header carries the signer's certificate (`x5c`).
//!
//! [`seal`] signs, [`open`] proves that the key of the certificate in the header signed these bytes as this type of statement. Whether
//! that certificate is believed is for the caller to say: a charter wants a root that the node trusts, a taint the tainted CA itself.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, UnparsedPublicKey};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::{
    authority::{self, Authority},
    facts::{self, Facts},
};

/// Longest statement that is looked at, in bytes of its compact form.
pub const MAX_LEN: usize = 1 << 20;
/// Longest header: one certificate, base64 twice over.
const MAX_HEADER: usize = 128 << 10;

/// Why a statement can't be signed, or is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_LEN`].
    #[error("the statement has {0} bytes; more than {MAX_LEN} are refused")]
    TooLong(usize),
    /// Not three parts of base64url without padding.
    #[error("not a JWS in compact form: {0}")]
    Form(&'static str),
    /// A header with other members than alg, typ and x5c, or other values.
    #[error("the JWS header can't be read: {0}")]
    Header(String),
    /// A statement of another kind.
    #[error("the JWS is of type {found:?}, wanted is {wanted:?}")]
    Type {
        /// From the header.
        found: String,
        /// What the caller asked for.
        wanted: &'static str,
    },
    /// The signer's certificate can't be read.
    #[error("the signer's certificate in the JWS header: {0}")]
    Certificate(#[from] facts::Error),
    /// The signer's key is of another kind than the header says.
    #[error("the signer's key is not of the kind that the JWS header says")]
    Key,
    /// Changed after it was signed, or signed by somebody else.
    #[error("the signature does not verify with the certificate in the JWS header")]
    Signature,
    /// The CA could not sign.
    #[error("signing failed: {0}")]
    Sign(String),
}

impl From<authority::Error> for Error {
    fn from(error: authority::Error) -> Self {
        Self::Sign(error.to_string())
    }
}

/// A statement whose signature held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What was signed.
    pub payload: Vec<u8>,
    /// The certificate whose key signed it.
    pub signer: CertificateDer<'static>,
    /// What that certificate says.
    pub facts: Facts,
}

/// RFC 7518 section 3.4: the curve decides the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Algorithm {
    #[serde(rename = "ES256")]
    P256,
    #[serde(rename = "ES384")]
    P384,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: Algorithm,
    typ: String,
    x5c: Vec<String>,
}

/// Signs `payload` as a statement of type `typ` with the CA's key.
pub fn seal(typ: &str, payload: &[u8], signer: &Authority) -> Result<String, Error> {
    let (algorithm, _) = key(&signer.facts().spki).ok_or(Error::Key)?;
    let header = Header { alg: algorithm, typ: typ.into(), x5c: vec![STANDARD.encode(signer.certificate())] };
    let header = serde_json::to_vec(&header).map_err(|e| Error::Header(e.to_string()))?;
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = signer.sign(signed.as_bytes())?;
    let signature =
        fixed(&signature, algorithm.width()).ok_or_else(|| Error::Sign("not an ECDSA signature".into()))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Reads a statement of type `typ` and checks its signature.
pub fn open(text: &str, typ: &'static str) -> Result<Opened, Error> {
    if text.len() > MAX_LEN {
        return Err(Error::TooLong(text.len()));
    }
    let (signed, signature) = text.rsplit_once('.').ok_or(Error::Form("no dot in it"))?;
    let (header, payload) = signed.split_once('.').ok_or(Error::Form("only one dot in it"))?;
    let header = read_header(header, typ)?;
    let [certificate] = header.x5c.as_slice() else {
        return Err(Error::Header("x5c has exactly one certificate here".into()));
    };
    let certificate = STANDARD.decode(certificate).map_err(|e| Error::Header(format!("x5c: {e}")))?;
    let facts = Facts::parse(&certificate)?;
    verify(header.alg, &facts.spki, signed.as_bytes(), &decode(signature)?)?;
    Ok(Opened { payload: decode(payload)?, signer: certificate.into(), facts })
}

fn read_header(part: &str, typ: &'static str) -> Result<Header, Error> {
    if part.len() > MAX_HEADER {
        return Err(Error::Header("it is too long".into()));
    }
    let header: Header = serde_json::from_slice(&decode(part)?).map_err(|e| Error::Header(e.to_string()))?;
    if header.typ == typ { Ok(header) } else { Err(Error::Type { found: header.typ, wanted: typ }) }
}

fn decode(part: &str) -> Result<Vec<u8>, Error> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Error::Form("a part is not base64url without padding"))
}

fn verify(algorithm: Algorithm, spki: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Error> {
    let (kind, point) = key(spki).ok_or(Error::Key)?;
    if kind != algorithm {
        return Err(Error::Key);
    }
    let scheme = match algorithm {
        Algorithm::P256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::P384 => &ECDSA_P384_SHA384_FIXED,
    };
    UnparsedPublicKey::new(scheme, point).verify(message, signature).map_err(|_| Error::Signature)
}

/// Curve and point of a SubjectPublicKeyInfo (RFC 5480): the DER before the point is the same for all keys of a curve.
fn key(spki: &[u8]) -> Option<(Algorithm, &[u8])> {
    const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
    const P384: &[u8] =
        b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";
    let curve = |head: &[u8], algorithm| spki.strip_prefix(head).map(|point| (algorithm, point));
    curve(P256, Algorithm::P256).or_else(|| curve(P384, Algorithm::P384))
}

impl Algorithm {
    /// Bytes of r, and of s.
    fn width(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
        }
    }
}

/// r and s of fixed width (RFC 7518 section 3.4) from the DER of X9.62.
fn fixed(der: &[u8], width: usize) -> Option<Vec<u8>> {
    let [0x30, length, rest @ ..] = der else { return None };
    if usize::from(*length) != rest.len() || *length >= 0x80 {
        return None;
    }
    let (r, rest) = integer(rest, width)?;
    let (s, rest) = integer(rest, width)?;
    rest.is_empty().then(|| [r, s].concat())
}

fn integer(der: &[u8], width: usize) -> Option<(Vec<u8>, &[u8])> {
    let [0x02, length, rest @ ..] = der else { return None };
    let (digits, rest) = rest.split_at_checked(usize::from(*length))?;
    let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
    let pad = width.checked_sub(digits.len())?;
    Some(([vec![0; pad], digits.to_vec()].concat(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Fabric;

    const TYPE: &str = "isthmus-test";

    #[test]
    fn what_a_ca_seals_opens_and_names_it() {
        let fabric = Fabric::shared();
        // Many times: one signature in 128 has an r or an s with a leading zero byte.
        for round in 0..300_u32 {
            for ca in [&fabric.root, &fabric.site] {
                let opened = open(&seal(TYPE, &round.to_be_bytes(), ca).unwrap(), TYPE).unwrap();
                assert_eq!(opened.payload, round.to_be_bytes());
                assert_eq!(&opened.signer, ca.certificate());
            }
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let sealed = seal(TYPE, b"payload", &Fabric::shared().site).unwrap();
        for index in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            assert!(open(&String::from_utf8(bytes).unwrap(), TYPE).is_err(), "byte {index}");
        }
    }

    #[test]
    fn forgeries_are_refused() {
        let fabric = Fabric::shared();
        let sealed = seal(TYPE, b"payload", &fabric.site).unwrap();
        let parts: Vec<&str> = sealed.split('.').collect();
        let with_header =
            |text: String| format!("{}.{}.{}", URL_SAFE_NO_PAD.encode(text), parts[1], parts[2]);
        let der = STANDARD.encode(fabric.site.certificate());
        let root = STANDARD.encode(fabric.root.certificate());
        for (header, why) in [
            (format!(r#"{{"alg":"none","typ":"{TYPE}","x5c":["{der}"]}}"#), "no algorithm"),
            (format!(r#"{{"alg":"HS256","typ":"{TYPE}","x5c":["{der}"]}}"#), "a secret"),
            (format!(r#"{{"alg":"ES384","typ":"{TYPE}","x5c":["{der}"]}}"#), "another curve"),
            (format!(r#"{{"alg":"ES384","typ":"{TYPE}","x5c":["{root}"]}}"#), "another signer"),
            (format!(r#"{{"alg":"ES256","typ":"{TYPE}","x5c":[]}}"#), "no signer"),
            (format!(r#"{{"alg":"ES256","typ":"{TYPE}","x5c":["{der}","{der}"]}}"#), "two signers"),
            (format!(r#"{{"alg":"ES256","typ":"{TYPE}","x5c":["{der}"],"crit":["x"]}}"#), "unknown member"),
            (format!(r#"{{"alg":"ES256","alg":"ES256","typ":"{TYPE}","x5c":["{der}"]}}"#), "a member twice"),
            (format!(r#"{{"alg":"ES256","typ":"{TYPE}","x5c":["{der}"],"jwk":{{}}}}"#), "a key of its own"),
            (format!(r#"{{"alg":"ES256", "typ":"{TYPE}","x5c":["{der}"]}}"#), "other bytes, same meaning"),
        ] {
            assert!(open(&with_header(header), TYPE).is_err(), "{why}");
        }
        assert!(matches!(open(&sealed, "isthmus-other"), Err(Error::Type { .. })));
        for broken in [format!("{sealed}="), format!("{sealed}."), format!(" {sealed}"), parts[..2].join(".")]
        {
            assert!(open(&broken, TYPE).is_err(), "{broken}");
        }
        assert!(matches!(open(&"A".repeat(MAX_LEN + 1), TYPE), Err(Error::TooLong(_))));
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "[A-Za-z0-9_.-]{0,200}", bytes in any::<Vec<u8>>()) {
            let _ = open(&text, TYPE);
            let _ = fixed(&bytes, 32);
            let _ = key(&bytes);
        }
    }
}
