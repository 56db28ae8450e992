//! JWK sets: SPIFFE bundle documents (Trust Domain and Bundle, section 4) and sets of JWT keys.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::{Item, problems};
use crate::facts::Facts;

/// One key of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jwk {
    /// `use`: "x509-svid", "jwt-svid", or what it says.
    pub used_for: String,
    /// `kty`.
    pub kind: String,
    /// `kid`.
    pub key_id: Option<String>,
    /// Subject of the certificate in `x5c`.
    pub subject: Option<String>,
    /// Why readers ignore it.
    pub problems: Vec<String>,
}

/// Nothing if it is no JWK set.
pub(super) fn inspect(bytes: &[u8], now: OffsetDateTime) -> Option<Item> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let keys = document.get("keys")?;
    let mut faults = Vec::new();
    let keys: Vec<Jwk> = keys.as_array().map_or_else(
        || {
            faults.push("keys is not a list".to_owned());
            Vec::new()
        },
        |list| list.iter().map(|key| jwk(key, now)).collect(),
    );
    let mut number = |name: &str| {
        let value = document.get(name)?;
        if value.as_u64().is_none() {
            faults.push(format!("{name} is not a whole number"));
        }
        value.as_u64()
    };
    let (sequence, refresh_hint) = (number("spiffe_sequence"), number("spiffe_refresh_hint"));
    if keys.is_empty() {
        faults.push("no keys: everything of this trust domain is revoked".to_owned());
    } else if keys.iter().all(|key| !key.problems.is_empty()) {
        faults.push("every key is ignored by its readers".to_owned());
    }
    Some(Item::Bundle { sequence, refresh_hint, keys, problems: faults })
}

fn jwk(key: &Value, now: OffsetDateTime) -> Jwk {
    let text = |name: &str| key.get(name).and_then(Value::as_str).map(str::to_owned);
    let (used_for, kind, key_id) =
        (text("use").unwrap_or_default(), text("kty").unwrap_or_default(), text("kid"));
    let mut faults = Vec::new();
    let mut fault = |broken: bool, what: &str| {
        if broken {
            faults.push(what.to_owned())
        }
    };
    fault(!["EC", "RSA"].contains(&kind.as_str()), "kty is neither EC nor RSA");
    let authority = used_for == "x509-svid";
    fault(!authority && used_for != "jwt-svid", "use is neither x509-svid nor jwt-svid");
    fault(authority && key_id.is_some(), "kid must be absent for x509-svid (X509-SVID section 6)");
    fault(
        used_for == "jwt-svid" && key_id.as_deref().is_none_or(str::is_empty),
        "kid is required for jwt-svid (JWT-SVID section 4)",
    );
    let mut subject = None;
    if authority {
        match certificate(key) {
            Ok(facts) => {
                subject = Some(facts.subject.clone());
                if let Item::Certificate { problems, .. } = problems::certificate(facts, now) {
                    faults.extend(problems);
                }
            }
            Err(why) => faults.push(why),
        }
    }
    Jwk { used_for, kind, key_id, subject, problems: faults }
}

fn certificate(key: &Value) -> Result<Facts, String> {
    let list = key.get("x5c").and_then(Value::as_array).ok_or("x5c is missing")?;
    let [only] = list.as_slice() else {
        return Err(format!("x5c holds {} certificates, not one", list.len()));
    };
    let der = only.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok()).ok_or("x5c is not base64")?;
    Facts::parse(&der).map_err(|e| format!("x5c: {e}"))
}
