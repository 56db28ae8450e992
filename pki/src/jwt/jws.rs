//! The frame of a signed token: JWS compact serialisation (RFC 7515 section 7.1), read strictly and in an order that gives an attacker
//! little to work on: size, three parts, header, algorithm. Nothing of the payload is looked at before that.

use serde_json::{Map, Value};

use super::{Error, algorithm::Algorithm, base64url, jwk::PublicKey};
use crate::json;

/// Longest text of an attacker that an error repeats, in characters.
const SHOWN: usize = 64;

/// A token whose frame and header are in order. Its signature has not been checked yet.
pub(super) struct Jws<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) header: Map<String, Value>,
    /// Header and payload as they were signed.
    signed: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    /// Takes a token apart; `members` are all that its header may have, beside `alg`.
    pub(super) fn parse(token: &'a str, longest: usize, members: &[&str]) -> Result<Self, Error> {
        if token.len() > longest {
            return Err(Error::TooLong { length: token.len(), longest });
        }
        let parts: Vec<&str> = token.splitn(4, '.').collect();
        let [header, payload, signature] = parts[..] else { return Err(Error::NotCompact) };
        let signed = &token[..header.len() + 1 + payload.len()];
        let header = decode(header, "header")?;
        let header = json::object(&header).map_err(|reason| Error::Json { part: "header", reason })?;
        let algorithm = algorithm(&header)?;
        if let Some(name) = header.keys().find(|name| *name != "alg" && !members.contains(&name.as_str())) {
            return Err(Error::HeaderMember(shown(name)));
        }
        Ok(Self { algorithm, header, signed, payload, signature: decode(signature, "signature")? })
    }

    /// A header member that must be a string.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<&str>, Error> {
        match self.header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Error::HeaderType(name)),
        }
    }

    /// The payload, believed by nobody until [`Self::verify`] has passed.
    pub(super) fn payload(&self) -> Result<Map<String, Value>, Error> {
        let payload = decode(self.payload, "payload")?;
        json::object(&payload).map_err(|reason| Error::Json { part: "payload", reason })
    }

    pub(super) fn verify(&self, key: &PublicKey) -> Result<(), Error> {
        if self.algorithm.verify(key, self.signed.as_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(Error::Signature)
        }
    }
}

fn decode(part: &str, name: &'static str) -> Result<Vec<u8>, Error> {
    base64url::decode(part).ok_or(Error::Base64(name))
}

fn algorithm(header: &Map<String, Value>) -> Result<Algorithm, Error> {
    match header.get("alg") {
        Some(Value::String(name)) => Algorithm::parse(name).ok_or_else(|| Error::Algorithm(shown(name))),
        _ => Err(Error::HeaderType("alg")),
    }
}

/// What an error may repeat of a stranger's text: short, and `{:?}` escapes the rest.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Header and payload, ready to be signed.
pub(super) fn signing_input(header: &str, payload: &[u8]) -> String {
    format!("{header}.{}", base64url::encode(payload))
}
