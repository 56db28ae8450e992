//! A token as anybody can send it, and an endorsement of a JWT key: refused, unless somebody here signed it.
#![no_main]

use std::sync::LazyLock;

use isthmus_pki::{Bundle, TrustDomain, TrustStore, jwt};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

/// The keys of RFC 7517 appendix A.1 under other names. Their private halves are published, but no fuzzer makes a signature by chance.
const KEYS: &[u8] = br#"{"keys":[
{"kty":"EC","use":"jwt-svid","kid":"e","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
{"kty":"RSA","use":"jwt-svid","kid":"r","e":"AQAB","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}]}"#;

static STORE: LazyLock<TrustStore> = LazyLock::new(|| {
    let domain = TrustDomain::parse("td").expect("a trust domain");
    let document = Bundle::from_jwks(&domain, KEYS).expect("a bundle document");
    assert_eq!(document.bundle.jwt_authorities().len(), 2);
    let mut store = TrustStore::default();
    store.insert(document.bundle);
    store
});

fuzz_target!(|data: &[u8]| {
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_800);
    let Ok(text) = str::from_utf8(data) else { return };
    assert!(jwt::validate(text, "db", &STORE, now).is_err());
    if let Ok(endorsement) = jwt::Endorsement::from_text(text) {
        assert!(endorsement.verify(&STORE, now).is_err());
    }
});
