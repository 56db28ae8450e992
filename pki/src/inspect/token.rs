//! JWT-SVIDs (JWT-SVID sections 2 and 3): everything that can be said without the bundle.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::Item;
use crate::{facts::utc, id::SpiffeId};

/// Longest token that is looked at, in bytes.
const MAX_LEN: usize = 16 << 10;
/// JWT-SVID section 2.2.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];

/// True for three parts of base64url, of which the first is JSON.
pub(super) fn seems(bytes: &[u8]) -> bool {
    let token = bytes.trim_ascii();
    token.len() <= MAX_LEN && token.split(|b| *b == b'.').count() == 3 && part(token, 0).is_some()
}

fn part(token: &[u8], index: usize) -> Option<Map<String, Value>> {
    let text = token.trim_ascii().split(|b| *b == b'.').nth(index)?;
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(super) fn inspect(token: &[u8], now: OffsetDateTime) -> Item {
    let header = part(token, 0).unwrap_or_default();
    let claims = part(token, 1);
    let text =
        |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut problems = header_problems(&header);
    if claims.is_none() {
        problems.push("its claims are not JSON".to_owned());
    }
    let claims = claims.unwrap_or_default();
    problems.extend(claim_problems(&claims, now));
    if token.trim_ascii().ends_with(b".") {
        problems.push("it is not signed".to_owned());
    }
    Item::Token {
        algorithm: text(&header, "alg").unwrap_or_default(),
        key_id: text(&header, "kid"),
        subject: text(&claims, "sub"),
        audience: audience(&claims),
        expires_at: claims.get("exp").and_then(Value::as_i64),
        problems,
    }
}

fn header_problems(header: &Map<String, Value>) -> Vec<String> {
    let mut problems = Vec::new();
    let algorithm = header.get("alg").and_then(Value::as_str).unwrap_or("");
    if !ALGORITHMS.contains(&algorithm) {
        problems.push(format!("alg {algorithm:?} is not allowed: RS, ES or PS with 256, 384 or 512"));
    }
    if header.get("kid").and_then(Value::as_str).is_none_or(str::is_empty) {
        problems.push("kid is missing: no key of a bundle can be chosen".to_owned());
    }
    if header.get("typ").is_some_and(|typ| typ != "JWT" && typ != "JOSE") {
        problems.push("typ is neither JWT nor JOSE".to_owned());
    }
    let others = header.keys().filter(|name| !["alg", "kid", "typ"].contains(&name.as_str()));
    problems.extend(others.map(|name| format!("header {name:?} is not allowed in a JWT-SVID")));
    problems
}

fn audience(claims: &Map<String, Value>) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match claims.get("aud") {
        Some(Value::Array(list)) => list.iter().filter_map(text).collect(),
        Some(one) => text(one).into_iter().collect(),
        None => Vec::new(),
    }
}

fn claim_problems(claims: &Map<String, Value>, now: OffsetDateTime) -> Vec<String> {
    let mut problems = Vec::new();
    match claims.get("sub").and_then(Value::as_str).map(SpiffeId::parse) {
        None => problems.push("sub is missing".to_owned()),
        Some(Err(e)) => problems.push(format!("sub is not a SPIFFE ID: {e}")),
        Some(Ok(id)) if id.is_trust_domain() => {
            problems.push("sub is a trust domain, not a workload".to_owned())
        }
        Some(Ok(_)) => {}
    }
    if audience(claims).iter().all(String::is_empty) {
        problems.push("aud is missing or empty".to_owned());
    }
    // A time of the wrong type is no time: readers that skip it accept the token for ever (CVE-2026-25537).
    let clock = now.unix_timestamp();
    let seconds = |name: &str| {
        claims.get(name).map(|value| value.as_i64().ok_or(format!("{name} is not a whole number")))
    };
    match seconds("exp") {
        None => problems.push("exp is missing".to_owned()),
        Some(Err(why)) => problems.push(why),
        Some(Ok(exp)) if exp <= clock => {
            problems.push(format!("it expired at {}, the clock says {}", utc(exp), utc(clock)))
        }
        Some(Ok(_)) => {}
    }
    match seconds("nbf") {
        Some(Err(why)) => problems.push(why),
        Some(Ok(nbf)) if nbf > clock => {
            problems.push(format!("it is valid from {}, the clock says {}", utc(nbf), utc(clock)))
        }
        _ => {}
    }
    problems
}
