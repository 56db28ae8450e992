//! A root whose key is made in a PKCS#11 token and never leaves it: SoftHSM's token, `isthmus-ca`'s ceremony, OpenSSL's and OpenSC's
//! verdict.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    peers::{installed, is_installed},
    pki::identity_config,
    sandbox,
};
use isthmus_pki::{Authority, Bundle, Curve, Key, Profile, Serial, TrustDomain, TrustStore, jwt, verify};
use isthmus_token::{Error, Location, TokenKey, Uri};
use isthmusd::identity::{Identity, Issuer, IssuerConfig, KeySource, Requester, SiteCa, Trust, audit::Log};
use serde_json::Value;
use time::{Duration, OffsetDateTime};

const MODULES: [&str; 2] =
    ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"];
const PIN: &str = "14159265";

/// A directory with a token of its own, `isthmus`, and its PIN in a file.
struct Token {
    dir: tempfile::TempDir,
    module: &'static str,
}

impl Token {
    /// `None`, said aloud, where SoftHSM, OpenSC or OpenSSL are missing; a failure where they are required.
    fn new(test: &str) -> Option<Self> {
        let module = MODULES.into_iter().find(|path| is_installed(path)).unwrap_or(MODULES[0]);
        if !installed(test, &["softhsm2-util", "pkcs11-tool", "openssl", module]) {
            return None;
        }
        let this = Self { dir: tempfile::tempdir().unwrap(), module };
        fs::create_dir(this.path("tokens")).unwrap();
        let config =
            format!("directories.tokendir = {}\nobjectstore.backend = file\n", this.path("tokens").display());
        fs::write(this.path("softhsm2.conf"), config).unwrap();
        this.secret("pin", PIN);
        this.ok(
            "softhsm2-util",
            &["--init-token", "--free", "--label", "isthmus", "--pin", PIN, "--so-pin", "27182818"],
        );
        Some(this)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn secret(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn run(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.dir.path()).env("SOFTHSM2_CONF", self.path("softhsm2.conf"));
        command.output().unwrap()
    }

    fn ok(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.run(program, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn ca(&self, arguments: &str) -> Output {
        self.run(&Bins::build().unwrap().isthmus_ca, &arguments.split(' ').collect::<Vec<_>>())
    }

    fn ca_ok(&self, arguments: &str) -> String {
        let output = self.ca(arguments);
        assert!(
            output.status.success(),
            "isthmus-ca {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn ca_fails(&self, arguments: &str, words: &[&str]) {
        let output = self.ca(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "isthmus-ca {arguments}: {said}");
        for word in words {
            assert!(said.contains(word), "isthmus-ca {arguments}: {said:?} lacks {word:?}");
        }
    }

    fn openssl(&self, arguments: &str) -> String {
        self.ok("openssl", &arguments.split(' ').collect::<Vec<_>>())
    }

    fn init(&self) -> String {
        format!(
            "root init --trust-domain a --out root --token pkcs11:token=isthmus;object=root --module {} --pin-file pin",
            self.module
        )
    }
}

#[test]
fn a_whole_ceremony_with_the_root_in_a_token() {
    let Some(token) = Token::new("a_whole_ceremony_with_the_root_in_a_token") else { return };
    token.ca_ok(&(token.init() + " --transcript t.jsonl"));
    assert!(!token.path("root/root.key").exists(), "no key in a file");
    let reference = fs::read_to_string(token.path("root/root.token")).unwrap();
    assert!(reference.contains("module-path=/") && !reference.contains(PIN), "{reference}");
    token.ca_ok("site csr --site s --trust-domain a --out site");
    token.ca_ok("site sign --csr site/site-ca.csr --root root --site s --pin-file pin --transcript t.jsonl");
    token.ca_ok("crl sign --root root --revoke-serial 0a --out crl --pin-file pin --transcript t.jsonl");
    token.ca_ok("node csr --site s --name gw1 --trust-domain a --out node");
    token.ca_ok(
        "node sign --csr node/node.csr --ca site/site-ca.pem --ca-key site/site-ca.key --site s --name gw1",
    );
    token.ca_ok("verify --bundle root/root.pem --chain node/node.pem --key node/node.key");
    token.ca_ok("transcript verify t.jsonl --root root/root.pem");
    token.openssl("verify -x509_strict -check_ss_sig -CAfile root/root.pem root/root.pem");
    token.openssl("verify -x509_strict -purpose sslserver -CAfile root/root.pem -untrusted site/site-ca.pem node/node.pem");
    token.openssl("crl -in crl/crl.pem -noout -CAfile root/root.pem");
    // OpenSC sees the same key, and a private half that it can't read.
    let login = ["--module", token.module, "--token-label", "isthmus", "--login", "--pin", PIN];
    let public = token.ok("pkcs11-tool", &[&login[..], &["--list-objects", "--type", "pubkey"]].concat());
    let point = public.lines().find_map(|line| line.trim().strip_prefix("EC_POINT:")).unwrap().trim();
    token.openssl("x509 -in root/root.pem -noout -pubkey -out root.pub");
    token.openssl("pkey -pubin -in root.pub -outform DER -out root.der");
    let ours: String =
        fs::read(token.path("root.der")).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    // 04, x and y: 97 bytes of P-384.
    assert!(ours.ends_with(&point[point.len() - 194..]), "{ours} {point}");
    let objects = token.ok("pkcs11-tool", &[&login[..], &["--list-objects", "--type", "privkey"]].concat());
    assert!(objects.contains("never extractable"), "{objects}");
}

#[test]
fn a_site_ca_in_a_token() {
    let Some(token) = Token::new("a_site_ca_in_a_token") else { return };
    token.secret("pass", "correct horse battery staple");
    token.ca_ok("root init --trust-domain a --out root --passphrase-file pass");
    let place = format!("--token pkcs11:token=isthmus;object=site --module {} --pin-file pin", token.module);
    token.ca_ok(&format!("site csr --site s --trust-domain a --out site {place}"));
    assert!(fs::read_to_string(token.path("site/site-ca.key")).unwrap().starts_with("pkcs11:"));
    token.ca_ok("site sign --csr site/site-ca.csr --root root --site s --passphrase-file pass");
    token.ca_ok("node csr --site s --name gw1 --trust-domain a --out node");
    let sign =
        "node sign --csr node/node.csr --ca site/site-ca.pem --ca-key site/site-ca.key --site s --name gw1";
    token.ca_ok(&format!("{sign} --pin-file pin --transcript t.jsonl"));
    token.ca_ok("verify --bundle root/root.pem --chain node/node.pem --key node/node.key");
    token.ca_ok("transcript verify t.jsonl --root root/root.pem --ca site/site-ca.pem");
    token.openssl("verify -x509_strict -purpose sslclient -CAfile root/root.pem -untrusted site/site-ca.pem node/node.pem");
}

#[test]
fn what_is_wrong_is_said() {
    let Some(token) = Token::new("what_is_wrong_is_said") else { return };
    token.secret("wrong", "0000");
    let init = token.init();
    token.ca_fails(&init.replace("--pin-file pin", "--pin-file wrong"), &["refuses the PIN", "lock"]);
    token.ca_fails(&init.replace("token=isthmus", "token=other"), &["0 tokens match", "token=other"]);
    token.ca_fails(&init.replace(";object=root", ""), &["object=NAME"]);
    token.ca_fails(&init.replace(token.module, "/absent.so"), &["/absent.so"]);
    assert!(!token.path("root").exists());
    token.ca_ok(&init);
    // Neither the files nor the key in the token are overwritten.
    token.ca_fails(&init, &["root/root.pem", "not overwritten"]);
    token.ca_fails(
        &init.replace("--out root", "--out other"),
        &["exists in the token and is not overwritten"],
    );
    token.ca_ok("site csr --site s --trust-domain a --out site");
    let sign = "site sign --csr site/site-ca.csr --root root --site s --out x";
    token.ca_fails(&format!("{sign} --pin-file wrong"), &["refuses the PIN"]);
    token.secret("share", "x");
    token.ca_fails(&format!("{sign} --share share"), &["the key is in a token; no share opens it"]);
    token.ca_fails(
        "share reshare --root root --shares 2/3 --share-out s --out r --pin-file pin",
        &["never leaves it"],
    );
    // A token that holds another root's key.
    token.ca_ok(&init.replace("object=root", "object=other").replace("--out root", "--out other"));
    fs::copy(token.path("other/root.pem"), token.path("root/root.pem")).unwrap();
    token.ca_fails(
        &format!("{sign} --pin-file pin"),
        &["root/root.pem with root/root.token", "does not belong"],
    );
    assert!(!token.path("x").exists());
}

/// The library: two keys of one token in one process, each used by several threads at once.
#[test]
fn keys_of_one_token_sign_side_by_side() {
    const TEST: &str = "keys_of_one_token_sign_side_by_side";
    // SoftHSM finds its tokens by the environment, which a process must not change while it runs: a child gets another one.
    let Some(module) = env::var_os("ISTHMUS_TEST_MODULE") else {
        let Some(token) = Token::new(TEST) else { return };
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", TEST]).env("SOFTHSM2_CONF", token.path("softhsm2.conf"));
        assert!(child.env("ISTHMUS_TEST_MODULE", token.module).status().unwrap().success());
        return;
    };
    let location = |object: &str| {
        let uri = Uri::parse(&format!("pkcs11:token=isthmus;object={object}")).unwrap();
        Location::new(uri, Some(module.clone().into()), PIN.as_bytes()).unwrap()
    };
    let root = location("root").generate(isthmus_token::Curve::P384).unwrap();
    let site = location("site").generate(isthmus_token::Curve::P256).unwrap();
    assert!(matches!(location("root").generate(isthmus_token::Curve::P256), Err(Error::Exists(_))));
    assert!(matches!(location("none").open(), Err(Error::Keys { count: 0, .. })));
    assert!(matches!(site.sign_digest(&[0; 48]), Err(Error::Digest(..))));
    let (now, year) = (OffsetDateTime::now_utc(), Duration::days(365));
    let domain = TrustDomain::parse("a").unwrap();
    let root = Authority::root(&domain, external(root), year, serial(), now).unwrap();
    // A key is destroyed with its public half, and no other one.
    location("third").generate(isthmus_token::Curve::P256).unwrap();
    location("third").destroy().unwrap();
    assert!(matches!(location("third").open(), Err(Error::Keys { count: 0, .. })));
    location("third").destroy().unwrap();
    location("third").generate(isthmus_token::Curve::P256).unwrap();
    let site = external(site);
    assert_eq!(site.public().curve(), Curve::P256);
    let ca = root
        .issue(&Profile::SiteCa { site: "s".into(), lifetime: year }, &site.public(), serial(), now)
        .unwrap();
    let ca = Authority::load(ca.certificate, external(location("site").open().unwrap())).unwrap();
    let id = domain.member("/w").unwrap();
    let svid = Profile::Svid { id, dns_names: vec![], lifetime: Duration::hours(1) };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let key = Key::generate(Curve::P256).unwrap().public();
                    let leaf = ca.issue(&svid, &key, serial(), now).unwrap().certificate;
                    assert!(isthmus_pki::signed_by::certificate(&leaf, ca.certificate()));
                    let other = root.issue(
                        &Profile::SiteCa { site: "t".into(), lifetime: year },
                        &key,
                        serial(),
                        now,
                    );
                    assert!(isthmus_pki::signed_by::certificate(
                        &other.unwrap().certificate,
                        root.certificate()
                    ));
                }
            });
        }
    });
}

/// `rotate intermediate prepare` of a daemon whose site CA is in a token: the next key is made there too, and never lies in a file.
#[test]
fn a_rotation_makes_the_next_key_in_the_token() {
    const TEST: &str = "a_rotation_makes_the_next_key_in_the_token";
    sandbox::run_with_bins(TEST, |bins| {
        let Some(token) = Token::new(TEST) else { return };
        token.secret("pass", "correct horse battery staple");
        token.ca_ok("root init --trust-domain a --out root --passphrase-file pass");
        let place =
            format!("--token pkcs11:token=isthmus;object=one --module {} --pin-file pin", token.module);
        token.ca_ok(&format!("site csr --site s --trust-domain a --out one {place}"));
        token.ca_ok("site sign --csr one/site-ca.csr --root root --site s --passphrase-file pass");
        token.ca_ok("node csr --site s --name gw1 --trust-domain a --out node");
        token.ca_ok(
            "node sign --csr node/node.csr --ca one/site-ca.pem --ca-key one/site-ca.key --site s --name gw1 --pin-file pin",
        );
        let mut node = start_node(&token, bins);

        let ok = |node: &Node, words: &str| {
            let words: Vec<_> = ["rotate", "intermediate"].into_iter().chain(words.split(' ')).collect();
            node.ctl_ok(&words).map_err(|e| node.blame(e)).unwrap()
        };
        let request = token.path("next.csr");
        ok(&node, "prepare --dry-run");
        assert_eq!(private_keys(&token), 1, "a dry run makes none");
        ok(&node, &format!("prepare --out {}", request.display()));
        assert_eq!(private_keys(&token), 2);
        let rotation = node.state_dir().join("identity/rotation");
        let files = fs::read_dir(rotation).unwrap().map(|entry| entry.unwrap().path());
        let key = files.filter(|path| path.extension().is_some_and(|e| e == "key")).collect::<Vec<_>>();
        let [key] = &key[..] else { panic!("{key:?}") };
        let named = fs::read_to_string(key).unwrap();
        assert!(named.starts_with("pkcs11:token=isthmus;object=site-ca-"), "{named}");

        token.ca_ok("site sign --csr next.csr --root root --site s --passphrase-file pass --out two");
        ok(&node, &format!("install {}", token.path("two/site-ca.pem").display()));
        ok(&node, "activate");
        // The node's own certificate is issued with it.
        let two = fs::read(token.path("two/site-ca.pem")).unwrap();
        let two = isthmus_pki::bundle::certificates(&two).unwrap().swap_remove(0);
        let short = isthmus_pki::KeyHash::of(&isthmus_pki::Facts::parse(&two).unwrap()).short().to_owned();
        let renewed = |node: &Node| {
            let status: Value = serde_json::from_str(&node.ctl_ok(&["rotate", "status", "-o", "json"])?)?;
            let lines = status["lines"].as_array().into_iter().flatten();
            let of = lines.filter(|line| line["track"] == "fleet").map(|line| line["detail"].to_string());
            anyhow::ensure!(of.clone().any(|detail| detail.contains(&short)), "{status}");
            Ok(())
        };
        node.wait_until("a certificate of the next CA", LIMIT, renewed).unwrap();
    });
}

const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

fn start_node(token: &Token, bins: &Bins) -> Node {
    let mut node = Node::new("gw1", &Netns::create("issuer").unwrap(), token.dir.path(), bins).unwrap();
    for file in ["root/root.pem", "one/site-ca.pem", "node/node.pem", "node/node.key", "pin"] {
        let from = token.path(file);
        fs::copy(&from, node.dir().join(from.file_name().unwrap())).unwrap();
    }
    let config = format!(
        "{}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"pkcs11:token=isthmus;object=one\"\nmodule = {:?}\npin_file = \"pin\"\n",
        identity_config(&node, "s"),
        token.module
    );
    node.write_config(&config).unwrap();
    let softhsm = token.path("softhsm2.conf");
    let with_token = |command: &mut Command| {
        command.env("SOFTHSM2_CONF", softhsm);
    };
    node.restart_with(with_token).unwrap();
    node.wait_ready(LIMIT).unwrap();
    node
}

fn private_keys(token: &Token) -> usize {
    let list = ["--module", token.module, "--login", "--pin", PIN, "--list-objects", "--type", "privkey"];
    token.ok("pkcs11-tool", &list).matches("Private Key Object").count()
}

/// A daemon's issuer whose site CA never leaves the token: certificates, tokens, and the head of its log.
#[test]
fn an_issuer_signs_with_a_site_ca_in_a_token() {
    const TEST: &str = "an_issuer_signs_with_a_site_ca_in_a_token";
    let Some(module) = env::var_os("ISTHMUS_TEST_MODULE") else {
        let Some(token) = Token::new(TEST) else { return };
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", TEST]).env("SOFTHSM2_CONF", token.path("softhsm2.conf"));
        child.env("ISTHMUS_TEST_DIR", token.dir.path());
        assert!(child.env("ISTHMUS_TEST_MODULE", token.module).status().unwrap().success());
        return;
    };
    let dir = PathBuf::from(env::var_os("ISTHMUS_TEST_DIR").unwrap());
    let (now, year) = (std::time::SystemTime::now(), Duration::days(365));
    let uri = "pkcs11:token=isthmus;object=issuer";
    let location =
        Location::new(Uri::parse(uri).unwrap(), Some(module.clone().into()), PIN.as_bytes()).unwrap();
    let key = external(location.generate(isthmus_token::Curve::P256).unwrap());
    let domain = TrustDomain::parse("a").unwrap();
    let root =
        Authority::root(&domain, Key::generate(Curve::P384).unwrap(), year, serial(), now.into()).unwrap();
    let profile = Profile::SiteCa { site: "s".into(), lifetime: year };
    let certificate = root.issue(&profile, &key.public(), serial(), now.into()).unwrap().certificate;
    drop(key);
    fs::write(dir.join("ca.pem"), isthmus_pki::bundle::to_pem([&certificate])).unwrap();
    let mut config = IssuerConfig::new(dir.join("ca.pem"), dir.join("unused"), &dir);
    config.key =
        KeySource::Token { uri: uri.into(), module: module.clone().into(), pin_file: dir.join("pin") };

    let trust = Trust::new(Bundle::parse(root.certificate()).unwrap());
    let ca = SiteCa::load(&config, &trust, Some("s"), now).unwrap();
    let issuer = Issuer::new(ca, &config, Log::open(&config.audit, now).unwrap()).unwrap();
    let bundle = issuer.publish(&trust, now).unwrap();
    let identity = Identity {
        id: domain.member("/w").unwrap(),
        ttl: std::time::Duration::from_secs(3600),
        jwt_ttl: std::time::Duration::from_secs(300),
        dns_names: Vec::new(),
        hint: String::new(),
        federates_with: Vec::new(),
    };
    let workload = Requester::Workload { uid: 1, pid: 1 };
    let svid = issuer.issue(&identity, &workload, now).unwrap();
    let store = TrustStore::from(bundle);
    verify::verify(&svid.chain, &store, verify::Purpose::Client, now.into()).unwrap();
    let token = issuer.mint(&identity, &["db".into()], &workload, now).unwrap();
    jwt::validate(&token.token, "db", &store, now.into()).unwrap();
}

fn external(key: TokenKey) -> Key {
    Key::external(Arc::new(key)).unwrap()
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}
