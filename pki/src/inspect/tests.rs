use proptest::prelude::*;
use time::Duration;

use super::*;
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};

use crate::{
    bundle::to_pem,
    testing::{
        Fabric, NOW,
        forge::{Forged, ca_params},
    },
};

#[test]
fn says_what_it_is_and_why_it_is_refused() {
    let fabric = Fabric::shared();
    let (leaf, key) = fabric.node("gw1");
    let file = to_pem(&[leaf, fabric.site.certificate().clone(), fabric.root_certificate()]);
    let items = inspect((file + &key.to_pem()).as_bytes(), NOW);
    let kinds: Vec<_> = items.iter().map(|item| lines(item)[0].clone()).collect();
    assert_eq!(
        kinds,
        ["certificate (svid)", "certificate (ca)", "certificate (root)", "private key, not encrypted"]
    );
    assert!(is_sound(&items));
    let json = serde_json::to_string(&items).unwrap();
    assert!(json.contains(r#""type":"certificate","kind":"svid""#), "{json}");
    let late = inspect(fabric.site.certificate(), NOW + Duration::days(100));
    assert!(lines(&late[0]).iter().any(|line| line.contains("expired")));
    assert!(!is_sound(&late));
    assert!(!is_sound(&inspect(b"hello", NOW)));
    let cut = key.to_pem().to_string() + "-----BEGIN CERTIFICATE-----\nAAAA\n";
    assert!(!is_sound(&inspect(cut.as_bytes(), NOW)), "a block that does not end is no sound file");
}

fn problems_of(item: &Item) -> &[String] {
    match item {
        Item::Certificate { problems, .. } | Item::Crl { problems, .. } => problems,
        Item::Bundle { problems, .. } | Item::Token { problems, .. } => problems,
        other => panic!("{other:?}"),
    }
}

/// istio/istio#56815, trust-manager#515.
#[test]
fn one_bad_root_does_not_hide_the_others() {
    let root = Forged::root(ca_params("root", Some(1)));
    let negative = to_pem([&root.with_negative_serial(&root.key)]);
    let junk = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    let items = inspect((negative + junk + &to_pem([&root.der])).as_bytes(), NOW);
    assert_eq!(items.len(), 3);
    assert!(problems_of(&items[0])[0].contains("negative"));
    assert!(matches!(&items[1], Item::Unknown { reason, .. } if reason.contains("base64")));
    assert!(problems_of(&items[2]).is_empty());
}

#[test]
fn lists_say_whom_they_revoke_and_when_they_end() {
    let root = Forged::root(ca_params("root", Some(1)));
    let ca = root.issue(ca_params("site", Some(0)));
    let list = root.crl(&[&ca.der], NOW);
    for file in [list.clone(), crate::x509::to_pem("X509 CRL", &list).into_bytes()] {
        let items = inspect(&file, NOW);
        assert!(is_sound(&items), "{items:?}");
        let serial = Facts::parse(&ca.der).unwrap().serial;
        assert!(lines(&items[0]).iter().any(|line| line.contains(&serial)));
        let late = inspect(&file, NOW + Duration::days(31));
        assert!(problems_of(&late[0])[0].contains("successor was due"));
    }
}

#[test]
fn a_bundle_document_says_which_keys_are_ignored() {
    let root = Forged::root(ca_params("root", Some(1)));
    let x5c = BASE64_STANDARD.encode(&root.der);
    let set = |key: serde_json::Value| {
        let document = serde_json::json!({"spiffe_sequence": 7, "spiffe_refresh_hint": 300, "keys": [key]});
        inspect(document.to_string().as_bytes(), NOW)
    };
    let sound = set(serde_json::json!({"kty": "EC", "use": "x509-svid", "x5c": [x5c]}));
    assert!(is_sound(&sound) && lines(&sound[0]).iter().any(|line| line.contains("CN=root")), "{sound:?}");
    assert!(is_sound(&set(serde_json::json!({"kty": "EC", "use": "jwt-svid", "kid": "a", "crv": "P-256"}))));
    for bad in [
        serde_json::json!({"kty": "EC", "use": "x509-svid", "x5c": [x5c, x5c]}),
        serde_json::json!({"kty": "EC", "use": "x509-svid", "kid": "a", "x5c": [x5c]}),
        serde_json::json!({"kty": "EC", "use": "x509-svid"}),
        serde_json::json!({"kty": "EC", "use": "jwt-svid"}),
        serde_json::json!({"kty": "oct", "use": "jwt-svid", "kid": "a"}),
        serde_json::json!({"kty": "EC"}),
    ] {
        assert!(!is_sound(&set(bad.clone())), "{bad}");
    }
    assert!(!is_sound(&inspect(br#"{"keys":[]}"#, NOW)), "everything revoked");
}

fn token(header: &str, claims: &str) -> String {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.c2lnbmF0dXJlLXRoYXQtbXVzdC1ub3QtYmUtc2hvd24\n", encode(header), encode(claims))
}

#[test]
fn a_token_is_explained_and_its_signature_not_shown() {
    let header = r#"{"alg":"ES256","kid":"k1","typ":"JWT"}"#;
    let exp = NOW.unix_timestamp() + 300;
    let claims = format!(r#"{{"sub":"spiffe://td/a","aud":["b"],"exp":{exp}}}"#);
    let sound = inspect(token(header, &claims).as_bytes(), NOW);
    assert!(is_sound(&sound), "{sound:?}");
    let shown = lines(&sound[0]).join("\n") + &serde_json::to_string(&sound).unwrap();
    assert!(shown.contains("spiffe://td/a") && !shown.contains("c2lnbmF0"));
    assert!(
        problems_of(&inspect(token(header, &claims).as_bytes(), NOW + Duration::minutes(6))[0])[0]
            .contains("expired")
    );
    for (header, claims, words) in [
        (r#"{"alg":"none","kid":"k"}"#, claims.as_str(), "alg \"none\""),
        (r#"{"alg":"HS256","kid":"k"}"#, &claims, "alg \"HS256\""),
        (r#"{"alg":"EdDSA","kid":"k"}"#, &claims, "alg \"EdDSA\""),
        (r#"{"alg":"ES256"}"#, &claims, "kid is missing"),
        (r#"{"alg":"ES256","kid":"k","jwk":{}}"#, &claims, "header \"jwk\""),
        (r#"{"alg":"ES256","kid":"k","typ":"x"}"#, &claims, "typ"),
        (header, r#"{"sub":"spiffe://td/a","aud":"b"}"#, "exp is missing"),
        (header, r#"{"sub":"spiffe://td/a","aud":"b","exp":"9999999999"}"#, "exp is not a whole number"),
        (header, r#"{"sub":"spiffe://td/a","aud":[],"exp":9999999999}"#, "aud is missing"),
        (header, r#"{"sub":"bob","aud":"b","exp":9999999999}"#, "sub is not a SPIFFE ID"),
        (header, r#"{"sub":"spiffe://td","aud":"b","exp":9999999999}"#, "trust domain"),
        (header, r#"{"sub":"spiffe://td/a","aud":"b","exp":9999999999,"nbf":9999999998}"#, "valid from"),
    ] {
        let items = inspect(token(header, claims).as_bytes(), NOW);
        assert!(problems_of(&items[0]).iter().any(|p| p.contains(words)), "{words}: {items:?}");
    }
}

#[test]
fn a_secret_is_opened_and_its_keys_are_not_shown() {
    let fabric = Fabric::shared();
    let (leaf, key) = fabric.node("gw1");
    let data = serde_json::json!({"tls.crt": BASE64_STANDARD.encode(to_pem([&leaf])), "tls.key": BASE64_STANDARD.encode(&*key.to_pem()), "bad": "?", "mark": ""});
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": data});
    let yaml = serde_norway::to_string(&secret).unwrap();
    for file in [secret.to_string(), yaml] {
        let items = inspect(file.as_bytes(), NOW);
        let shown = lines(&items[0]).join("\n");
        for words in
            ["Secret n/s", "tls.crt", "certificate (svid)", "private key, not encrypted", "data: not base64"]
        {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let secret_line = key.to_pem().lines().nth(1).unwrap().to_owned();
        assert!(
            !shown.contains(&secret_line) && !serde_json::to_string(&items).unwrap().contains(&secret_line)
        );
        assert!(!is_sound(&items));
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = inspect(&bytes, NOW);
        bytes.insert(0, 0x30);
        let _ = inspect(&bytes, NOW);
        let _ = inspect(&[b"{\"keys\":".as_slice(), &bytes].concat(), NOW);
    }
}
