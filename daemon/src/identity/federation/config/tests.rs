use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;
use crate::config::{Config, Error, parse};

const NODE: &str = "[node]\nsite = \"s\"\n[identity]\ntrust_bundle = \"a\"\nsvid = \"a\"\nkey = \"k\"\n";

fn read(text: &str) -> Result<Config, Error> {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "k"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    fs::set_permissions(dir.path().join("k"), fs::Permissions::from_mode(0o600)).unwrap();
    parse(&dir.path().join("isthmusd.toml"), &format!("{NODE}{text}"))
}

fn problem(text: &str) -> String {
    read(text).unwrap_err().one_line()
}

#[test]
fn the_whole_section() {
    let config = read(
        r#"[federation]
listen = "[::]:8443"
profile = "https_web"
certificate = "a"
key = "k"
path = "/bundle.json"
refresh_hint = "1m"
[[federation.trust_domain]]
name = "web.example"
url = "https://web.example/bundle"
profile = "https_web"
[[federation.trust_domain]]
name = "spire.example"
url = "https://192.0.2.1:8443"
profile = "https_spiffe"
endpoint_spiffe_id = "spiffe://spire.example/spire/server"
bootstrap_bundle = "a"
"#,
    );
    let federation = config.unwrap().federation.unwrap();
    assert_eq!(federation.state_dir, PathBuf::from("/var/lib/isthmus/federation"));
    let endpoint = federation.endpoint.unwrap();
    assert!(matches!(endpoint.proof, EndpointProof::Web { .. }));
    assert_eq!((endpoint.path.as_str(), endpoint.refresh_hint), ("/bundle.json", Duration::from_secs(60)));
    let [web, spire] = federation.domains.as_slice() else { panic!("two") };
    assert_eq!((web.trust_domain.as_str(), &web.profile), ("web.example", &Profile::Web { ca_file: None }));
    let Profile::Spiffe { endpoint_id, .. } = &spire.profile else { panic!("https_spiffe") };
    assert_eq!(endpoint_id.to_string(), "spiffe://spire.example/spire/server");
    let small = read("[federation]\nlisten = \"127.0.0.1:1\"\nprofile = \"https_spiffe\"\n").unwrap();
    let endpoint = small.federation.unwrap().endpoint.unwrap();
    assert_eq!((endpoint.proof, endpoint.path.as_str()), (EndpointProof::Spiffe, "/"));
    assert_eq!(endpoint.refresh_hint, DEFAULT_REFRESH);
}

#[test]
fn what_is_wrong_is_named() {
    for (lines, why) in [
        ("profile = \"https_web\"", "there is none"),
        ("listen = \"8443\"\nprofile = \"https_spiffe\"", "address to listen on"),
        ("listen = \"[::]:1\"", "needs a profile"),
        ("listen = \"[::]:1\"\nprofile = \"https\"", "needs a profile"),
        ("listen = \"[::]:1\"\nprofile = \"https_web\"", "needs certificate and key"),
        (
            "listen = \"[::]:1\"\nprofile = \"https_web\"\ncertificate = \"a\"\nkey = \"a\"",
            "others can read it",
        ),
        ("listen = \"[::]:1\"\nprofile = \"https_spiffe\"\ncertificate = \"a\"", "no certificate"),
        ("listen = \"[::]:1\"\nprofile = \"https_spiffe\"\npath = \"x\"", "path of a URL"),
        ("listen = \"[::]:1\"\nprofile = \"https_spiffe\"\npath = \"/x?y\"", "path of a URL"),
        ("listen = \"[::]:1\"\nprofile = \"https_spiffe\"\nrefresh_hint = \"1s\"", "out of range"),
    ] {
        let found = problem(&format!("[federation]\n{lines}\n"));
        assert!(found.contains(why), "{lines}: {found}");
    }
    let good = [("name", "p.example"), ("url", "https://p.example/"), ("profile", "https_web")];
    for (changes, why) in [
        (&[("name", "P.example")] as &[_], "not a trust domain"),
        (&[("url", "http://p.example/")], "not https"),
        (&[("url", "https://u:p@p.example/")], "user information"),
        (&[("url", "p.example")], "URL of a bundle endpoint"),
        (&[("profile", "spiffe")], "not a profile"),
        (&[("ca_file", "missing")], "no such file"),
        (&[("endpoint_spiffe_id", "spiffe://p.example/e")], "belongs to profile https_spiffe"),
        (&[("profile", "https_spiffe")], "must know whom"),
        (&[("profile", "https_spiffe"), ("ca_file", "a")], "belongs to profile https_web"),
        (
            &[
                ("profile", "https_spiffe"),
                ("endpoint_spiffe_id", "spiffe://p.example"),
                ("bootstrap_bundle", "a"),
            ],
            "SPIFFE ID of an endpoint",
        ),
        (
            &[
                ("profile", "https_spiffe"),
                ("endpoint_spiffe_id", "spiffe://p.example/e"),
                ("bootstrap_bundle", "b"),
            ],
            "bootstrap bundle",
        ),
    ] {
        let kept = good.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let lines: String =
            kept.chain(changes).map(|(name, value)| format!("{name} = {value:?}\n")).collect();
        let found = problem(&format!("[[federation.trust_domain]]\n{lines}"));
        assert!(found.contains(why), "{lines}: {found}");
    }
    let domain = "[[federation.trust_domain]]\nname = \"p\"\nurl = \"https://p/\"\nprofile = \"https_web\"\n";
    assert!(problem(&domain.repeat(2)).contains("there twice"));
    let alone = parse(std::path::Path::new("/nonexistent/c.toml"), domain).unwrap_err().one_line();
    assert!(alone.contains("which trust domain is ours"), "{alone}");
}
