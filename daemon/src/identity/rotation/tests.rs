//! The machine with real files: what is written down, what a restart finds, what other nodes are told.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    Authority, Bundle, Curve, Facts, Key, KeyHash, Profile, Serial, TrustDomain,
    authority::{Reason, Revoked},
    bundle::to_pem,
    charter::{CaState, Charter, PinnedCa, Root, RootState, Site, sealed},
    csr,
    rotation::{Phase, Report},
    verify::{self, Purpose},
};
use tempfile::TempDir;
use time::OffsetDateTime;

mod edges;
mod keys;

use super::*;
use crate::identity::{config::IssuerConfig, files, trust::Trust};

const SITE: &str = "s1";
const YEAR: time::Duration = time::Duration::days(365);

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

fn root(lifetime: time::Duration) -> Authority {
    let (domain, key) = (TrustDomain::parse("td").unwrap(), Key::generate(Curve::P384).unwrap());
    Authority::root(&domain, key, lifetime, serial(), OffsetDateTime::now_utc()).unwrap()
}

/// A node that issues: a directory, a root, the CA that its configuration names.
struct Site1 {
    dir: TempDir,
    root: Authority,
    issuer: IssuerConfig,
    bundle: Bundle,
}

impl Site1 {
    fn new() -> Self {
        let (dir, root) = (tempfile::tempdir().unwrap(), root(YEAR));
        let key = Key::generate(Curve::P256).unwrap();
        let (certificate, key_file) = (dir.path().join("site-ca.pem"), dir.path().join("site-ca.key"));
        fs::write(&certificate, to_pem([&sign(&root, key.public().spki())])).unwrap();
        fs::write(&key_file, key.to_pem().as_bytes()).unwrap();
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).unwrap();
        let issuer = IssuerConfig::new(certificate, key_file, dir.path());
        let bundle = Bundle::parse(root.certificate()).unwrap();
        Self { dir, root, issuer, bundle }
    }

    fn state_dir(&self) -> PathBuf {
        self.dir.path().join("rotation")
    }

    fn open(&self) -> Rotation {
        let rotation = Rotation::open(&self.state_dir()).unwrap();
        self.reconcile(&rotation, None).unwrap();
        rotation
    }

    fn reconcile(&self, rotation: &Rotation, charter: Option<&Path>) -> Result<InForce, Error> {
        let inputs = Inputs {
            bundle: &self.bundle,
            charter,
            longest_leaf: Duration::from_secs(3600),
            issuer: Some(&self.issuer),
            site: Some(SITE),
        };
        rotation.reconcile(&inputs, SystemTime::now(), true)
    }

    /// A charter with these roots that pins every CA of the machine.
    fn charter(&self, rotation: &Rotation, sequence: u64, roots: &[&Authority]) -> Charter {
        let state = rotation.state();
        let word = |phase| match phase {
            Phase::Active => CaState::Active,
            Phase::Tainted => CaState::Tainted,
            _ => CaState::Prepared,
        };
        let under = |ca: &isthmus_pki::rotation::Ca| {
            ca.certificate.as_ref().map(|certificate| certificate.root.clone())
        };
        let pins = state.cas.iter().filter(|ca| ca.certificate.is_some());
        let cas = pins.map(|ca| PinnedCa { key: ca.key.clone(), root: under(ca), state: word(ca.phase) });
        let known = |root: &&Authority| Root {
            certificate: root.certificate().clone(),
            key: KeyHash::of(root.facts()),
            state: RootState::Active,
        };
        Charter {
            trust_domain: TrustDomain::parse("td").unwrap(),
            sequence,
            issued_at: 0,
            refresh_hint: 60,
            roots: roots.iter().map(known).collect(),
            sites: vec![Site { name: SITE.into(), ids: vec!["/".into()], cas: cas.collect() }],
            crls: vec![],
        }
    }

    fn publish(&self, rotation: &Rotation, charter: &Charter) -> Outcome {
        let file = sealed::seal(charter, &[&self.root]).unwrap().into_bytes();
        order(rotation, Verb::Publish(file), None)
    }

    /// A list of the root's with the CA of the configuration.
    fn crl(&self, number: u64) -> Vec<u8> {
        let ca = files::certificates(&self.issuer.certificate).unwrap().swap_remove(0);
        let serial = hex::decode(Facts::parse(&ca).unwrap().serial).unwrap();
        let now = OffsetDateTime::now_utc();
        let revoked = [Revoked { serial, at: now, reason: Reason::CaCompromise }];
        self.root.sign_crl(&revoked, number, now, now + time::Duration::DAY).unwrap().to_vec()
    }

    /// Another CA of the site, whose key is elsewhere.
    fn new_ca(&self) -> Authority {
        let key = Key::generate(Curve::P256).unwrap();
        Authority::load(sign(&self.root, key.public().spki()), key).unwrap()
    }

    /// The next CA, made here and signed by the root.
    fn prepare(&self, rotation: &Rotation) -> KeyHash {
        let made = order(rotation, Verb::Prepare, None).request.unwrap();
        let request = csr::parse(made.as_bytes()).unwrap();
        let key = KeyHash::of_spki(request.public_key.spki());
        let certificate = to_pem([&sign(&self.root, request.public_key.spki())]);
        assert!(order(rotation, Verb::Install(certificate.into_bytes()), None).applied);
        key
    }
}

fn sign(root: &Authority, spki: &[u8]) -> rustls_pki_types::CertificateDer<'static> {
    let profile = Profile::SiteCa { site: SITE.into(), lifetime: time::Duration::days(90) };
    let key = isthmus_pki::PublicKey::from_spki(spki).unwrap();
    root.issue(&profile, &key, serial(), OffsetDateTime::now_utc()).unwrap().certificate
}

fn request(verb: Verb, reason: Option<&str>) -> Request {
    Request { verb, override_reason: reason.map(str::to_owned), istio_checked: None, by: "a test".into() }
}

fn order(rotation: &Rotation, verb: Verb, reason: Option<&str>) -> Outcome {
    rotation.order(&request(verb, reason), false, SystemTime::now()).unwrap()
}

fn report(rotation: &Rotation, node: &str, sequence: u64) {
    let report = Report { charter_sequence: sequence, at: seconds(SystemTime::now()), ..Report::default() };
    rotation.report(node, report);
}

fn journal(site: &Site1) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(site.state_dir().join("journal.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_intermediate_changes_hands_and_a_restart_goes_on_from_there() {
    let site = Site1::new();
    let rotation = site.open();
    let first = rotation.state().active().unwrap().key.clone();
    let second = site.prepare(&rotation);
    let key_file = site.state_dir().join(format!("ca-{}.key", second.short()));
    assert_eq!(fs::metadata(&key_file).unwrap().permissions().mode() & 0o777, 0o600);

    // A dry run changes nothing, on disk or in memory.
    let before =
        (rotation.state(), fs::read(site.state_dir().join("state.json")).unwrap(), journal(&site).len());
    let dry = rotation.order(&request(Verb::Activate, None), true, SystemTime::now()).unwrap();
    assert!(!dry.applied && dry.effects.len() == 2, "{dry:?}");
    assert_eq!(
        (rotation.state(), fs::read(site.state_dir().join("state.json")).unwrap(), journal(&site).len()),
        before
    );

    assert!(order(&rotation, Verb::Activate, None).applied);
    let reissued = site.reconcile(&rotation, None).unwrap().reissue;
    assert_eq!(reissued.generation, 1);
    drop(rotation);
    let rotation = site.open();
    assert_eq!(rotation.state().active().unwrap().key, second);
    assert!(matches!(rotation.state().ca(&first).unwrap().phase, Phase::Retiring(_)));
    let in_force = site.reconcile(&rotation, None).unwrap();
    assert_eq!(in_force.issuer.unwrap().certificate, key_file.with_extension("pem"));
    assert_eq!(in_force.reissue, reissued);
    // The old CA goes once its last leaf is dead, not before.
    let early = order(&rotation, Verb::Retire, None);
    assert!(early.refusal.unwrap().to_string().starts_with("too early"));
    let late = SystemTime::now() + Duration::from_secs(3700);
    let retired = rotation.order(&request(Verb::Retire, None), false, late).unwrap();
    assert!(retired.applied && retired.notes[0].contains("yours to destroy"), "{retired:?}");
}

#[test]
fn what_is_installed_is_checked() {
    let site = Site1::new();
    let rotation = site.open();
    let made = order(&rotation, Verb::Prepare, None).request.unwrap();
    let spki = csr::parse(made.as_bytes()).unwrap().public_key.spki().to_vec();
    let refused = |pem: String| {
        let outcome =
            rotation.order(&request(Verb::Install(pem.into_bytes()), None), false, SystemTime::now());
        outcome.map(|outcome| outcome.refusal.unwrap().to_string()).unwrap_or_else(|e| e.to_string())
    };
    assert!(refused(to_pem([&sign(&root(YEAR), &spki)])).contains("no root in force signed it"));
    let other = Key::generate(Curve::P256).unwrap();
    assert!(refused(to_pem([&sign(&site.root, other.public().spki())])).contains("was not made here"));
    assert!(refused("nonsense".into()).contains("certificate"));
    let foreign = Profile::SiteCa { site: "s2".into(), lifetime: time::Duration::days(1) };
    let key = isthmus_pki::PublicKey::from_spki(&spki).unwrap();
    let foreign = site.root.issue(&foreign, &key, serial(), OffsetDateTime::now_utc()).unwrap().certificate;
    assert!(refused(to_pem([&foreign])).contains("not the CA of site \"s1\""));
    assert_eq!(rotation.state().cas.iter().filter(|ca| ca.phase == Phase::Prepared).count(), 0);
}

#[test]
fn a_node_that_lags_holds_the_next_step_back_and_an_override_is_in_the_journal() {
    let site = Site1::new();
    let rotation = site.open();
    assert!(site.publish(&rotation, &site.charter(&rotation, 1, &[&site.root])).applied);
    for node in ["gw1", "gw2"] {
        report(&rotation, node, 1);
    }
    site.prepare(&rotation);
    assert!(site.publish(&rotation, &site.charter(&rotation, 2, &[&site.root])).applied);
    report(&rotation, "gw1", 2);
    let refusal = order(&rotation, Verb::Activate, None).refusal.unwrap();
    assert_eq!(refusal.obstacles.len(), 1);
    assert!(refusal.to_string().starts_with("node gw2 lags: has charter 1 of 2"), "{refusal}");
    assert_eq!(journal(&site).last().unwrap()["outcome"], "refused");
    // The fleet outlives a restart.
    drop(rotation);
    let rotation = site.open();
    assert!(order(&rotation, Verb::Activate, None).refusal.is_some());
    assert!(order(&rotation, Verb::Activate, Some("gw2 burned down")).applied);
    let lines = journal(&site);
    let [.., ordered, done] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&ordered["outcome"], &done["outcome"]), (&"ordered".into(), &"done".into()));
    assert_eq!(ordered["override_reason"], "gw2 burned down");
    assert!(ordered["details"][0].as_str().unwrap().contains("node gw2 lags"));
}

#[test]
fn a_charter_never_goes_back_across_restarts() {
    let site = Site1::new();
    let rotation = site.open();
    let file = site.dir.path().join("charter.jws");
    let write = |sequence| {
        let charter = site.charter(&rotation, sequence, &[&site.root]);
        fs::write(&file, sealed::seal(&charter, &[&site.root]).unwrap()).unwrap();
    };
    write(5);
    let sequence = site.reconcile(&rotation, Some(&file)).unwrap().bundle.sequence();
    assert_eq!(rotation.state().charter_sequence(), 5);
    // An older file stays a file.
    write(4);
    let again = Rotation::open(&site.state_dir()).unwrap();
    site.reconcile(&again, Some(&file)).unwrap();
    assert_eq!(again.state().charter_sequence(), 5);
    assert!(site.reconcile(&again, Some(&file)).unwrap().bundle.sequence() >= sequence);
    // Another text of the same number, and one by a stranger, are errors that name the file.
    let mut fork = site.charter(&rotation, 5, &[&site.root]);
    fork.refresh_hint = 61;
    fs::write(&file, sealed::seal(&fork, &[&site.root]).unwrap()).unwrap();
    let error = site.reconcile(&again, Some(&file)).map(drop).unwrap_err().to_string();
    assert!(error.contains("charter.jws") && error.contains("must not share a number"), "{error}");
    fs::write(&file, sealed::seal(&site.charter(&rotation, 6, &[&site.root]), &[&root(YEAR)]).unwrap())
        .unwrap();
    let error = site.reconcile(&again, Some(&file)).map(drop).unwrap_err().to_string();
    assert!(error.contains("no root that this node trusts now"), "{error}");
    assert_eq!(again.state().charter_sequence(), 5);
    // A state that is ahead of its charter's file was tampered with.
    fs::remove_file(site.state_dir().join("charter.jws")).unwrap();
    let error = Rotation::open(&site.state_dir()).map(drop).unwrap_err().to_string();
    assert!(error.contains("never goes back"), "{error}");
}

#[test]
fn a_crash_between_charter_and_state_is_mended() {
    let site = Site1::new();
    let rotation = site.open();
    let charter = site.charter(&rotation, 3, &[&site.root]);
    drop(rotation);
    // The file was checked and written; then the power went.
    fs::write(site.state_dir().join("charter.jws"), sealed::seal(&charter, &[&site.root]).unwrap()).unwrap();
    let rotation = site.open();
    assert_eq!(rotation.state().charter_sequence(), 3);
    assert_eq!(site.open().state().charter_sequence(), 3);
}

/// spiffe/spire#1305, #5585: an agent that slept for long trusts its cache for ever. Ours begins anew, from a file that a person wrote.
#[test]
fn a_node_that_slept_through_every_root_begins_anew_from_the_trust_bundle() {
    let mut site = Site1::new();
    let rotation = site.open();
    let short = root(time::Duration::hours(1));
    let mut charter = site.charter(&rotation, 1, &[&short]);
    charter.sites.clear();
    let file = sealed::seal(&charter, &[&short]).unwrap();
    let sleeper = tempfile::tempdir().unwrap();
    let node = Rotation::open(sleeper.path()).unwrap();
    let reconcile = |bundle: &Bundle, charter: Option<&Path>, now| {
        let inputs =
            Inputs { bundle, charter, longest_leaf: Duration::from_secs(60), issuer: None, site: Some(SITE) };
        node.reconcile(&inputs, now, true)
    };
    let path = sleeper.path().join("given.jws");
    fs::write(&path, file).unwrap();
    let old = Bundle::parse(short.certificate()).unwrap();
    let anchors = |in_force: InForce| in_force.bundle.anchors().to_vec();
    let now = SystemTime::now();
    assert_eq!(anchors(reconcile(&old, Some(&path), now).unwrap()), [short.certificate().clone()]);
    // While its roots live, the charter counts and not the file of the trust bundle.
    assert_eq!(anchors(reconcile(&site.bundle, None, now).unwrap()), [short.certificate().clone()]);
    let late = now + Duration::from_secs(2 * 3600);
    assert_eq!(anchors(reconcile(&site.bundle, None, late).unwrap()), [site.root.certificate().clone()]);
    // Whoever comes over the wire with a charter of the dead root is not believed.
    let dead = Charter { sequence: 2, ..charter };
    let heard = Heard { charter: sealed::seal(&dead, &[&short]).unwrap().into_bytes(), ..Heard::default() };
    assert!(!node.hear(&heard, late).news);
    site.bundle = old;
}

#[test]
fn a_taint_is_refused_here_at_once_and_elsewhere_when_it_is_heard() {
    let site = Site1::new();
    let rotation = site.open();
    let bad = rotation.state().active().unwrap().key.clone();
    let ca = crate::identity::issuing::load_authority(&site.issuer).unwrap();
    let id = TrustDomain::parse("td").unwrap().member("/w").unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::hours(1) };
    let leaf = ca.issue(&profile, &key.public(), serial(), OffsetDateTime::now_utc()).unwrap().certificate;
    let chain = [leaf, ca.certificate().clone()];
    let accepts = |in_force: InForce| {
        let trust = Trust::under(in_force.bundle, in_force.policy, in_force.crls);
        verify::verify(&chain, trust.store(), Purpose::Server, OffsetDateTime::now_utc())
    };
    assert!(accepts(site.reconcile(&rotation, None).unwrap()).is_ok());

    // Nobody to take over: refused, with its reason.
    let taint = || Verb::Taint(bad.as_str()[..12].to_owned(), "disk sold on".into());
    assert!(order(&rotation, taint(), None).refusal.is_some());
    let next = site.prepare(&rotation);
    let outcome = order(&rotation, taint(), None);
    assert!(outcome.applied && outcome.notes.iter().any(|note| note.contains("ca-crl.pem")), "{outcome:?}");
    assert_eq!(rotation.state().active().unwrap().key, next);
    let refused = accepts(site.reconcile(&rotation, None).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("tainted"), "{refused}");

    // Another node of another site, which knows the root alone.
    let elsewhere = tempfile::tempdir().unwrap();
    let node = Rotation::open(elsewhere.path()).unwrap();
    let reconcile = || {
        let inputs = Inputs {
            bundle: &site.bundle,
            charter: None,
            longest_leaf: Duration::from_secs(60),
            issuer: None,
            site: Some("s2"),
        };
        node.reconcile(&inputs, SystemTime::now(), true).unwrap()
    };
    assert!(accepts(reconcile()).is_ok());
    let heard = Heard { taints: rotation.taints(), ..Heard::default() };
    assert!(node.hear(&heard, SystemTime::now()).news);
    assert!(!node.hear(&heard, SystemTime::now()).news, "heard once is heard");
    assert!(accepts(reconcile()).unwrap_err().to_string().contains("tainted"));
    let lines = node.progress(SystemTime::now());
    let seen = lines.iter().find(|line| line.track == "fabric").unwrap();
    assert!(
        seen.step == format!("{} of s1 tainted", bad.short()) && seen.detail.ends_with("disk sold on"),
        "{seen:?}"
    );
    assert!(
        rotation.progress(SystemTime::now()).iter().all(|line| line.track != "fabric"),
        "ours is told of once"
    );
    let again = Rotation::open(elsewhere.path()).unwrap();
    assert_eq!(again.taints(), rotation.taints(), "and it outlives a restart");
    assert!(!node.hear(&Heard { taints: vec!["a.b.c".into()], ..Heard::default() }, SystemTime::now()).news);
}

#[test]
fn a_charter_pins_and_one_that_comes_over_the_wire_is_held_to_the_same_rules() {
    let site = Site1::new();
    let rotation = site.open();
    let charter = site.charter(&rotation, 1, &[&site.root]);
    let heard = |charter: &Charter, by: &Authority| Heard {
        charter: sealed::seal(charter, &[by]).unwrap().into_bytes(),
        ..Heard::default()
    };
    assert!(!rotation.hear(&heard(&charter, &root(YEAR)), SystemTime::now()).news);
    assert!(rotation.hear(&heard(&charter, &site.root), SystemTime::now()).news);
    assert_eq!(rotation.state().charter_sequence(), 1);
    let key = rotation.state().active().unwrap().key.clone();
    let policy = site.reconcile(&rotation, None).unwrap().policy;
    let certificate = sign(&site.root, Key::generate(Curve::P256).unwrap().public().spki());
    let stranger = Facts::parse(&certificate).unwrap();
    assert!(policy.check_ca(&stranger).unwrap_err().to_string().contains("not pinned"));
    // One that condemns the CA that issues is obeyed.
    let mut word = site.charter(&rotation, 2, &[&site.root]);
    word.sites[0].cas[0].state = CaState::Tainted;
    assert!(rotation.hear(&heard(&word, &site.root), SystemTime::now()).news);
    assert_eq!(rotation.state().ca(&key).unwrap().phase, Phase::Tainted);
    assert!(site.reconcile(&rotation, None).unwrap().issuer.is_none());
}

/// The list that an operator brings is shown to be missing before, in force after, and asked for no more.
#[test]
fn a_revoked_ca_is_shown_as_it_is_and_revoking_it_again_changes_nothing() {
    let site = Site1::new();
    let rotation = site.open();
    let bad = rotation.state().active().unwrap().key.clone();
    let publish = |sequence, word, crls: Vec<Vec<u8>>| {
        let mut charter = site.charter(&rotation, sequence, &[&site.root]);
        charter.sites[0].cas.iter_mut().filter(|ca| ca.key == bad).for_each(|ca| ca.state = word);
        charter.crls = crls;
        let outcome = site.publish(&rotation, &charter);
        assert!(outcome.applied, "{outcome:?}");
        site.reconcile(&rotation, None).unwrap();
        outcome
    };
    let shown = || {
        let lines = rotation.progress(SystemTime::now());
        let step = format!("{} revoked", bad.short());
        lines.iter().find(|line| line.step == step).unwrap_or_else(|| panic!("{lines:?}")).detail.clone()
    };
    let told = publish(1, CaState::Revoked, vec![]);
    assert!(told.notes.iter().any(|note| note.contains("ca-crl.pem")), "{told:?}");
    assert!(shown().contains("no CRL in force"), "{}", shown());

    let crl = site.crl(1);
    let prefix = bad.as_str()[..16].to_owned();
    let revoke = |crl: &Vec<u8>| order(&rotation, Verb::Revoke(prefix.clone(), crl.clone()), None);
    assert!(revoke(&crl).applied);
    site.reconcile(&rotation, None).unwrap();
    assert!(shown().contains("a CRL in force names it"), "{}", shown());
    let before = (fs::read(site.state_dir().join("state.json")).unwrap(), journal(&site).len());
    let again = revoke(&crl);
    assert!(!again.applied && again.refusal.is_none() && again.effects.is_empty(), "{again:?}");
    assert!(again.notes[0].contains("revoked already, since"), "{again:?}");
    assert_eq!((fs::read(site.state_dir().join("state.json")).unwrap(), journal(&site).len()), before);
    let newer = site.crl(2);
    assert!(revoke(&newer).applied, "a newer list takes its place");
    assert_eq!(rotation.crls(), [newer]);
    let verb = Verb::Revoke(prefix.clone(), crl.clone());
    let older = rotation.order(&request(verb, None), false, SystemTime::now()).unwrap_err().to_string();
    assert!(older.contains("newer is in force"), "{older}");
    // A charter with the list in it says all of it at once.
    drop(rotation);
    fs::remove_dir_all(site.state_dir()).unwrap();
    let rotation = site.open();
    let mut charter = site.charter(&rotation, 1, &[&site.root]);
    (charter.sites[0].cas[0].state, charter.crls) = (CaState::Revoked, vec![crl]);
    assert!(site.publish(&rotation, &charter).applied);
    site.reconcile(&rotation, None).unwrap();
    let ca = rotation.state().ca(&bad).unwrap().clone();
    assert!(ca.phase == Phase::Revoked && ca.listed, "{ca:?}");
}

#[test]
fn damage_is_told_with_file_and_remedy() {
    let site = Site1::new();
    drop(site.open());
    let path = site.state_dir().join("state.json");
    for damage in ["", "{", r#"{"state":{},"fleet":{},"taints":[],"crls":[],"more":1}"#] {
        fs::write(&path, damage).unwrap();
        let error = Rotation::open(&site.state_dir()).map(drop).unwrap_err().to_string();
        assert!(error.contains("state.json") && error.contains("put a copy back"), "{error}");
    }
    let short = Rotation::open(tempfile::tempdir().unwrap().path()).unwrap();
    let unknown =
        short.order(&request(Verb::Taint("00000000".into(), String::new()), None), false, SystemTime::now());
    assert!(unknown.unwrap_err().to_string().contains("rotate status"));
}

#[test]
fn a_mass_reissue_is_spread_and_capped() {
    let order = ReissueOrder { generation: 1, window: Duration::from_secs(60) };
    let moments: Vec<Duration> = (0..200).map(|_| order.moment()).collect();
    assert!(moments.iter().all(|moment| *moment <= Duration::from_secs(60)));
    assert!(moments.iter().any(|moment| *moment < Duration::from_secs(20)));
    assert!(moments.iter().any(|moment| *moment > Duration::from_secs(40)));
    assert_eq!(order.capped(10_000), order);
    assert_eq!(order.capped(600_000).window, Duration::from_secs(600));
}
