//! Tokens and their keys, with a real site CA, from file to file.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use isthmus_pki::{Bundle, TrustStore, jwt};

use super::*;
use crate::identity::issuing::tests::{Site, WORKLOAD, identity, site};

fn later(hours: u64) -> SystemTime {
    SystemTime::now() + Duration::from_secs(hours * 3600)
}

fn aud() -> Vec<String> {
    vec!["db".into()]
}

fn key_ids(bundle: &Bundle) -> Vec<String> {
    bundle.jwt_authorities().iter().map(|key| key.key_id.clone()).collect()
}

#[test]
fn a_token_is_believed_by_whoever_has_the_bundle() {
    let site = site();
    let issuer = site.issuer();
    assert!(matches!(issuer.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)), Err(Error::NoTokenKey)));
    let bundle = issuer.publish(&site.trust(), later(0)).unwrap();
    let svid = issuer.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)).unwrap();
    let store = TrustStore::from(bundle.clone());
    let validated = jwt::validate(&svid.token, "db", &store, later(0).into()).unwrap();
    assert_eq!((validated.id.path(), validated.expires_at), ("/w", svid.expires_at));
    assert_eq!(svid.expires_at - svid.issued_at, time::Duration::minutes(5));
    assert!(jwt::validate(&svid.token, "db", site.trust().store(), later(0).into()).is_err());
    let log = site.log();
    assert_eq!(log.iter().filter(|(kind, ..)| kind == "jwt-key").count(), 1);
    let (kind, id, reason) = log.last().unwrap();
    assert_eq!((kind.as_str(), id.as_str(), reason.as_str()), ("jwt", "spiffe://td/w", "for db"));
    let text = std::fs::read_to_string(&site.config.audit.file).unwrap();
    assert!(!text.contains("eyJ") && !format!("{svid:?}").contains("eyJ"), "a token is in neither");
}

#[test]
fn keys_survive_a_restart_and_so_does_the_sequence() {
    let site = site();
    let first = site.issuer().publish(&site.trust(), later(0)).unwrap();
    let again = site.issuer().publish(&site.trust(), later(0)).unwrap();
    assert_eq!(first, again);
    let path = store::path(&site.config.state_dir);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // Its file is gone: what it tells then has a higher number all the same.
    std::fs::remove_file(&path).unwrap();
    let anew = site.issuer().publish(&site.trust(), later(1)).unwrap();
    assert!(anew.sequence() > first.sequence() && key_ids(&anew) != key_ids(&first));
    std::fs::write(&path, "{}").unwrap();
    let error = Keys::open(&site.config.state_dir).err().unwrap().to_string();
    assert!(error.contains("jwt-keys.json") && error.contains("not a file of keys"), "{error}");
    std::fs::write(&path, r#"{"sequence":18446744073709551615,"content":"","keys":[]}"#).unwrap();
    let error = Keys::open(&site.config.state_dir).err().unwrap().to_string();
    assert!(error.contains("its sequence is above"), "{error}");
}

#[test]
fn a_key_is_in_the_bundle_before_it_signs_and_after() {
    let site = site();
    let issuer = site.issuer();
    let first = issuer.publish(&site.trust(), later(0)).unwrap();
    // Ten minutes before half of its life: the next one is there, the first one signs.
    let soon = later(12) - Duration::from_secs(600);
    let both = issuer.publish(&site.trust(), soon).unwrap();
    assert!(key_ids(&both).len() == 2 && both.sequence() > first.sequence());
    let token = issuer.mint(&identity("/w"), &aud(), &WORKLOAD, soon).unwrap();
    jwt::validate(&token.token, "db", &TrustStore::from(first.clone()), soon.into()).unwrap();
    // Then the next one signs, and whoever has the bundle of before can check it; the first one's tokens still hold.
    let after = later(12) + Duration::from_secs(600);
    let token = issuer.mint(&identity("/w"), &aud(), &WORKLOAD, after).unwrap();
    jwt::validate(&token.token, "db", &TrustStore::from(both.clone()), after.into()).unwrap();
    assert!(jwt::validate(&token.token, "db", &TrustStore::from(first.clone()), after.into()).is_err());
    assert_eq!(key_ids(&issuer.publish(&site.trust(), after).unwrap()), key_ids(&both));
    let end = issuer.publish(&site.trust(), later(14)).unwrap();
    assert!(key_ids(&end).len() == 1 && end.sequence() > both.sequence());
    assert!(!key_ids(&first).contains(&key_ids(&end)[0]));
}

/// A change of the site CA is nothing to a token; the taint of a CA takes with it every key that it ever endorsed, at once.
#[test]
fn tokens_outlive_a_change_of_the_ca_and_fall_with_one_that_is_tainted() {
    let mut site = site();
    let first = site.issuer();
    let before = first.publish(&site.trust(), later(0)).unwrap();
    let token = first.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)).unwrap();
    let old_ca = first.ca.facts().key_sha256.clone();
    drop(first);
    site.next_ca();
    let second = site.issuer();
    let changed = second.publish(&site.trust(), later(0)).unwrap();
    assert_eq!(key_ids(&changed), key_ids(&before));
    jwt::validate(&token.token, "db", &TrustStore::from(changed.clone()), later(0).into()).unwrap();
    // Others, who have the new CA's word for the key, hear of the old one's taint by itself.
    let text = String::from_utf8(second.endorsements()[0].clone()).unwrap();
    let told = jwt::Endorsement::from_text(text).unwrap();
    assert!(told.verify(site.trust().store(), later(0).into()).is_ok());
    let refused = told.verify(site.trust_without(std::slice::from_ref(&old_ca)).store(), later(0).into());
    assert!(matches!(refused, Err(jwt::Error::EarlierTainted(_))), "{refused:?}");

    // The old one is found to be stolen: after a restart too, and although the one that issues is another.
    drop(second);
    let second = site.issuer();
    let trust = site.trust_without(&[old_ca]);
    let fallen = second.publish(&trust, later(0)).unwrap();
    assert!(key_ids(&fallen).len() == 1 && key_ids(&fallen) != key_ids(&before), "{:?}", key_ids(&fallen));
    assert!(fallen.sequence() > changed.sequence());
    assert!(second.key_ids().contains(&key_ids(&before)[0]), "nobody else can tell us of it again");
    assert!(jwt::validate(&token.token, "db", &TrustStore::from(fallen.clone()), later(0).into()).is_err());
    let token = second.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)).unwrap();
    jwt::validate(&token.token, "db", &TrustStore::from(fallen.clone()), later(0).into()).unwrap();
    assert_eq!(second.publish(&trust, later(0)).unwrap(), fallen, "once");
    let gone =
        site.log().iter().filter(|(kind, _, reason)| kind == "jwt-key" && reason.contains("tainted")).count();
    assert_eq!(gone, 1);
}

#[test]
fn a_token_does_not_outlive_the_site_ca() {
    let site = Site::new(time::Duration::minutes(2));
    let issuer = site.issuer();
    issuer.publish(&site.trust(), later(0)).unwrap();
    let svid = issuer.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)).unwrap();
    assert_eq!(svid.expires_at.unix_timestamp(), issuer.certificate().not_after);
}

#[test]
fn what_makes_no_token_is_refused_and_written_down() {
    let site = site();
    let issuer = site.issuer();
    issuer.publish(&site.trust(), later(0)).unwrap();
    for audience in [vec![], vec![String::new()], vec!["a".to_string(); 33], vec!["a".repeat(20_000)]] {
        let error = issuer.mint(&identity("/w"), &audience, &WORKLOAD, later(0)).err().unwrap();
        assert_eq!((error.reason(), error.status().code()), ("token", tonic::Code::InvalidArgument));
    }
    let error = issuer.mint(&identity("/site/s/db"), &aud(), &WORKLOAD, later(0)).err().unwrap();
    assert_eq!(error.reason(), "not_allowed");
    assert_eq!(site.log().iter().filter(|(kind, ..)| kind == "refused").count(), 5);
}

/// A key is never used that a restart would lose.
#[test]
fn without_its_file_no_key_comes_into_use() {
    let site = site();
    let issuer = site.issuer();
    // A directory in the way of the draft.
    std::fs::create_dir(site.config.state_dir.join("jwt-keys.json.new")).unwrap();
    let error = issuer.publish(&site.trust(), later(0)).err().unwrap().to_string();
    assert!(error.contains("jwt-keys.json"), "{error}");
    assert!(matches!(issuer.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)), Err(Error::NoTokenKey)));
    assert!(issuer.endorsements().is_empty(), "others hear of none");
    std::fs::remove_dir(site.config.state_dir.join("jwt-keys.json.new")).unwrap();
    issuer.publish(&site.trust(), later(0)).unwrap();
    issuer.mint(&identity("/w"), &aud(), &WORKLOAD, later(0)).unwrap();
}

/// Minute by minute another one is made that can't be kept. Others must not take them for this site's keys, of which they hold so many.
#[test]
fn a_disk_that_is_full_at_the_change_of_the_key_leaves_others_with_the_one_that_signs() {
    let site = site();
    let issuer = site.issuer();
    issuer.publish(&site.trust(), later(0)).unwrap();
    let told = issuer.endorsements();
    let draft = site.config.state_dir.join("jwt-keys.json.new");
    std::fs::create_dir(&draft).unwrap();
    for hours in 12..15 {
        issuer.publish(&site.trust(), later(hours)).unwrap_err();
        assert_eq!(issuer.endorsements(), told);
        issuer.mint(&identity("/w"), &aud(), &WORKLOAD, later(hours)).unwrap();
    }
    std::fs::remove_dir(&draft).unwrap();
    issuer.publish(&site.trust(), later(15)).unwrap();
    assert_eq!((issuer.endorsements().len(), issuer.endorsements()[0] == told[0]), (2, true));
}
