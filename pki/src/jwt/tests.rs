use aws_lc_rs::{
    hmac,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    },
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    bundle::Bundle,
    key::{Curve, Key},
    testing::{Fabric, NOW, domain},
    verify::Policy,
};

mod endorsements;

const HEADER: &str = r#"{"alg":"ES256","kid":"KID","typ":"JWT"}"#;

/// A fabric whose bundle has one endorsed key.
struct Issuer {
    fabric: Fabric,
    key: SigningKey,
    pkcs8: Vec<u8>,
    store: TrustStore,
}

fn clock() -> i64 {
    NOW.unix_timestamp()
}

impl Issuer {
    fn new(trust_domain: &str) -> Self {
        let fabric = Fabric::new(trust_domain);
        let key = Key::generate(Curve::P256).unwrap();
        let pkcs8 = key.to_pkcs8().to_vec();
        let key = SigningKey::new(key).unwrap();
        let store = TrustStore::from(fabric.bundle());
        let endorsed = endorse(&fabric.site, &key.public(), NOW + time::Duration::days(1), NOW).unwrap();
        let endorsed = endorsed.verify(&store, NOW).unwrap();
        let store = fabric.bundle().with_jwt_authorities([endorsed]).into();
        Self { fabric, key, pkcs8, store }
    }

    fn claims(&self) -> Claims {
        let sub = self.fabric.site.trust_domain().member("/ns/a/sa/b").unwrap();
        Claims { sub, aud: vec!["db".into()], iat: clock(), exp: clock() + 300 }
    }

    fn token(&self) -> String {
        sign(&self.key, &self.claims()).unwrap()
    }

    /// Any header and payload, with a signature that holds.
    fn forge(&self, header: &str, payload: &str) -> String {
        let header = header.replace("KID", self.key.key_id());
        let input =
            format!("{}.{}", base64url::encode(header.as_bytes()), base64url::encode(payload.as_bytes()));
        let signature = self.key.sign(input.as_bytes()).unwrap();
        format!("{input}.{}", base64url::encode(&signature))
    }

    /// Sound claims, some of them replaced by JSON text; `null` takes one out.
    fn with(&self, changes: &[(&str, &str)]) -> String {
        let mut claims =
            json!({"sub": "spiffe://td/ns/a/sa/b", "aud": ["db"], "iat": clock(), "exp": clock() + 300});
        for (name, value) in changes {
            claims[*name] = serde_json::from_str(value).unwrap();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.forge(HEADER, &claims.to_string())
    }

    fn check(&self, token: &str) -> Result<Validated, Error> {
        validate(token, "db", &self.store, NOW)
    }
}

fn parts(token: &str) -> [String; 3] {
    token.split('.').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn a_sound_token_says_whose_it_is() {
    let issuer = Issuer::new("td");
    let valid = issuer.check(&issuer.token()).unwrap();
    assert_eq!(valid.id.to_string(), "spiffe://td/ns/a/sa/b");
    assert_eq!((valid.audience, valid.expires_at), (vec!["db".into()], NOW + time::Duration::minutes(5)));
    assert_eq!(valid.claims["iat"], clock());
    let header = base64url::decode(&parts(&issuer.token())[0]).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header, json!({"alg": "ES256", "kid": issuer.key.key_id(), "typ": "JWT"}));
}

#[test]
fn what_the_standard_leaves_free_is_accepted() {
    let issuer = Issuer::new("td");
    for changes in [
        &[("aud", r#""db""#)] as &[_],
        &[("aud", r#"["other","db"]"#)],
        &[("iat", "null")],
        &[("nbf", "0"), ("jti", r#""x""#), ("custom", r#"{"a":[1]}"#)],
        &[("exp", "99999999999.5")],
    ] {
        assert!(issuer.check(&issuer.with(changes)).is_ok(), "{changes:?}");
    }
    let payload = base64url::decode(&parts(&issuer.token())[1]).unwrap();
    let payload = String::from_utf8(payload).unwrap();
    for header in [r#"{"alg":"ES256","kid":"KID"}"#, r#"{"typ":"JOSE","alg":"ES256","kid":"KID"}"#] {
        assert!(issuer.check(&issuer.forge(header, &payload)).is_ok(), "{header}");
    }
}

#[test]
fn headers_that_could_steer_the_validation_are_refused() {
    let issuer = Issuer::new("td");
    let payload = String::from_utf8(base64url::decode(&parts(&issuer.token())[1]).unwrap()).unwrap();
    let refused = |header: &str| issuer.check(&issuer.forge(header, &payload)).unwrap_err();
    for name in ["none", "None", "nOnE", "", "HS256", "HS512", "EdDSA", "ES256K", "es256", "RS1", "A128KW"] {
        let header = format!(r#"{{"alg":"{name}","kid":"KID","typ":"JWT"}}"#);
        assert_eq!(refused(&header), Error::Algorithm(name.into()));
    }
    for member in [
        r#""jwk":{"kty":"EC"}"#,
        r#""jku":"https://evil""#,
        r#""x5u":"https://evil""#,
        r#""x5c":["AA=="]"#,
        r#""crit":["exp"]"#,
        r#""cty":"JWT""#,
        r#""b64":false"#,
        r#""zip":"DEF""#,
    ] {
        let name = member.split('"').nth(1).unwrap();
        let header = format!(r#"{{"alg":"ES256","kid":"KID","typ":"JWT",{member}}}"#);
        assert_eq!(refused(&header), Error::HeaderMember(name.into()));
    }
    let long = "k".repeat(MAX_KEY_ID_LEN + 1);
    for (header, why) in [
        (r#"{"alg":"ES256","typ":"JWT"}"#, "\"kid\""),
        (r#"{"alg":"ES256","kid":""}"#, "\"kid\""),
        (r#"{"alg":"ES256","kid":1}"#, "\"kid\""),
        (&format!(r#"{{"alg":"ES256","kid":"{long}"}}"#), "\"kid\""),
        (r#"{"alg":"ES256","kid":"other"}"#, "no JWT key"),
        (r#"{"kid":"KID"}"#, "\"alg\""),
        (r#"{"alg":["ES256"],"kid":"KID"}"#, "\"alg\""),
        (r#"{"alg":"ES256","kid":"KID","typ":"at+jwt"}"#, "at+jwt"),
        (r#"{"alg":"ES256","kid":"KID","typ":"jwt"}"#, "type"),
        (r#"{"alg":"ES256","kid":"KID","typ":null}"#, "\"typ\""),
        (r#"{"alg":"none","alg":"ES256","kid":"KID"}"#, "twice"),
        (r#"{"alg":"ES256","kid":"KID","kid":"KID"}"#, "twice"),
        (r#"["ES256"]"#, "not a JSON object"),
        ("", "can't be read"),
    ] {
        let error = refused(header).to_string();
        assert!(error.contains(why), "{header}: {error}");
    }
}

#[test]
fn claims_of_a_wrong_type_are_refused_and_never_skipped() {
    // CVE-2026-25537: a mistyped exp or nbf switched its check off.
    let issuer = Issuer::new("td");
    let (past, future) = (format!("\"{}\"", clock() - 900), format!("\"{}\"", clock() + 900));
    let many = serde_json::to_string(&vec!["db"; MAX_AUDIENCES + 1]).unwrap();
    for (name, value) in [
        ("exp", past.as_str()),
        ("exp", future.as_str()),
        ("exp", "null"),
        ("exp", "[]"),
        ("exp", "{}"),
        ("exp", "true"),
        ("exp", "-1"),
        ("exp", "1e300"),
        ("exp", "18446744073709551615"),
        ("exp", "999999999999"),
        ("nbf", future.as_str()),
        ("nbf", "false"),
        ("iat", future.as_str()),
        ("iat", "[1]"),
        ("aud", "null"),
        ("aud", "[]"),
        ("aud", r#""""#),
        ("aud", r#"["db",""]"#),
        ("aud", r#"["db",1]"#),
        ("aud", r#"{"db":1}"#),
        ("aud", "1"),
        ("aud", many.as_str()),
        ("sub", "null"),
        ("sub", "1"),
        ("sub", r#"["spiffe://td/ns/a/sa/b"]"#),
        ("sub", r#""spiffe://td""#),
    ] {
        let result = issuer.check(&issuer.with(&[(name, value)]));
        assert!(matches!(result, Err(Error::Claim(of, _)) if of == name), "{name} = {value}: {result:?}");
    }
    for subject in [
        "",
        "td/a",
        "https://td/a",
        "spiffe://TD/a",
        "spiffe://td/a/../b",
        "spiffe://td/a%2fb",
        "spiffe://td/a/",
    ] {
        let result = issuer.check(&issuer.with(&[("sub", &format!("{subject:?}"))]));
        assert!(matches!(result, Err(Error::Subject { .. })), "{subject}: {result:?}");
    }
    let twice = format!(r#"{{"sub":"spiffe://td/w","aud":"db","exp":1,"exp":{}}}"#, clock() + 300);
    assert!(issuer.check(&issuer.forge(HEADER, &twice)).unwrap_err().to_string().contains("twice"));
}

#[test]
fn times_count_with_a_small_leeway() {
    let issuer = Issuer::new("td");
    let at = |name: &str, offset: i64| issuer.check(&issuer.with(&[(name, &(clock() + offset).to_string())]));
    assert!(at("exp", -LEEWAY + 1).is_ok());
    assert!(matches!(at("exp", -LEEWAY), Err(Error::Expired { .. })));
    for claim in ["nbf", "iat"] {
        assert!(at(claim, LEEWAY).is_ok());
        assert!(matches!(at(claim, LEEWAY + 1), Err(Error::NotYet { .. })));
    }
}

#[test]
fn the_audience_must_be_named() {
    let issuer = Issuer::new("td");
    let token = issuer.token();
    for audience in ["", "DB", "d", "db "] {
        assert_eq!(validate(&token, audience, &issuer.store, NOW), Err(Error::Audience(audience.into())));
    }
}

#[test]
fn only_the_compact_form_in_its_one_spelling_is_read() {
    let issuer = Issuer::new("td");
    let [header, payload, signature] = parts(&issuer.token());
    // The last character of a 64-byte signature carries four unused bits.
    let last = signature.chars().last().unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = alphabet.find(last).unwrap();
    let sibling = alphabet.as_bytes()[at ^ 1] as char;
    let other_spelling = format!("{}{sibling}", &signature[..signature.len() - 1]);
    let whole = format!("{header}.{payload}.{signature}");
    assert!(issuer.check(&whole).is_ok());
    for token in [
        String::new(),
        ".".into(),
        "..".into(),
        format!("{header}.{payload}"),
        format!("{header}.{payload}."),
        format!("{whole}."),
        format!("{whole}.{signature}"),
        format!(".{whole}"),
        format!(" {whole}"),
        format!("{whole}\n"),
        format!("{header}.{payload}\n.{signature}"),
        format!("{header}=.{payload}.{signature}"),
        format!("{header}.{payload}.{signature}=="),
        format!("{header}.{payload}.{other_spelling}"),
        format!("{header}.{payload}.{}", signature.replace(['-', '_'], "+")) + "+",
        format!("Bearer {whole}"),
        json!({"protected": header, "payload": payload, "signature": signature}).to_string(),
        json!({"payload": payload, "signatures": [{"protected": header, "signature": signature}]})
            .to_string(),
        format!("{header}.{payload}.{}", "A".repeat(MAX_TOKEN_LEN)),
    ] {
        assert!(issuer.check(&token).is_err(), "{token:.80}");
    }
}

#[test]
fn signatures_are_taken_by_the_letter() {
    let issuer = Issuer::new("td");
    let [header, payload, signature] = parts(&issuer.token());
    let input = format!("{header}.{payload}");
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &issuer.pkcs8).unwrap();
    let der = pair.sign(&SystemRandom::new(), input.as_bytes()).unwrap().as_ref().to_vec();
    let raw = base64url::decode(&signature).unwrap();
    let zero_r = [vec![0; 32], raw[32..].to_vec()].concat();
    let zero_s = [raw[..32].to_vec(), vec![0; 32]].concat();
    let mut swapped = raw.clone();
    swapped.rotate_left(32);
    for bad in [
        der,
        vec![0; 64],
        vec![0xff; 64],
        zero_r,
        zero_s,
        raw[..63].to_vec(),
        [raw.clone(), vec![0]].concat(),
        swapped,
        vec![],
    ] {
        let token = format!("{input}.{}", base64url::encode(&bad));
        assert_eq!(issuer.check(&token), Err(Error::Signature), "{bad:?}");
    }
    // Another key's signature under the right key's name.
    let stranger = SigningKey::new(Key::generate(Curve::P256).unwrap()).unwrap();
    let token = format!("{input}.{}", base64url::encode(&stranger.sign(input.as_bytes()).unwrap()));
    assert_eq!(issuer.check(&token), Err(Error::Signature));
}

/// A store of a foreign domain with the JWK of some key.
fn foreign(jwk: Value) -> TrustStore {
    let document = json!({ "keys": [jwk] }).to_string();
    let mut store = TrustStore::default();
    let document = Bundle::from_jwks(&domain("td"), document.as_bytes()).unwrap();
    assert_eq!(document.skipped, []);
    store.insert(document.bundle);
    store
}

fn rsa_token(
    pair: &RsaKeyPair,
    encoding: &'static dyn aws_lc_rs::signature::RsaEncoding,
    algorithm: &str,
) -> String {
    let payload = json!({"sub": "spiffe://td/w", "aud": "db", "exp": clock() + 60}).to_string();
    let header = format!(r#"{{"alg":"{algorithm}","kid":"r"}}"#);
    let input = format!("{}.{}", base64url::encode(header.as_bytes()), base64url::encode(payload.as_bytes()));
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(encoding, &SystemRandom::new(), input.as_bytes(), &mut signature).unwrap();
    format!("{input}.{}", base64url::encode(&signature))
}

#[test]
fn keys_of_the_two_families_are_never_confused() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let key = pair.public_key();
    let (n, e) =
        (key.modulus().big_endian_without_leading_zero(), key.exponent().big_endian_without_leading_zero());
    let store = foreign(
        json!({"kty": "RSA", "use": "jwt-svid", "kid": "r", "n": base64url::encode(n), "e": base64url::encode(e)}),
    );
    let check = |token: &str| validate(token, "db", &store, NOW);
    assert!(check(&rsa_token(&pair, &RSA_PKCS1_SHA256, "RS256")).is_ok());
    assert!(check(&rsa_token(&pair, &RSA_PSS_SHA256, "PS256")).is_ok());
    for (encoding, name, want) in [
        (&RSA_PSS_SHA256, "RS256", Error::Signature),
        (&RSA_PKCS1_SHA256, "PS256", Error::Signature),
        (&RSA_PKCS1_SHA256, "RS512", Error::Signature),
        (&RSA_PKCS1_SHA256, "ES256", Error::KeyMismatch),
        (&RSA_PKCS1_SHA256, "HS256", Error::Algorithm("HS256".into())),
    ] {
        assert_eq!(check(&rsa_token(&pair, encoding, name)), Err(want), "{name}");
    }
    // The public key, in each form that somebody could have taken for the secret, as an HMAC key.
    let issuer = Issuer::new("td");
    let public = &issuer.store.bundle(&domain("td")).unwrap().jwt_authorities()[0];
    let PublicKey::Ec { point, .. } = &public.key else { panic!("EC") };
    let spki = Key::from_pkcs8(&issuer.pkcs8).unwrap().public().spki().to_vec();
    let payload = &parts(&issuer.token())[1];
    for secret in [spki, point.clone(), issuer.store.bundle(&domain("td")).unwrap().jwt_jwks().into_bytes()] {
        let header = format!(r#"{{"alg":"HS256","kid":"{}","typ":"JWT"}}"#, public.key_id);
        let input = format!("{}.{payload}", base64url::encode(header.as_bytes()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), input.as_bytes());
        let token = format!("{input}.{}", base64url::encode(tag.as_ref()));
        assert_eq!(issuer.check(&token), Err(Error::Algorithm("HS256".into())));
    }
    for name in ["RS256", "PS256", "ES384", "ES512"] {
        let header = format!(r#"{{"alg":"{name}","kid":"KID"}}"#);
        let payload = String::from_utf8(base64url::decode(payload).unwrap()).unwrap();
        assert_eq!(issuer.check(&issuer.forge(&header, &payload)), Err(Error::KeyMismatch), "{name}");
    }
}

#[test]
fn a_key_speaks_for_its_own_domain_alone() {
    // spiffe/spiffe#375: pooled keys let one domain vouch for another.
    let (ours, theirs) = (Issuer::new("td"), Issuer::new("other"));
    let mut both = ours.store.clone();
    both.insert(theirs.store.bundle(&domain("other")).unwrap().clone());
    assert!(validate(&ours.token(), "db", &both, NOW).is_ok());
    assert!(validate(&theirs.token(), "db", &both, NOW).is_ok());
    let forged = theirs.with(&[]);
    assert!(matches!(validate(&forged, "db", &both, NOW), Err(Error::UnknownKey { .. })));
    assert_eq!(ours.check(&theirs.token()), Err(Error::UnknownTrustDomain(domain("other"))));
}

#[test]
fn an_empty_bundle_is_no_bundle() {
    let issuer = Issuer::new("td");
    let mut store = TrustStore::default();
    store.insert(Bundle::from_jwks(&domain("td"), br#"{"keys":[]}"#).unwrap().bundle);
    assert!(matches!(validate(&issuer.token(), "db", &store, NOW), Err(Error::UnknownKey { .. })));
}

#[test]
fn signing_refuses_what_would_be_refused() {
    let issuer = Issuer::new("td");
    let sound = issuer.claims();
    let root = Claims { sub: domain("td").id(), ..sound.clone() };
    let nobody = Claims { aud: vec![], ..sound.clone() };
    let blank = Claims { aud: vec![String::new()], ..sound.clone() };
    let many = Claims { aud: vec!["a".into(); MAX_AUDIENCES + 1], ..sound.clone() };
    let over = Claims { exp: sound.iat, ..sound.clone() };
    for claims in [root, nobody, blank, many, over] {
        assert!(matches!(sign(&issuer.key, &claims), Err(Error::Claim(..))), "{claims:?}");
    }
    let huge = Claims { aud: vec!["a".repeat(MAX_TOKEN_LEN)], ..sound };
    assert!(matches!(sign(&issuer.key, &huge), Err(Error::TooLong { .. })));
    assert!(SigningKey::new(Key::generate(Curve::P384).unwrap()).is_err());
}

#[test]
fn the_thumbprint_is_that_of_the_rfc() {
    // RFC 7638 section 3.1.
    let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let jwk = json!({"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"});
    let key = PublicKey::from_jwk(jwk.as_object().unwrap()).unwrap();
    assert_eq!(key.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
}

#[test]
fn keys_are_checked_when_they_are_read() {
    let sound = SigningKey::new(Key::generate(Curve::P256).unwrap()).unwrap().public().key.to_jwk();
    let x = base64url::decode(sound["x"].as_str().unwrap()).unwrap();
    let read = |name: &str, value: Value| {
        let mut jwk = sound.clone();
        jwk.insert(name.into(), value);
        PublicKey::from_jwk(&jwk)
    };
    assert!(read("use", "jwt-svid".into()).is_ok());
    for (name, value, want) in [
        ("d", Value::from("AA"), KeyError::Private),
        ("kty", "oct".into(), KeyError::Kind),
        ("crv", "P-384".into(), KeyError::Point),
        ("crv", "secp256k1".into(), KeyError::Kind),
        ("x", base64url::encode(&x[1..]).into(), KeyError::Point),
        ("x", base64url::encode(&[&[0], x.as_slice()].concat()).into(), KeyError::Point),
        ("x", base64url::encode(&[1; 32]).into(), KeyError::Point),
        ("y", "A=".into(), KeyError::Member("y")),
        ("y", 1.into(), KeyError::Member("y")),
    ] {
        assert_eq!(read(name, value.clone()), Err(want), "{name} = {value}");
    }
    let rsa = |n: &[u8], e: &[u8]| {
        let jwk = json!({"kty": "RSA", "n": base64url::encode(n), "e": base64url::encode(e)});
        PublicKey::from_jwk(jwk.as_object().unwrap())
    };
    assert!(rsa(&[0xc1; 256], &[1, 0, 1]).is_ok());
    for (n, e) in [
        (vec![0xc1; 128], vec![1, 0, 1]),
        (vec![0xc1; 1025], vec![1, 0, 1]),
        ([vec![0], vec![0xc1; 256]].concat(), vec![1, 0, 1]),
        (vec![0xc1; 256], vec![1]),
        (vec![0xc1; 256], vec![2]),
        (vec![0xc1; 256], vec![]),
        (vec![0xc1; 256], vec![1, 0, 0, 0, 1]),
    ] {
        assert_eq!(rsa(&n, &e), Err(KeyError::Rsa), "{} {e:?}", n.len());
    }
}

proptest! {
    #[test]
    fn random_text_never_panics(token in "\\PC{0,200}", header in proptest::collection::vec(any::<u8>(), 0..60)) {
        let store = TrustStore::default();
        let _ = validate(&token, "db", &store, NOW);
        let _ = validate(&format!("{}.{token}.AA", base64url::encode(&header)), "db", &store, NOW);
        let _ = Endorsement::from_text(token).unwrap().verify(&store, NOW);
    }

    #[test]
    fn a_flipped_bit_never_passes(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        thread_local!(static ISSUER: (Issuer, String) = {
            let issuer = Issuer::new("td");
            let token = issuer.token();
            (issuer, token)
        });
        ISSUER.with(|(issuer, token)| {
            let mut bytes = token.clone().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let passed = String::from_utf8(bytes).is_ok_and(|token| issuer.check(&token).is_ok());
            prop_assert!(!passed);
            Ok(())
        })?;
    }
}
