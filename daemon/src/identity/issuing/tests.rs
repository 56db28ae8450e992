//! Issuing with a real site CA and a real audit log.

use std::{path::Path, sync::Arc, time::SystemTime};

use isthmus_pki::{
    Authority, Bundle, Crl, Curve, Facts, Key, Profile, Serial, SpiffeId, TrustDomain, TrustStore, authority,
    bundle, csr,
    verify::{self, Policy, Purpose},
};
use tempfile::TempDir;

use super::*;
use crate::identity::{
    audit::tests::{Faulty, records},
    config::{AuditConfig, Pattern, Rate},
    registration::Identity,
    trust::Trust,
};

/// A site CA of so many days, in files.
pub(super) struct Site {
    dir: TempDir,
    pub(super) root: Authority,
    pub(super) config: IssuerConfig,
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

fn now() -> SystemTime {
    SystemTime::now()
}

fn domain() -> TrustDomain {
    TrustDomain::parse("td").unwrap()
}

pub(super) const WORKLOAD: Requester = Requester::Workload { uid: 7, pid: 8 };

pub(super) fn identity(path: &str) -> Identity {
    Identity {
        id: domain().member(path).unwrap(),
        ttl: std::time::Duration::from_secs(3600),
        jwt_ttl: std::time::Duration::from_secs(300),
        dns_names: vec!["api.example".into()],
        hint: String::new(),
        federates_with: Vec::new(),
    }
}

fn private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

impl Site {
    pub(super) fn new(lifetime: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::generate(Curve::P384).unwrap();
        let root = Authority::root(&domain(), key, Duration::days(3650), serial(), now().into()).unwrap();
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: "s".into(), lifetime };
        let issued = root.issue(&profile, &key.public(), serial(), now().into()).unwrap();
        let (certificate, path) = (dir.path().join("ca.pem"), dir.path().join("ca.key"));
        std::fs::write(&certificate, bundle::to_pem([&issued.certificate])).unwrap();
        private(&path, &key.to_pem());
        let config = IssuerConfig::new(certificate, path, dir.path());
        Self { dir, root, config }
    }

    pub(super) fn issuer(&self) -> Arc<Issuer> {
        let ca = SiteCa::load(&self.config, &self.trust(), Some("s"), now()).unwrap();
        Issuer::new(ca, &self.config, Log::open(&self.config.audit, now()).unwrap()).unwrap()
    }

    /// Another CA of the same site, in the place of the first.
    pub(super) fn next_ca(&mut self) {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: "s".into(), lifetime: Duration::days(90) };
        let issued = self.root.issue(&profile, &key.public(), serial(), now().into()).unwrap();
        std::fs::write(&self.config.certificate, bundle::to_pem([&issued.certificate])).unwrap();
        private(&self.dir.path().join("ca.key"), &key.to_pem());
    }

    /// The same roots; these CAs are tainted.
    pub(super) fn trust_without(&self, tainted: &[String]) -> Trust {
        let policy = Policy::default().with_tainted(tainted.iter().cloned());
        Trust::under(self.trust().own().clone(), policy, Vec::new())
    }

    pub(super) fn trust(&self) -> Trust {
        Trust::new(Bundle::parse(self.root.certificate()).unwrap())
    }

    fn verify(&self, chain: &[rustls_pki_types::CertificateDer<'static>]) -> Facts {
        let store = TrustStore::from(Bundle::parse(self.root.certificate()).unwrap());
        verify::verify(chain, &store, Purpose::Client, now().into()).unwrap().leaf
    }

    /// Kind, ID and reason of every record but the first.
    pub(super) fn log(&self) -> Vec<(String, String, String)> {
        let all = records(&self.config.audit.file).into_iter().skip(1);
        all.map(|record| (record.kind, record.id, record.reason)).collect()
    }
}

pub(super) fn site() -> Site {
    Site::new(Duration::days(90))
}

#[test]
fn of_a_request_only_the_key_is_used() {
    let site = site();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut wish = rcgen::CertificateParams::new(vec!["victim.example".into()]).unwrap();
    wish.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    wish.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    wish.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
    wish.subject_alt_names.push(rcgen::SanType::URI("spiffe://td/victim".try_into().unwrap()));
    wish.distinguished_name.push(rcgen::DnType::CommonName, "root");
    let request = wish.serialize_request(&key).unwrap();

    let issued = site.issuer().certify(request.der(), &identity("/w"), &WORKLOAD, now()).unwrap();
    let leaf = site.verify(&issued.chain);
    assert_eq!((leaf.uris, leaf.dns_names), (vec!["spiffe://td/w".into()], vec!["api.example".to_string()]));
    assert_eq!(leaf.spki, rcgen::PublicKeyData::subject_public_key_info(&key));
    assert!(!leaf.basic_constraints.unwrap().ca && !leaf.key_usage.unwrap().key_cert_sign);
    assert_eq!(leaf.extended_key_usage.unwrap(), ["serverAuth", "clientAuth"]);
    assert!(!leaf.subject.contains("root"), "{}", leaf.subject);
}

#[test]
fn what_is_told_of_an_svid_is_what_is_in_it() {
    let site = site();
    let svid = site.issuer().issue(&identity("/w"), &WORKLOAD, now()).unwrap();
    let leaf = site.verify(&svid.chain);
    let told = CertificateInfo { renew_at: None, ..svid.info.clone() };
    assert_eq!(told, CertificateInfo::new(crate::identity::Kind::WorkloadSvid, &leaf, None));
    let record = records(&site.config.audit.file).pop().unwrap();
    assert_eq!(
        (record.kind.as_str(), record.id.as_str(), &record.serial),
        ("x509", "spiffe://td/w", &leaf.serial)
    );
    assert_eq!((record.not_after, record.requester.as_str()), (Some(leaf.not_after), "workload uid=7 pid=8"));
}

#[test]
fn hostile_requests_are_refused_and_written_down() {
    let (site, key) = (site(), Key::generate(Curve::P256).unwrap());
    let issuer = site.issuer();
    let good = csr::create(&key, "w", &domain().id()).unwrap();
    let mut changed = csr::to_der(&good).unwrap().to_vec();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let foreign = |algorithm| {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
    };
    let requests = [
        Vec::new(),
        b"-----BEGIN CERTIFICATE REQUEST-----\n".to_vec(),
        vec![0x30; csr::MAX_LEN + 1],
        good.as_bytes()[..good.len() / 2].to_vec(),
        format!("{good}{good}").into_bytes(),
        changed,
        foreign(&rcgen::PKCS_ED25519),
        foreign(&rcgen::PKCS_RSA_SHA256),
        key.to_pem().as_bytes().to_vec(),
    ];
    for (number, request) in requests.iter().enumerate() {
        let error = issuer.certify(request, &identity("/w"), &WORKLOAD, now()).err().unwrap();
        assert!(matches!(error, Error::Request(_)), "{number}: {error}");
        assert_eq!(error.status().code(), tonic::Code::InvalidArgument, "{number}");
    }
    let log = site.log();
    assert_eq!(log.len(), requests.len());
    assert!(
        log.iter().all(|(kind, id, reason)| kind == "refused" && id == "spiffe://td/w" && !reason.is_empty())
    );
    issuer.certify(good.as_bytes(), &identity("/w"), &WORKLOAD, now()).unwrap();
}

#[test]
fn who_may_have_which_id() {
    let mut site = site();
    site.config.paths =
        Paths::These(vec![Pattern::parse("/ns/*").unwrap(), Pattern::parse("/site/*").unwrap()]);
    let issuer = site.issuer();
    let node = |name: &str| Requester::Node(domain().member(&format!("/site/s/node/{name}")).unwrap());
    let token = Requester::Token("t1".into());
    for (path, requester, allowed) in [
        ("/ns/a/sa/b", &WORKLOAD, true),
        ("/vm/a", &WORKLOAD, false),
        ("/site/s/db", &WORKLOAD, true),
        ("/site/t/db", &WORKLOAD, false),
        ("/site/s/node/a", &WORKLOAD, false),
        ("/site/s/node/a", &node("a"), true),
        ("/site/s/node/a", &node("b"), false),
        ("/site/t/node/a", &token, false),
        ("/site/s/node/a", &token, true),
        ("/vm/a", &node("a"), false),
    ] {
        let result = issuer.issue(&identity(path), requester, now());
        assert_eq!(result.is_ok(), allowed, "{path} {requester}");
        if let Err(error) = result {
            assert_eq!(
                (error.reason(), error.status().code()),
                ("not_allowed", tonic::Code::PermissionDenied)
            );
        }
    }
    assert_eq!(site.log().iter().filter(|(kind, ..)| kind == "refused").count(), 6);
}

#[test]
fn who_asks_too_fast_is_told_so() {
    let mut site = site();
    site.config.requester_rate = Some(Rate::per_second(1));
    let issuer = site.issuer();
    let issue = |uid| issuer.issue(&identity("/w"), &Requester::Workload { uid, pid: 1 }, now());
    let refused: Vec<Error> = (0..30).filter_map(|_| issue(1).err()).collect();
    assert!((9..=10).contains(&refused.len()), "{}", refused.len());
    assert_eq!(
        (refused[0].reason(), refused[0].status().code()),
        ("requester_rate", tonic::Code::ResourceExhausted)
    );
    issue(2).unwrap();
    assert!(
        site.log().iter().any(|(kind, _, reason)| kind == "refused" && reason.contains("requester_rate"))
    );
}

/// Lines of this thread's log at WARN and above.
fn warnings(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

// spiffe/spire#5097, smallstep/certificates#381, cert-manager#5864, istio#59766: what is issued must not outlive its issuer.
#[test]
fn nothing_outlives_the_site_ca_and_it_is_said_once() {
    let site = Site::new(Duration::minutes(10));
    let issuer = site.issuer();
    let told = warnings(|| {
        for _ in 0..5 {
            let svid = issuer.issue(&identity("/w"), &WORKLOAD, now()).unwrap();
            let leaf = site.verify(&svid.chain);
            assert_eq!(leaf.not_after, issuer.certificate().not_after);
            assert!(svid.renew_at < svid.not_after && svid.info.renew_at.unwrap() < leaf.not_after);
        }
    });
    assert_eq!(told.matches("cut short").count(), 1, "{told}");
    // The same CA, loaded again, is not news.
    let ca = SiteCa::load(&site.config, &site.trust(), Some("s"), now()).unwrap();
    let again = Issuer::after(Some(&*issuer), ca, &site.config, issuer.audit().clone()).unwrap();
    again.begin(Some(&*issuer));
    let told = warnings(|| drop(again.issue(&identity("/w"), &WORKLOAD, now()).unwrap()));
    assert_eq!(told, "");
}

#[test]
fn what_cannot_be_written_down_does_not_leave() {
    let site = site();
    let issuer = site.issuer();
    let disk = Faulty::under(issuer.audit());
    issuer.issue(&identity("/w"), &WORKLOAD, now()).unwrap();
    disk.leave(10);
    let told = warnings(|| {
        for _ in 0..3 {
            let error = issuer.issue(&identity("/w"), &WORKLOAD, now()).err().unwrap();
            assert_eq!((error.reason(), error.status().code()), ("audit", tonic::Code::Unavailable));
            assert!(
                error.to_string().contains("No space left")
                    && !error.status().message().contains("audit.jsonl")
            );
        }
    });
    assert_eq!(told.matches("can't be written").count(), 1, "{told}");
    disk.leave(u64::MAX);
    issuer.issue(&identity("/w"), &WORKLOAD, now()).unwrap();
    let log = site.log();
    let kinds: Vec<&str> = log.iter().map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(kinds, ["x509", "resumed", "x509"]);
    assert!(log[1].2.contains("3 requests failed"), "{}", log[1].2);
}

#[test]
fn a_pair_replaced_half_way_names_both_files() {
    let site = site();
    private(&site.dir.path().join("ca.key"), &Key::generate(Curve::P256).unwrap().to_pem());
    let error = SiteCa::load(&site.config, &site.trust(), Some("s"), now()).err().unwrap().to_string();
    for part in ["ca.pem", "ca.key", "does not belong"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_encrypted_key_issues() {
    let mut site = site();
    let path = site.dir.path().join("ca.key");
    let key = Key::from_pem(&std::fs::read(&path).unwrap(), None).unwrap();
    private(&path, &key.to_encrypted_pem(b"secret", &[3; 16], &[4; 16]).unwrap());
    private(&site.dir.path().join("pass"), "secret\n");
    let passphrase = crate::identity::config::PassphraseSource::File(site.dir.path().join("pass"));
    site.config.key = crate::identity::config::KeySource::File { path, passphrase: Some(passphrase) };
    let svid = site.issuer().issue(&identity("/w"), &WORKLOAD, now()).unwrap();
    site.verify(&svid.chain);
}

/// Settings that differ keep the file and its chain.
#[test]
fn a_reload_may_change_how_it_is_written() {
    let site = site();
    let issuer = site.issuer();
    issuer.audit().adjust(&AuditConfig { rotate: 1, ..site.config.audit.clone() });
    let id: SpiffeId = issuer.issue(&identity("/w"), &WORKLOAD, now()).unwrap().id;
    assert_eq!(id.path(), "/w");
    let kinds: Vec<String> = records(&site.config.audit.file).into_iter().map(|record| record.kind).collect();
    assert_eq!(kinds, ["opened", "opened", "x509"]);
}

/// With rules, no site may have a path that none of them gives; it owns its own all the same.
#[test]
fn a_policy_with_rules_lets_every_site_issue() {
    let site = site();
    let under = |policy: Policy, crls: Vec<Crl>| Trust::under(site.trust().own().clone(), policy, crls);
    let rules = Policy::new([("s".into(), vec![])]).unwrap();
    let load = |trust: &Trust| SiteCa::load(&site.config, trust, Some("s"), now());
    assert_eq!(load(&under(rules, vec![])).unwrap().trouble(now()), None);
    let tainted = Policy::default().with_tainted([site.issuer().ca.facts().key_sha256.clone()]);
    let trouble = load(&under(tainted, vec![])).unwrap().trouble(now()).unwrap();
    assert!(trouble.contains("tainted") && trouble.contains("nothing is issued"), "{trouble}");
}

#[test]
fn a_revoked_ca_issues_nothing_and_endorses_no_key() {
    let site = site();
    let before = site.issuer();
    let serial = hex::decode(&before.ca.facts().serial).unwrap();
    let at = time::OffsetDateTime::from(now());
    let revoked = [authority::Revoked { serial, at, reason: authority::Reason::KeyCompromise }];
    let crl = site.root.sign_crl(&revoked, 1, at, at + Duration::days(7)).unwrap();
    let trust = Trust::under(site.trust().own().clone(), Policy::default(), vec![Crl::parse(&crl).unwrap()]);
    assert_eq!(trust.store().crls().count(), 1);
    assert_eq!(before.publish(&site.trust(), now()).unwrap().jwt_authorities().len(), 1);
    // The same issuer, by what the fabric believes now.
    assert_eq!(before.publish(&trust, now()).unwrap().jwt_authorities(), []);
    let ca = SiteCa::load(&site.config, &trust, Some("s"), now()).unwrap();
    let issuer = Issuer::after(Some(&*before), ca, &site.config, before.audit().clone()).unwrap();
    let refused = issuer.issue(&identity("/w"), &WORKLOAD, now()).err().unwrap();
    assert!(matches!(&refused, Error::Idle { reason, .. } if reason.contains("revoked")), "{refused}");
    assert_eq!(refused.status().code(), tonic::Code::Unavailable);
}
