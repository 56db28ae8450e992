//! Making tokens. ES256 only: the one algorithm that every JOSE library has and that is fast with short keys.

use std::fmt;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde::Serialize;

use super::{
    Authority, Error, MAX_AUDIENCES, MAX_TOKEN_LEN, base64url,
    jwk::{self, PublicKey},
    jws,
};
use crate::{id::SpiffeId, key::Key};

/// A P-256 key that signs JWT-SVIDs. It lives in memory; the library zeroizes it.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    public: Authority,
    /// The header of all its tokens, encoded.
    header: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("key_id", &self.public.key_id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Takes a P-256 key; its ID is the key's thumbprint (RFC 7638).
    pub fn new(key: Key) -> Result<Self, Error> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.to_pkcs8())
            .map_err(|_| Error::Key(jwk::Error::Kind))?;
        let public = PublicKey::from_spki(key.public().spki())?;
        let key_id = public.thumbprint();
        let header = format!(r#"{{"alg":"ES256","kid":"{key_id}","typ":"JWT"}}"#);
        let header = base64url::encode(header.as_bytes());
        Ok(Self { pair, public: Authority::new(key_id, public), header })
    }

    /// `kid` of its tokens.
    pub fn key_id(&self) -> &str {
        &self.public.key_id
    }

    /// The public half. It enters a bundle once a site CA has endorsed it ([`super::endorse`]).
    pub fn public(&self) -> Authority {
        self.public.clone()
    }

    /// r and s side by side.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature = self.pair.sign(&SystemRandom::new(), message).map_err(|_| Error::Sign)?;
        Ok(signature.as_ref().to_vec())
    }
}

/// What a token says. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Whose it is; an ID with a path.
    pub sub: SpiffeId,
    /// Whom it is meant for: 1 to [`MAX_AUDIENCES`], none empty. One is best (JWT-SVID section 3.2).
    pub aud: Vec<String>,
    /// When it was made.
    pub iat: i64,
    /// When it ends.
    pub exp: i64,
}

#[derive(Serialize)]
struct Payload<'a> {
    aud: &'a [String],
    exp: i64,
    iat: i64,
    sub: String,
}

/// Makes a JWT-SVID.
pub fn sign(key: &SigningKey, claims: &Claims) -> Result<String, Error> {
    check(claims)?;
    let Claims { sub, aud, iat, exp } = claims;
    let payload = Payload { aud, exp: *exp, iat: *iat, sub: sub.to_string() };
    let payload = serde_json::to_vec(&payload).expect("strings and numbers are always JSON");
    let mut token = jws::signing_input(&key.header, &payload);
    let signature = key.sign(token.as_bytes())?;
    token.push('.');
    token.push_str(&base64url::encode(&signature));
    if token.len() > MAX_TOKEN_LEN {
        return Err(Error::TooLong { length: token.len(), longest: MAX_TOKEN_LEN });
    }
    Ok(token)
}

fn check(claims: &Claims) -> Result<(), Error> {
    if claims.sub.is_trust_domain() {
        return Err(Error::Claim("sub", "is a trust domain's own ID, which no workload has"));
    }
    if !(1..=MAX_AUDIENCES).contains(&claims.aud.len()) || claims.aud.iter().any(String::is_empty) {
        return Err(Error::Claim("aud", "must be 1 to 32 names, and none empty"));
    }
    if claims.iat < 0 || claims.exp <= claims.iat {
        return Err(Error::Claim("exp", "must be after \"iat\""));
    }
    Ok(())
}
