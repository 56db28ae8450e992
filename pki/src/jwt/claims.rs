//! The claims of a JWT-SVID (JWT-SVID section 3), each of exactly the type that the standards give it: what is mistyped is refused, never
//! skipped (CVE-2026-25537).

use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::{Error, LEEWAY, MAX_AUDIENCES, jws::shown};
use crate::{facts::utc, id::SpiffeId};

/// `sub`: the SPIFFE ID of a workload, so with a path.
pub(super) fn subject(claims: &Map<String, Value>) -> Result<SpiffeId, Error> {
    let Some(Value::String(text)) = claims.get("sub") else {
        return Err(Error::Claim("sub", "must be a string"));
    };
    match SpiffeId::parse(text) {
        Ok(id) if id.is_trust_domain() => {
            Err(Error::Claim("sub", "is a trust domain's own ID, which no workload has"))
        }
        Ok(id) => Ok(id),
        Err(reason) => Err(Error::Subject { subject: shown(text), reason }),
    }
}

/// `aud`: a string, or an array of 1 to [`MAX_AUDIENCES`] strings, none of them empty.
pub(super) fn audience(claims: &Map<String, Value>) -> Result<Vec<String>, Error> {
    let wrong = Err(Error::Claim("aud", "must be a string, or an array of 1 to 32 strings, and none empty"));
    let list = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) if list.len() <= MAX_AUDIENCES => {
            let texts = list.iter().map(|value| value.as_str().map(str::to_owned));
            match texts.collect::<Option<Vec<_>>>() {
                Some(list) => list,
                None => return wrong,
            }
        }
        _ => return wrong,
    };
    if list.is_empty() || list.iter().any(String::is_empty) { wrong } else { Ok(list) }
}

/// Checks `exp`, `nbf` and `iat` and says when the token ends.
pub(super) fn times(claims: &Map<String, Value>, now: OffsetDateTime) -> Result<OffsetDateTime, Error> {
    let ends = date(claims, "exp")?.ok_or(Error::Claim("exp", "must be there"))?;
    let now = now.unix_timestamp();
    for name in ["nbf", "iat"] {
        if let Some(from) = date(claims, name)?.filter(|from| *from > now.saturating_add(LEEWAY)) {
            return Err(Error::NotYet { claim: name, from: utc(from), clock: utc(now) });
        }
    }
    if now >= ends.saturating_add(LEEWAY) {
        return Err(Error::Expired { at: utc(ends), clock: utc(now) });
    }
    OffsetDateTime::from_unix_timestamp(ends).map_err(|_| Error::Claim("exp", "is beyond the calendar"))
}

/// A NumericDate (RFC 7519 section 2): seconds since 1970, which may have a fraction.
fn date(claims: &Map<String, Value>, name: &'static str) -> Result<Option<i64>, Error> {
    let wrong = Error::Claim(name, "must be a number of seconds since 1970");
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = match (value.as_i64(), value.as_f64()) {
        (Some(seconds), _) => Some(seconds),
        // All seconds of our calendar are exact in a double.
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
        (None, Some(seconds)) if (0.0..1e12).contains(&seconds) => Some(seconds as i64),
        _ => None,
    };
    seconds.filter(|seconds| *seconds >= 0).map(Some).ok_or(wrong)
}
