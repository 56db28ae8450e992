//! Public keys as JSON (RFC 7517, RFC 7518 section 6): the two families that JWT-SVIDs are signed with.

use std::fmt;

use aws_lc_rs::{
    digest,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
        EcdsaVerificationAlgorithm, ParsedPublicKey,
    },
};
use serde_json::{Map, Value};
use x509_parser::{prelude::FromDer as _, public_key, x509::SubjectPublicKeyInfo};

use super::base64url;

/// Bits of an RSA modulus, from RFC 7518 section 3.3 up to what the library verifies with.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Why a key can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not ECDSA on a NIST curve, not RSA.
    #[error("the key is neither RSA nor ECDSA on P-256, P-384 or P-521")]
    Kind,
    /// A member that is missing or of a wrong form.
    #[error("member {0:?} of the key is missing or not canonical base64url")]
    Member(&'static str),
    /// Not a point of the curve, or coordinates of a wrong length.
    #[error("the coordinates are no point of the curve")]
    Point,
    /// Too short to be secure, or too long to be sensible.
    #[error("an RSA key has 2048 to 8192 bits and an odd exponent of at most 32 bits, from 3")]
    Rsa,
    /// Somebody published what is secret.
    #[error("it holds the private key, which everybody who can read this has now; its owner must replace it")]
    Private,
}

/// A curve of RFC 7518 section 6.2.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcCurve {
    /// For ES256.
    P256,
    /// For ES384.
    P384,
    /// For ES512.
    P521,
}

impl EcCurve {
    const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    /// namedCurve of RFC 5480 section 2.1.1.1.
    fn oid(self) -> &'static str {
        match self {
            Self::P256 => "1.2.840.10045.3.1.7",
            Self::P384 => "1.3.132.0.34",
            Self::P521 => "1.3.132.0.35",
        }
    }

    /// Bytes of one coordinate.
    pub(crate) fn coordinate_len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn algorithm(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_FIXED,
            Self::P384 => &ECDSA_P384_SHA384_FIXED,
            Self::P521 => &ECDSA_P521_SHA512_FIXED,
        }
    }
}

/// A key that can verify JWT-SVIDs. Made only by checks, so a point is on its curve and a modulus is long enough.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// ECDSA.
    Ec {
        /// On which curve.
        curve: EcCurve,
        /// 4, then both coordinates at full length (SEC 1 section 2.3.3).
        point: Vec<u8>,
    },
    /// RSA, for PKCS#1 v1.5 and PSS.
    Rsa {
        /// Modulus, big-endian, no leading zero.
        n: Vec<u8>,
        /// Exponent, big-endian, no leading zero.
        e: Vec<u8>,
    },
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.thumbprint())
    }
}

impl PublicKey {
    /// From DER SubjectPublicKeyInfo.
    pub fn from_spki(der: &[u8]) -> Result<Self, Error> {
        let (_, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|_| Error::Kind)?;
        match spki.parsed() {
            Ok(public_key::PublicKey::EC(point)) => {
                let oid = spki.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
                let oid = oid.map(|oid| oid.to_id_string()).ok_or(Error::Kind)?;
                let curve = EcCurve::ALL.into_iter().find(|curve| curve.oid() == oid).ok_or(Error::Kind)?;
                Self::ec(curve, point.data().to_vec())
            }
            Ok(public_key::PublicKey::RSA(key)) => {
                let plain = |bytes: &[u8]| bytes.iter().copied().skip_while(|b| *b == 0).collect();
                Self::rsa(plain(key.modulus), plain(key.exponent))
            }
            _ => Err(Error::Kind),
        }
    }

    fn ec(curve: EcCurve, point: Vec<u8>) -> Result<Self, Error> {
        let whole = point.len() == 2 * curve.coordinate_len() + 1 && point[0] == 4;
        if whole && ParsedPublicKey::new(curve.algorithm(), &point).is_ok() {
            Ok(Self::Ec { curve, point })
        } else {
            Err(Error::Point)
        }
    }

    fn rsa(n: Vec<u8>, e: Vec<u8>) -> Result<Self, Error> {
        let bits = |bytes: &[u8]| {
            bytes
                .first()
                .map_or(0, |first| bytes.len() * 8 - usize::try_from(first.leading_zeros()).unwrap_or(0))
        };
        let canonical = |bytes: &[u8]| bytes.first().is_some_and(|first| *first != 0);
        let exponent = (2..=32).contains(&bits(&e)) && e.last().is_some_and(|last| last & 1 == 1);
        if canonical(&n) && canonical(&e) && RSA_BITS.contains(&bits(&n)) && exponent {
            Ok(Self::Rsa { n, e })
        } else {
            Err(Error::Rsa)
        }
    }

    /// From a JWK's members; those that are not the key's own (`kid`, `use`, `alg`, ...) are not looked at.
    pub(crate) fn from_jwk(jwk: &Map<String, Value>) -> Result<Self, Error> {
        if jwk.contains_key("d") {
            return Err(Error::Private);
        }
        let text = |name: &'static str| jwk.get(name).and_then(Value::as_str).ok_or(Error::Member(name));
        let bytes = |name| base64url::decode(text(name)?).ok_or(Error::Member(name));
        match text("kty")? {
            "EC" => {
                let name = text("crv")?;
                let curve = EcCurve::ALL.into_iter().find(|curve| curve.name() == name).ok_or(Error::Kind)?;
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != curve.coordinate_len() {
                    return Err(Error::Point);
                }
                Self::ec(curve, [&[4], x.as_slice(), &y].concat())
            }
            "RSA" => Self::rsa(bytes("n")?, bytes("e")?),
            _ => Err(Error::Kind),
        }
    }

    /// `kty` and what it needs, in the order of RFC 7638 section 3.2, which is also the map's own.
    pub(crate) fn to_jwk(&self) -> Map<String, Value> {
        let members = match self {
            Self::Ec { curve, point } => {
                let (x, y) = point[1..].split_at(curve.coordinate_len());
                vec![
                    ("crv", curve.name().to_owned()),
                    ("kty", "EC".into()),
                    ("x", base64url::encode(x)),
                    ("y", base64url::encode(y)),
                ]
            }
            Self::Rsa { n, e } => {
                vec![("e", base64url::encode(e)), ("kty", "RSA".into()), ("n", base64url::encode(n))]
            }
        };
        members.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
    }

    /// SHA-256 thumbprint (RFC 7638), base64url: a key ID that nobody has to invent.
    pub fn thumbprint(&self) -> String {
        let members: Vec<String> =
            self.to_jwk().iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
        let text = format!("{{{}}}", members.join(","));
        base64url::encode(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
    }
}
