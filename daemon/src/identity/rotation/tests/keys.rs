//! How the keys are kept that a rotation makes.

use super::*;
use crate::identity::{
    config::{KeySource, PassphraseSource},
    issuing::load_authority,
};

fn secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// The key that a rotation made, as it lies there.
fn key_text(site: &Site1, key: &KeyHash) -> String {
    let file = site.state_dir().join(format!("ca-{}.key", key.short()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::read_to_string(file).unwrap()
}

/// A site whose CA has an encrypted key, with its passphrase in a file.
fn sealed() -> Site1 {
    let mut site = Site1::new();
    let (path, passphrase) = (site.dir.path().join("site-ca.key"), site.dir.path().join("passphrase"));
    let key = Key::from_pem(&fs::read(&path).unwrap(), None).unwrap();
    secret(&path, &key.to_encrypted_pem(b"correct horse", &[1; 16], &[2; 16]).unwrap());
    secret(&passphrase, "correct horse\n");
    site.issuer.key = KeySource::File { path, passphrase: Some(PassphraseSource::File(passphrase)) };
    site
}

fn refused(rotation: &Rotation, dry_run: bool) -> String {
    let outcome = rotation.order(&request(Verb::Prepare, None), dry_run, SystemTime::now());
    outcome.unwrap_err().to_string()
}

fn keys_made(site: &Site1) -> usize {
    let Ok(entries) = fs::read_dir(site.state_dir()) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("ca-")).count()
}

#[test]
fn beside_a_plain_key_the_next_is_plain() {
    let site = Site1::new();
    let key = site.prepare(&site.open());
    assert!(key_text(&site, &key).starts_with("-----BEGIN PRIVATE KEY-----\n"));
}

#[test]
fn beside_an_encrypted_key_the_next_is_encrypted_with_the_same_passphrase_and_issues() {
    let site = sealed();
    let rotation = site.open();
    let key = site.prepare(&rotation);
    let text = key_text(&site, &key);
    assert!(text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"), "{text}");
    assert!(Key::from_pem(text.as_bytes(), Some(b"battery staple")).is_err());
    let opened = Key::from_pem(text.as_bytes(), Some(b"correct horse")).unwrap();
    assert_eq!(KeyHash::of_spki(opened.public().spki()), key);
    assert!(order(&rotation, Verb::Activate, None).applied);
    drop(rotation);
    let rotation = site.open();
    let in_force = site.reconcile(&rotation, None).unwrap();
    let authority = load_authority(&in_force.issuer.unwrap()).unwrap();
    assert_eq!(KeyHash::of(authority.facts()), key);
    // Salt and vector are of this key alone.
    let other = key_text(&site, &site.prepare(&rotation));
    assert_ne!(text.lines().nth(1), other.lines().nth(1));
}

/// What is checked of a certificate needs the key, so it must be opened for it.
#[test]
fn a_certificate_for_an_encrypted_key_is_checked_like_any_other() {
    let site = sealed();
    let rotation = site.open();
    let made = order(&rotation, Verb::Prepare, None).request.unwrap();
    let key = csr::parse(made.as_bytes()).unwrap().public_key;
    let foreign = Profile::SiteCa { site: "s2".into(), lifetime: time::Duration::days(1) };
    let foreign = site.root.issue(&foreign, &key, serial(), OffsetDateTime::now_utc()).unwrap().certificate;
    let install = |pem: String| {
        rotation.order(&request(Verb::Install(pem.into_bytes()), None), false, SystemTime::now())
    };
    let error = install(to_pem([&foreign])).unwrap_err().to_string();
    assert!(error.contains("not the CA of site \"s1\""), "{error}");
    secret(&site.dir.path().join("passphrase"), "battery staple\n");
    let error = install(to_pem([&sign(&site.root, key.spki())])).unwrap_err().to_string();
    assert!(error.contains("wrong passphrase") && error.contains("ca-"), "{error}");
}

#[test]
fn an_empty_or_missing_passphrase_makes_no_key() {
    let site = sealed();
    let rotation = site.open();
    secret(&site.dir.path().join("passphrase"), "\n");
    for dry_run in [true, false] {
        assert!(refused(&rotation, dry_run).contains("the passphrase of the key of [issuer] is empty"));
    }
    fs::remove_file(site.dir.path().join("passphrase")).unwrap();
    assert!(refused(&rotation, true).contains("passphrase: "));
    assert_eq!(keys_made(&site), 0);
}

/// A credential can't be made by the daemon, and the next key is not left in the clear.
#[test]
fn beside_a_credential_no_key_is_made_and_the_remedy_works() {
    let mut site = sealed();
    let KeySource::File { passphrase, .. } = site.issuer.key.clone() else { panic!() };
    site.issuer.key = KeySource::Credential { name: "site-ca".into(), passphrase: None };
    let rotation = site.open();
    for dry_run in [true, false] {
        let error = refused(&rotation, dry_run);
        assert!(
            error.contains("credential \"site-ca\"") && error.contains("key_credential = NAME"),
            "{error}"
        );
    }
    assert!(rotation.state().cas.iter().all(|ca| ca.phase == Phase::Active));
    assert_eq!(keys_made(&site), 0);
    // With a passphrase there is something to encrypt it with.
    site.issuer.key = KeySource::Credential { name: "site-ca".into(), passphrase };
    site.reconcile(&rotation, None).unwrap();
    let key = site.prepare(&rotation);
    assert!(key_text(&site, &key).starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"));
}

/// One that was made before the key of `[issuer]` was encrypted stays what it was.
#[test]
fn a_plain_key_of_before_opens_beside_an_encrypted_one() {
    let mut site = Site1::new();
    let rotation = site.open();
    let key = site.prepare(&rotation);
    let passphrase = site.dir.path().join("passphrase");
    secret(&passphrase, "correct horse");
    let path = site.dir.path().join("site-ca.key");
    site.issuer.key = KeySource::File { path, passphrase: Some(PassphraseSource::File(passphrase)) };
    site.reconcile(&rotation, None).unwrap();
    assert!(order(&rotation, Verb::Activate, None).applied);
    let issuer = site.reconcile(&rotation, None).unwrap().issuer.unwrap();
    assert_eq!(KeyHash::of(load_authority(&issuer).unwrap().facts()), key);
}
