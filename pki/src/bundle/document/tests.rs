use proptest::prelude::*;

use super::*;
use crate::{
    TrustStore,
    jwt::SigningKey,
    key::{Curve, Key},
    testing::{Fabric, NOW, domain},
};

fn with_keys(fabric: &Fabric) -> Bundle {
    let key = SigningKey::new(Key::generate(Curve::P256).unwrap()).unwrap();
    let endorsed = jwt::endorse(&fabric.site, &key.public(), NOW + time::Duration::days(1), NOW).unwrap();
    let endorsed = endorsed.verify(&TrustStore::from(fabric.bundle()), NOW).unwrap();
    fabric
        .bundle()
        .with_jwt_authorities([endorsed])
        .with_sequence(u64::MAX)
        .with_refresh_hint(Duration::from_millis(300_900))
}

fn read(document: &Value) -> Result<Document, Error> {
    Bundle::from_jwks(&domain("td"), document.to_string().as_bytes())
}

fn value(bundle: &Bundle) -> Value {
    serde_json::from_str(&bundle.to_jwks()).unwrap()
}

#[test]
fn the_document_has_what_the_standard_wants() {
    let fabric = Fabric::new("td");
    let bundle = with_keys(&fabric);
    let document = value(&bundle);
    assert_eq!(
        (&document["spiffe_sequence"], &document["spiffe_refresh_hint"]),
        (&u64::MAX.into(), &300.into())
    );
    let [root, key] = document["keys"].as_array().unwrap().as_slice() else { panic!("two keys") };
    assert_eq!(
        (&root["use"], &root["kty"], &root["crv"], root.get("kid")),
        (&"x509-svid".into(), &"EC".into(), &"P-384".into(), None)
    );
    assert_eq!(root["x5c"], json!([BASE64_STANDARD.encode(fabric.root_certificate())]));
    assert_eq!((&key["use"], &key["kty"], &key["crv"]), (&"jwt-svid".into(), &"EC".into(), &"P-256".into()));
    assert_eq!(key["kid"], bundle.jwt_authorities()[0].key_id);
    // Plain, as FetchJWTBundles has it.
    let plain: Value = serde_json::from_str(&bundle.jwt_jwks()).unwrap();
    let names: Vec<_> = plain["keys"][0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((names, plain.as_object().unwrap().len()), (vec!["crv", "kid", "kty", "x", "y"], 1));
    assert_eq!(fabric.bundle().jwt_jwks(), r#"{"keys":[]}"#);
    assert_eq!(value(&fabric.bundle()).as_object().unwrap().len(), 1);
}

#[test]
fn a_document_is_read_back() {
    let fabric = Fabric::new("td");
    let bundle = with_keys(&fabric);
    let Document { bundle: read, skipped } =
        Bundle::from_jwks(&domain("td"), bundle.to_jwks().as_bytes()).unwrap();
    assert_eq!((skipped, read.anchors(), read.to_jwks()), (vec![], bundle.anchors(), bundle.to_jwks()));
    assert_eq!(read.jwt_authorities()[0].key, bundle.jwt_authorities()[0].key);
    assert_eq!(Bundle::foreign(&domain("td"), bundle.to_jwks().as_bytes()).unwrap().bundle, read);
}

#[test]
fn an_empty_set_is_a_bundle_that_vouches_for_nobody() {
    // spiffe/go-spiffe#288: an empty federated bundle must not block anything else.
    let document = read(&json!({"keys": [], "spiffe_sequence": 3})).unwrap();
    assert!(document.bundle.is_empty() && document.skipped.is_empty());
    assert_eq!((document.bundle.sequence(), document.bundle.to_der()), (Some(3), vec![]));
    assert_eq!(document.bundle.to_jwks(), r#"{"keys":[],"spiffe_sequence":3}"#);
}

#[test]
fn unknown_entries_are_passed_over() {
    let fabric = Fabric::new("td");
    let [root, key] = value(&with_keys(&fabric))["keys"].as_array().unwrap().clone().try_into().unwrap();
    let change = |entry: &Value, name: &str, value: Value| {
        let mut entry = entry.clone();
        entry[name] = value;
        entry.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        entry
    };
    for (name, entry) in [
        ("kty", change(&root, "kty", "OKP".into())),
        ("kty", change(&key, "kty", "oct".into())),
        ("kty", change(&key, "kty", Value::Null)),
        ("use", change(&root, "use", "sig".into())),
        ("use", change(&key, "use", Value::Null)),
        ("use", change(&key, "use", 1.into())),
        ("x5c", change(&root, "x5c", Value::Null)),
        ("x5c", change(&root, "x5c", json!([]))),
        ("all", json!({})),
    ] {
        let document = read(&json!({"keys": [entry, root, key], "unknown": true})).unwrap();
        assert_eq!(document.skipped, [], "{name}");
        assert_eq!(
            (document.bundle.anchors().len(), document.bundle.jwt_authorities().len()),
            (1, 1),
            "{name}"
        );
    }
    // Only the first value of x5c counts; kid of a root does not.
    let more = change(&root, "x5c", json!([root["x5c"][0], "not base64", 1]));
    let document = read(&json!({"keys": [change(&more, "kid", "x".into())]})).unwrap();
    assert_eq!((document.skipped, document.bundle.anchors().len()), (vec![], 1));
}

#[test]
fn one_bad_entry_is_told_of_and_the_others_count() {
    // istio/istio#56815: one root with a negative serial made the whole bundle useless.
    let fabric = Fabric::new("td");
    let [root, key] = value(&with_keys(&fabric))["keys"].as_array().unwrap().clone().try_into().unwrap();
    let entry = |der: &[u8]| json!({"kty": "EC", "use": "x509-svid", "x5c": [BASE64_STANDARD.encode(der)]});
    let negative = negative_serial(&fabric.root_certificate());
    let mut no_id = key.clone();
    no_id["kid"] = "".into();
    let mut private = key.clone();
    (private["kid"], private["d"]) = ("p".into(), "AA".into());
    let mut twin = value(&with_keys(&fabric))["keys"][1].clone();
    twin["kid"] = key["kid"].clone();
    for (bad, why) in [
        (entry(&negative), "negative"),
        (entry(&fabric.node("gw1").0), "not a CA"),
        (entry(b"junk"), "not an X.509 certificate"),
        (entry(&Fabric::new("other").root_certificate()), "made for \"spiffe://other\""),
        (json!({"kty": "EC", "use": "x509-svid", "x5c": ["_-"]}), "base64"),
        (no_id, "\"kid\""),
        (private, "private"),
        (json!({"kty": "EC", "use": "jwt-svid", "kid": "q", "crv": "P-256", "x": "AA", "y": "AA"}), "curve"),
        (twin, "another key"),
    ] {
        let document = read(&json!({"keys": [root, key, bad]})).unwrap();
        let [skipped] = document.skipped.as_slice() else { panic!("{why}: {:?}", document.skipped) };
        assert!(skipped.number == 3 && skipped.reason.contains(why), "{skipped}");
        assert_eq!(
            (document.bundle.anchors().len(), document.bundle.jwt_authorities().len()),
            (1, 1),
            "{why}"
        );
    }
    let pem = crate::bundle::to_pem(&[fabric.root_certificate(), negative.into()]);
    let document = Bundle::foreign(&domain("td"), pem.as_bytes()).unwrap();
    assert_eq!((document.bundle.anchors().len(), document.skipped[0].number), (1, 2));
}

/// The serial's first byte gets its sign bit. The signature breaks, which nobody looks at in a root.
fn negative_serial(der: &[u8]) -> Vec<u8> {
    let serial = hex::decode(Facts::parse(der).unwrap().serial).unwrap();
    let at = der.windows(serial.len()).position(|window| window == serial).unwrap();
    let mut der = der.to_vec();
    der[at] |= 0x80;
    der
}

#[test]
fn documents_that_lie_about_their_form_are_refused() {
    let key = json!({"kty": "oct"});
    let many = json!({"keys": vec![key; MAX_KEYS + 1]}).to_string();
    let long = format!("{}{{\"keys\":[]}}", " ".repeat(MAX_DOCUMENT_LEN));
    for text in [
        "",
        "[]",
        "null",
        "{}",
        r#"{"keys":{}}"#,
        r#"{"keys":null}"#,
        r#"{"keys":[1]}"#,
        r#"{"keys":[],"keys":[]}"#,
        r#"{"keys":[{"kty":"EC","kty":"RSA"}]}"#,
        r#"{"keys":[],"spiffe_sequence":-1}"#,
        r#"{"keys":[],"spiffe_sequence":1.5}"#,
        r#"{"keys":[],"spiffe_sequence":"1"}"#,
        r#"{"keys":[],"spiffe_sequence":18446744073709551616}"#,
        r#"{"keys":[],"spiffe_refresh_hint":"5m"}"#,
        r#"{"keys":[]}{}"#,
        &many,
        &long,
    ] {
        assert!(Bundle::from_jwks(&domain("td"), text.as_bytes()).is_err(), "{text:.60}");
    }
}

#[test]
fn a_bundle_of_dead_roots_is_out_of_date() {
    let bundle = Fabric::shared().bundle();
    assert!(!bundle.is_out_of_date(NOW));
    assert!(bundle.is_out_of_date(NOW + time::Duration::days(3651)));
    assert!(!read(&json!({"keys": []})).unwrap().bundle.is_out_of_date(NOW));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Bundle::from_jwks(&domain("td"), &bytes);
        let _ = Bundle::foreign(&domain("td"), &bytes);
    }

    #[test]
    fn any_json_in_a_key_never_panics(kind in "EC|RSA", usage in "x509-svid|jwt-svid", text in "\\PC{0,40}") {
        let key = json!({"kty": kind, "use": usage, "kid": text, "crv": "P-256", "x": text, "y": text, "n": text, "e": text, "x5c": [text]});
        let document = read(&json!({"keys": [key]})).unwrap();
        prop_assert!(document.bundle.is_empty());
    }
}
