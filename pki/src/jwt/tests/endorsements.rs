//! A JWT key is worth what the CA behind it is worth.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::*;

fn endorsed(fabric: &Fabric, key: &SigningKey) -> Endorsement {
    endorse(&fabric.site, &key.public(), NOW + time::Duration::days(400), NOW).unwrap()
}

fn new_key() -> SigningKey {
    SigningKey::new(Key::generate(Curve::P256).unwrap()).unwrap()
}

#[test]
fn an_endorsed_key_ends_with_its_ca() {
    let fabric = Fabric::shared();
    let key = new_key();
    let store = TrustStore::from(fabric.bundle());
    let endorsement = endorsed(fabric, &key);
    let again = Endorsement::from_text(endorsement.as_str()).unwrap();
    let authority = again.verify(&store, NOW).unwrap().authority().clone();
    assert_eq!((authority.key_id.as_str(), &authority.key), (key.key_id(), &key.public().key));
    assert_eq!(authority.expires_at.unwrap().unix_timestamp(), fabric.site.facts().not_after);
    let late = NOW + time::Duration::days(91);
    assert!(again.verify(&store, late).unwrap_err().to_string().contains("expired"));
    assert!(matches!(endorse(&fabric.site, &key.public(), NOW, NOW), Err(Error::Claim("exp", _))));
    assert!(matches!(endorse(&fabric.root, &key.public(), late, NOW), Err(Error::Endorser(_))));
}

#[test]
fn only_a_live_site_ca_of_the_domain_endorses() {
    let (fabric, stranger) = (Fabric::shared(), Fabric::new("td"));
    let key = new_key();
    let store = TrustStore::from(fabric.bundle());
    // A root of the same name that we do not know.
    let foreign = endorsed(&stranger, &key).verify(&store, NOW);
    assert!(
        matches!(&foreign, Err(Error::Refused(why)) if why.to_string().contains("not signed by a root")),
        "{foreign:?}"
    );
    // An ordinary leaf, with its own key.
    let (leaf, leaf_key) = fabric.node("gw1");
    let header =
        json!({"alg": "ES256", "typ": ENDORSEMENT_TYPE, "x5c": [BASE64_STANDARD.encode(&leaf)]}).to_string();
    let payload =
        json!({"trust_domain": "td", "jwk": key.public().key.to_jwk(), "kid": "k", "exp": clock() + 60})
            .to_string();
    let leaf_key = SigningKey::new(leaf_key).unwrap();
    let input = format!("{}.{}", base64url::encode(header.as_bytes()), base64url::encode(payload.as_bytes()));
    let signature = base64url::encode(&leaf_key.sign(input.as_bytes()).unwrap());
    let by_leaf = Endorsement::from_text(format!("{input}.{signature}")).unwrap().verify(&store, NOW);
    assert!(
        matches!(&by_leaf, Err(Error::Refused(why)) if matches!(**why, verify::Error::NotCa { .. })),
        "{by_leaf:?}"
    );
    // The right CA's certificate, somebody else's signature.
    let sound = endorsed(fabric, &key);
    let [header, payload, _] = parts(sound.as_str());
    let signature = base64url::encode(&leaf_key.sign(format!("{header}.{payload}").as_bytes()).unwrap());
    let forged = Endorsement::from_text(format!("{header}.{payload}.{signature}")).unwrap();
    assert_eq!(forged.verify(&store, NOW), Err(Error::Statement(statement::Error::Signature)));
    // A token is no endorsement, and an endorsement no token.
    let issuer = Issuer::new("td");
    assert!(Endorsement::from_text(issuer.token()).unwrap().verify(&issuer.store, NOW).is_err());
    assert!(issuer.check(sound.as_str()).is_err());
}

#[test]
fn a_tainted_ca_takes_its_keys_with_it() {
    let issuer = Issuer::new("td");
    let token = issuer.token();
    let tainted = Policy::default().with_tainted([issuer.fabric.site.facts().key_sha256.clone()]);
    let store = issuer.store.clone().with_policy(tainted);
    assert!(matches!(validate(&token, "db", &store, NOW), Err(Error::Refused(_))));
    assert!(endorsed(&issuer.fabric, &issuer.key).verify(&store, NOW).is_err());
    let crl = issuer.fabric.crl(&[issuer.fabric.site.facts()], 1);
    let store = issuer.store.clone().with_crls([crl]).unwrap();
    let revoked = validate(&token, "db", &store, NOW);
    assert!(
        matches!(&revoked, Err(Error::Refused(why)) if matches!(**why, verify::Error::Revoked { .. })),
        "{revoked:?}"
    );
}

/// The key of CA "before" was carried on by its successor: both lay on one disk.
#[test]
fn a_key_falls_with_each_ca_that_had_endorsed_it_before() {
    let issuer = Issuer::new("td");
    let (successor, before) = (issuer.fabric.site_ca("s"), KeyHash::of(issuer.fabric.site.facts()));
    let key = issuer.key.public().endorsed_before_by([before.clone()]);
    let endorsement = endorse(&successor, &key, NOW + time::Duration::days(1), NOW).unwrap();
    let endorsed = endorsement.verify(&issuer.store, NOW).unwrap();
    let store = TrustStore::from(issuer.fabric.bundle().with_jwt_authorities([endorsed]));
    assert!(validate(&issuer.token(), "db", &store, NOW).is_ok(), "a change of the CA is nothing to a token");
    let tainted = || Policy::default().with_tainted([before.to_string()]);
    let store = store.with_policy(tainted());
    let fallen = Err(Error::EarlierTainted(before.clone()));
    assert_eq!(validate(&issuer.token(), "db", &store, NOW).map(drop), fallen);
    let store = issuer.store.clone().with_policy(tainted());
    assert_eq!(endorsement.verify(&store, NOW).map(drop), fallen);
    let many = (0..17).map(|n| KeyHash::parse(&format!("{n:064x}")).unwrap());
    let key = issuer.key.public().endorsed_before_by(many);
    let refused = endorse(&successor, &key, NOW + time::Duration::days(1), NOW);
    assert!(matches!(&refused, Err(Error::Endorser(why)) if why.contains("17 site CAs")), "{refused:?}");
}

#[test]
fn a_list_of_earlier_cas_that_can_not_be_read_is_refused() {
    let fabric = Fabric::shared();
    let key = new_key();
    let hash = "ab".repeat(32);
    for (cas, sound) in [
        (json!([hash]), true),
        (json!([hash, hash]), true),
        (json!([]), false),
        (json!(null), false),
        (json!(hash), false),
        (json!([hash.to_uppercase()]), false),
        (json!([1]), false),
        (json!(vec![&hash; 17]), false),
    ] {
        let payload = json!({"trust_domain": "td", "jwk": key.public().key.to_jwk(), "kid": key.key_id(),
            "iat": clock(), "exp": clock() + 60, "cas": cas})
        .to_string();
        let kind = statement::Kind { typ: ENDORSEMENT_TYPE, longest: 16 << 10 };
        let text = statement::seal(kind, payload.as_bytes(), &fabric.site).unwrap();
        let verdict = Endorsement::from_text(text).unwrap().verify(&fabric.bundle().into(), NOW);
        let fits = if sound { verdict.is_ok() } else { matches!(verdict, Err(Error::Claim("cas", _))) };
        assert!(fits, "{cas}: {verdict:?}");
    }
}

#[test]
fn a_key_speaks_only_for_what_its_ca_may_issue() {
    let issuer = Issuer::new("td");
    assert!(issuer.check(&issuer.with(&[("sub", r#""spiffe://td/site/s/w""#)])).is_ok());
    let other = issuer.check(&issuer.with(&[("sub", r#""spiffe://td/site/t/w""#)]));
    assert!(matches!(&other, Err(Error::Refused(why)) if why.to_string().contains("\"t\"")), "{other:?}");
    let rules = Policy::new([("s".into(), vec!["/ns/b".into()])]).unwrap();
    let store = issuer.store.clone().with_policy(rules);
    assert!(matches!(validate(&issuer.token(), "db", &store, NOW), Err(Error::Refused(_))));
}

#[test]
fn a_root_that_goes_takes_its_keys_with_it() {
    let (old, new) = (Fabric::new("td"), Fabric::new("td"));
    let key = new_key();
    let both = Bundle::parse(&[old.bundle().to_der(), new.bundle().to_der()].concat()).unwrap();
    let vouched = endorsed(&old, &key).verify(&both.clone().into(), NOW).unwrap();
    assert_eq!(both.with_jwt_authorities([vouched.clone(), vouched.clone()]).jwt_authorities().len(), 1);
    assert_eq!(new.bundle().with_jwt_authorities([vouched.clone()]).jwt_authorities(), []);
    assert_eq!(Fabric::new("other").bundle().with_jwt_authorities([vouched]).jwt_authorities(), []);
}

#[test]
fn an_expired_key_signs_nothing() {
    let fabric = Fabric::new("td");
    let key = new_key();
    let short = endorse(&fabric.site, &key.public(), NOW + time::Duration::minutes(1), NOW).unwrap();
    let short = short.verify(&fabric.bundle().into(), NOW).unwrap();
    let store = TrustStore::from(fabric.bundle().with_jwt_authorities([short]));
    let sub = domain("td").member("/w").unwrap();
    let claims = Claims { sub, aud: vec!["db".into()], iat: clock(), exp: clock() + 3600 };
    let token = sign(&key, &claims).unwrap();
    assert!(validate(&token, "db", &store, NOW).is_ok());
    let late = validate(&token, "db", &store, NOW + time::Duration::minutes(2));
    assert!(matches!(late, Err(Error::KeyExpired { .. })), "{late:?}");
}

/// Two sites of one root: each speaks for its own IDs, also where one has endorsed the other's key.
#[test]
fn a_key_that_two_sites_endorse_speaks_for_both_and_is_published_once() {
    let issuer = Issuer::new("td");
    let other = issuer.fabric.site_ca("t");
    let until = NOW + time::Duration::days(1);
    let by = |ca, key: &SigningKey| {
        endorse(ca, &key.public(), until, NOW).unwrap().verify(&issuer.store, NOW).unwrap()
    };
    let key = &issuer.key;
    let bundle = issuer.fabric.bundle().with_jwt_authorities([by(&other, key)]);
    let theirs = TrustStore::from(bundle.clone());
    let (ours, alien) = (
        issuer.with(&[("sub", r#""spiffe://td/site/s/w""#)]),
        issuer.with(&[("sub", r#""spiffe://td/site/t/w""#)]),
    );
    assert!(matches!(validate(&ours, "db", &theirs, NOW), Err(Error::Refused(_))));
    let bundle = bundle.and_jwt_authorities([by(&issuer.fabric.site, key), by(&other, key)]);
    assert_eq!(bundle.jwt_authorities().len(), 2);
    for document in [bundle.to_jwks(), bundle.jwt_jwks()] {
        assert_eq!(document.matches(key.key_id()).count(), 1, "{document}");
    }
    let both = TrustStore::from(bundle);
    assert!(validate(&ours, "db", &both, NOW).is_ok() && validate(&alien, "db", &both, NOW).is_ok());
}

/// Else a hostile site could take the name of another's key.
#[test]
fn a_key_is_named_by_its_thumbprint() {
    let fabric = Fabric::shared();
    let [key, other] = [new_key(), new_key()];
    let named = Authority { key_id: other.key_id().into(), ..key.public() };
    let endorsement = endorse(&fabric.site, &named, NOW + time::Duration::days(1), NOW).unwrap();
    let refused = endorsement.verify(&fabric.bundle().into(), NOW);
    assert!(matches!(refused, Err(Error::Claim("kid", _))), "{refused:?}");
}

#[test]
fn one_from_the_future_is_told_from_one_that_has_ended() {
    let fabric = Fabric::shared();
    let endorsement = endorsed(fabric, &new_key());
    let at = |seconds| NOW + time::Duration::seconds(seconds);
    assert!(endorsement.is_early(at(-31)) && endorsement.verify(&fabric.bundle().into(), at(-31)).is_err());
    assert!(!endorsement.is_early(at(-30)) && !endorsement.is_early(at(0)));
    assert!(!endorsement.is_early(at(91 * 86_400)));
    assert!(!Endorsement::from_text("a.b.c").unwrap().is_early(at(-31)));
}
