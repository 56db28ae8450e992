//! The signature algorithms of a JWT-SVID (JWT-SVID section 2.2: RS, ES, PS with 256, 384, 512) and the one kind of key that each takes.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, EcdsaVerificationAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};

use super::jwk::{EcCurve, PublicKey};

/// A JOSE signature algorithm (RFC 7518 section 3.1) that a JWT-SVID may have. There is no variant for any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Es256,
    Es384,
    Es512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
}

impl Algorithm {
    /// By its name, which is case-sensitive.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "ES512" => Self::Es512,
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            _ => return None,
        })
    }

    /// True if the key is of the kind, and on the curve, that the algorithm takes: a key never works with two of the families.
    pub(crate) fn fits(self, key: &PublicKey) -> bool {
        match key {
            PublicKey::Ec { curve, .. } => self.ecdsa().is_some_and(|(wanted, _)| wanted == *curve),
            PublicKey::Rsa { .. } => self.rsa().is_some(),
        }
    }

    /// True if `signature` over `message` was made with the private half of `key`. A key that does not fit verifies nothing.
    pub(crate) fn verify(self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        match key {
            PublicKey::Ec { curve, point } => self.ecdsa().is_some_and(|(wanted, algorithm)| {
                wanted == *curve
                    && UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
            }),
            PublicKey::Rsa { n, e } => self.rsa().is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }),
        }
    }

    /// "FIXED" is JOSE's r and s side by side (RFC 7518 section 3.4); the DER of X.509 is not accepted there.
    fn ecdsa(self) -> Option<(EcCurve, &'static EcdsaVerificationAlgorithm)> {
        match self {
            Self::Es256 => Some((EcCurve::P256, &ECDSA_P256_SHA256_FIXED)),
            Self::Es384 => Some((EcCurve::P384, &ECDSA_P384_SHA384_FIXED)),
            Self::Es512 => Some((EcCurve::P521, &ECDSA_P521_SHA512_FIXED)),
            _ => None,
        }
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }
}
