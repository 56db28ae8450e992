//! Statements that a CA signs: a JWS in compact form (RFC 7515 section 7.1) whose header carries the signer's certificate (`x5c`).
//!
//! ```text
//! header  {"alg": "ES256"|"ES384", "typ": what kind of statement, "x5c": [the CA's certificate, base64 DER]}
//! ```
//!
//! [`seal`] signs, [`open`] proves that the key of the certificate in the header signed these bytes as this kind of statement. Whether
//! that certificate is believed is for the caller to say: a charter wants a root that the node trusts, a taint the tainted CA itself,
//! a JWT key and a head of the audit log a site CA that is live.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    authority::{self, Authority},
    facts::{self, Facts},
    json,
    jwt::{
        algorithm::Algorithm,
        base64url,
        jwk::{EcCurve, PublicKey},
    },
};

/// Longest header: one certificate, base64 twice over.
const MAX_HEADER: usize = 128 << 10;

/// A kind of statement: none is ever taken for one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `typ` of the header (RFC 7515 section 4.1.9).
    pub typ: &'static str,
    /// Longest that is looked at, in bytes of its compact form.
    pub longest: usize,
}

/// Why a statement can't be signed, or is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond what its kind may have.
    #[error("the statement has {length} bytes; more than {longest} are refused")]
    TooLong {
        /// In bytes.
        length: usize,
        /// What is allowed.
        longest: usize,
    },
    /// Not three parts of base64url without padding.
    #[error("not a JWS in compact form: {0}")]
    Form(&'static str),
    /// A header with other members than alg, typ and x5c, or other values.
    #[error("the JWS header can't be read: {0}")]
    Header(String),
    /// A statement of another kind.
    #[error("the JWS is of type {found:?}, wanted is {wanted:?}")]
    Type {
        /// From the header, its beginning.
        found: String,
        /// What the caller asked for.
        wanted: &'static str,
    },
    /// The signer's certificate can't be read.
    #[error("the signer's certificate in the JWS header: {0}")]
    Certificate(#[from] facts::Error),
    /// The signer's key is of another kind than the header says, or of one that no CA of ours has.
    #[error(
        "the signer's key is not ECDSA on P-256 (ES256) or P-384 (ES384), or not of the kind that the JWS header says"
    )]
    Key,
    /// Changed after it was signed, or signed by somebody else.
    #[error("the signature does not verify with the certificate in the JWS header")]
    Signature,
    /// What is signed is not the object that this kind of statement is.
    #[error("what is signed can't be read: {0}")]
    Payload(json::Error),
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    typ: String,
    x5c: Vec<String>,
}

/// Signs `payload` as a statement of this kind with the CA's key.
pub fn seal(kind: Kind, payload: &[u8], signer: &Authority) -> Result<String, Error> {
    let (name, _, curve) = algorithm(&signer.facts().spki)?;
    let x5c = vec![STANDARD.encode(signer.certificate())];
    let header = Header { alg: name.into(), typ: kind.typ.into(), x5c };
    let header = serde_json::to_vec(&header).map_err(|e| Error::Header(e.to_string()))?;
    let signed = format!("{}.{}", base64url::encode(&header), base64url::encode(payload));
    let signature = raw_signature(&signer.sign(signed.as_bytes())?, curve.coordinate_len());
    let signature = signature.ok_or_else(|| Error::Sign("not an ECDSA signature".into()))?;
    Ok(format!("{signed}.{}", base64url::encode(&signature)))
}

/// Reads a statement of this kind and checks its signature.
pub fn open(text: &str, kind: Kind) -> Result<Opened, Error> {
    if text.len() > kind.longest {
        return Err(Error::TooLong { length: text.len(), longest: kind.longest });
    }
    let (signed, signature) = text.rsplit_once('.').ok_or(Error::Form("no dot in it"))?;
    let (header, payload) = signed.split_once('.').ok_or(Error::Form("only one dot in it"))?;
    let header = read_header(header, kind.typ)?;
    let [certificate] = header.x5c.as_slice() else {
        return Err(Error::Header("x5c has exactly one certificate here".into()));
    };
    let certificate = STANDARD.decode(certificate).map_err(|e| Error::Header(format!("x5c: {e}")))?;
    let facts = Facts::parse(&certificate)?;
    verify(&header.alg, &facts.spki, signed.as_bytes(), &decode(signature)?)?;
    Ok(Opened { payload: decode(payload)?, signer: certificate.into(), facts })
}

impl Opened {
    /// What was signed as a JSON object that says each thing once.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, Error> {
        json::object(&self.payload).map_err(Error::Payload)
    }
}

fn read_header(part: &str, typ: &'static str) -> Result<Header, Error> {
    if part.len() > MAX_HEADER {
        return Err(Error::Header("it is too long".into()));
    }
    let header: Header = serde_json::from_slice(&decode(part)?).map_err(|e| Error::Header(e.to_string()))?;
    if header.typ == typ {
        return Ok(header);
    }
    Err(Error::Type { found: header.typ.chars().take(64).collect(), wanted: typ })
}

fn decode(part: &str) -> Result<Vec<u8>, Error> {
    base64url::decode(part).ok_or(Error::Form("a part is not base64url without padding"))
}

fn verify(alg: &str, spki: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Error> {
    let (name, algorithm, _) = algorithm(spki)?;
    if name != alg {
        return Err(Error::Key);
    }
    let key = PublicKey::from_spki(spki).map_err(|_| Error::Key)?;
    if algorithm.verify(&key, message, signature) { Ok(()) } else { Err(Error::Signature) }
}

/// RFC 7518 section 3.4: the key's curve decides, and the header chooses nothing.
fn algorithm(spki: &[u8]) -> Result<(&'static str, Algorithm, EcCurve), Error> {
    match PublicKey::from_spki(spki) {
        Ok(PublicKey::Ec { curve: EcCurve::P256, .. }) => Ok(("ES256", Algorithm::Es256, EcCurve::P256)),
        Ok(PublicKey::Ec { curve: EcCurve::P384, .. }) => Ok(("ES384", Algorithm::Es384, EcCurve::P384)),
        _ => Err(Error::Key),
    }
}

/// r and s of a DER ECDSA-Sig-Value (RFC 3279 section 2.2.3), side by side at full length as JOSE has them (RFC 7518 section 3.4).
fn raw_signature(der: &[u8], length: usize) -> Option<Vec<u8>> {
    let (_, sequence) = x509_parser::der_parser::parse_der(der).ok()?;
    let [r, s] = sequence.as_sequence().ok()?.as_slice() else { return None };
    let mut raw = Vec::with_capacity(2 * length);
    for number in [r, s] {
        let digits = number.as_slice().ok()?;
        let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
        raw.resize(raw.len() + length.checked_sub(digits.len())?, 0);
        raw.extend_from_slice(digits);
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Fabric;

    const TYPE: &str = "isthmus-test";
    const KIND: Kind = Kind { typ: TYPE, longest: 1 << 16 };

    #[test]
    fn what_a_ca_seals_opens_and_names_it() {
        let fabric = Fabric::shared();
        // Many times: one signature in 128 has an r or an s with a leading zero byte.
        for round in 0..300_u32 {
            for ca in [&fabric.root, &fabric.site] {
                let opened = open(&seal(KIND, &round.to_be_bytes(), ca).unwrap(), KIND).unwrap();
                assert_eq!(opened.payload, round.to_be_bytes());
                assert_eq!(&opened.signer, ca.certificate());
            }
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let sealed = seal(KIND, b"payload", &Fabric::shared().site).unwrap();
        for index in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            assert!(open(&String::from_utf8(bytes).unwrap(), KIND).is_err(), "byte {index}");
        }
    }

    #[test]
    fn forgeries_are_refused() {
        let fabric = Fabric::shared();
        let sealed = seal(KIND, b"payload", &fabric.site).unwrap();
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
            assert!(open(&with_header(header), KIND).is_err(), "{why}");
        }
        assert!(matches!(open(&sealed, Kind { typ: "isthmus-other", ..KIND }), Err(Error::Type { .. })));
        for broken in [format!("{sealed}="), format!("{sealed}."), format!(" {sealed}"), parts[..2].join(".")]
        {
            assert!(open(&broken, KIND).is_err(), "{broken}");
        }
        assert!(matches!(open(&"A".repeat(KIND.longest + 1), KIND), Err(Error::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "[A-Za-z0-9_.-]{0,200}", bytes in any::<Vec<u8>>()) {
            let _ = open(&text, KIND);
            let _ = raw_signature(&bytes, 32);
            let _ = algorithm(&bytes);
        }
    }
}
