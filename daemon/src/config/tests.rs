//! The configuration contract: what is accepted, and that each refusal says file, line, reason and remedy.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use super::*;

const KEY_A: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const KEY_B: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

fn parse_text(text: &str) -> Result<Config, Error> {
    parse(Path::new("/nonexistent/isthmusd.toml"), text)
}

/// Each problem as `LINE: reason (remedy)`.
fn problems(text: &str) -> Vec<String> {
    match parse_text(text) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(Error::Invalid { problems, .. }) => {
            problems.iter().map(|p| p.one_line().replace("/nonexistent/isthmusd.toml:", "")).collect()
        }
        Err(error) => panic!("{error}"),
    }
}

fn only_problem(text: &str) -> String {
    let all = problems(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.into_iter().next().unwrap()
}

#[test]
fn empty_file_is_a_valid_configuration() {
    let config = parse_text("").unwrap();
    assert_eq!(config.tunnel, None);
    assert_eq!(config.api.socket, Path::new("/run/isthmus/isthmusd.sock"));
}

#[test]
fn whole_example() {
    let config = parse_text(&format!(
        r#"
[node]
name = "gw1"
site = "aws-use1"
state_dir = "/nonexistent/state"
[tunnel]
interface = "isthmus0"
listen = 51820
addresses = ["10.99.0.1/24", "fd7a::1/64"]
mtu = 1420
[[tunnel.peer]]
name = "azure-gw1"
public_key = "{KEY_A}"
endpoint = "192.0.2.2:51820"
allowed_ips = ["10.99.0.2/32"]
persistent_keepalive = "25s"
[[tunnel.peer]]
name = "paris"
public_key = "{KEY_B}"
endpoint = "gw.paris.example:51820"
[bgp]
asn = 4200000001
hold_time = "9s"
graceful_restart = "120s"
announce = ["10.10.0.0/16"]
[[bgp.neighbor]]
name = "azure-gw1"
address = "10.99.0.2"
asn = 4200000002
import = "all"
export = "all"
hold_time = "30s"
max_prefixes = 1000
[fib]
[metrics]
"#
    ))
    .unwrap();
    let tunnel = config.tunnel.unwrap();
    assert_eq!(tunnel.private_key_file, Path::new("/nonexistent/state/tunnel.key"));
    assert_eq!(tunnel.private_key, None);
    assert_eq!(tunnel.peers[0].persistent_keepalive, Some(Duration::from_secs(25)));
    assert_eq!(tunnel.peers[1].endpoint, Some(tunnel::Endpoint::Name("gw.paris.example".into(), 51820)));
    let bgp = config.bgp.unwrap();
    assert_eq!(bgp.router_id.to_string(), "10.99.0.1", "taken from the overlay address");
    assert_eq!(bgp.neighbors[0].peer.hold_time, 30);
    assert_eq!(&**bgp.neighbors[0].peer.import.name(), "all");
    let fib = config.fib.unwrap();
    assert_eq!((fib.install, fib.table, fib.interface.as_deref()), (true, 254, Some("isthmus0")));
    assert_eq!(fib.stale_time, Duration::from_secs(120));
    assert_eq!(config.metrics.unwrap().listen.to_string(), "127.0.0.1:9587");
}

#[test]
fn ebgp_without_policy_denies_and_ibgp_does_not() {
    let config = parse_text(
        r#"
[bgp]
asn = 65001
router_id = "10.0.0.1"
neighbor = [{ name = "e", address = "10.0.0.2", asn = 65002 }, { name = "i", address = "10.0.0.3", asn = 65001 }]
"#,
    )
    .unwrap();
    let neighbors = config.bgp.unwrap().neighbors;
    let names =
        |peer: &isthmus_bgp::PeerConfig| [&peer.import, &peer.export].map(|policy| policy.name().to_string());
    assert_eq!(names(&neighbors[0].peer), ["none", "none"]);
    assert_eq!(names(&neighbors[1].peer), ["all", "all"]);
}

#[test]
fn unknown_key_names_the_likely_one() {
    assert_eq!(
        only_problem("[tunnel]\ninterfaces = \"x\""),
        "2: unknown key `interfaces` (did you mean `interface`?)"
    );
}

#[test]
fn unknown_key_with_no_likely_one_lists_all() {
    let problem = only_problem("[metrics]\nzzz = 1");
    assert_eq!(problem, "2: unknown key `zzz` (known here: listen)");
}

#[test]
fn broken_toml_is_a_problem_with_a_line() {
    let problem = only_problem("[node]\nname = ");
    assert!(problem.starts_with("2: "), "{problem}");
}

#[test]
fn bad_values_each_say_line_reason_and_remedy() {
    let base = "[tunnel]\n";
    let table = [
        ("addresses = [\"10.99.0.1/33\"]", "is not an address with a prefix length"),
        ("addresses = [\"fd7a::1/129\"]", "is not an address with a prefix length"),
        ("mtu = 1000", "this MTU is out of range"),
        ("mtu = -1", "this MTU is out of range"),
        ("mtu = 70000", "this MTU is out of range"),
        ("interface = \"much-too-long-a-name\"", "cannot be the name of an interface"),
        ("interface = \"a/b\"", "cannot be the name of an interface"),
        ("interface = \"\"", "cannot be the name of an interface"),
    ];
    for (line, reason) in table {
        let problem = only_problem(&format!("{base}{line}"));
        assert!(
            problem.starts_with("2: ") && problem.contains(reason) && problem.ends_with(')'),
            "{line}: {problem}"
        );
    }
}

#[test]
fn bad_peer_values() {
    let table = [
        (
            "allowed_ips = [\"10.20.5.1/16\"]",
            "10.20.5.1/16 has bits set behind its prefix length (write \"10.20.0.0/16\" for the network or \"10.20.5.1/32\" for the host)",
        ),
        ("endpoint = \"192.0.2.2\"", "is not an endpoint"),
        ("endpoint = \"192.0.2.300:51820\"", "is not an endpoint"),
        ("endpoint = \"gw.example:0\"", "is not an endpoint"),
        ("endpoint = \"0.0.0.0:51820\"", "is not an endpoint"),
        ("persistent_keepalive = \"25\"", "this is not a duration"),
        ("persistent_keepalive = \"0s\"", "this duration is out of range"),
        ("preshared_key_file = \"psk\"", "preshared key file /nonexistent/psk: there is no such file"),
    ];
    for (line, reason) in table {
        let problem =
            only_problem(&format!("[[tunnel.peer]]\nname = \"p\"\npublic_key = \"{KEY_A}\"\n{line}"));
        assert!(problem.starts_with("4: ") && problem.contains(reason), "{line}: {problem}");
    }
}

#[test]
fn duplicates_name_the_first_owner() {
    let text = format!(
        "[[tunnel.peer]]\nname = \"a\"\npublic_key = \"{KEY_A}\"\nallowed_ips = [\"10.0.0.0/8\"]\n\
         [[tunnel.peer]]\nname = \"b\"\npublic_key = \"{KEY_A}\"\nallowed_ips = [\"10.0.0.0/8\"]"
    );
    let found = problems(&text);
    assert!(found[0].starts_with("7: peer \"a\" has this public key already"), "{found:?}");
    assert!(found[1].starts_with("8: peer \"a\" owns this prefix already"), "{found:?}");
}

#[test]
fn several_problems_are_told_at_once() {
    let found = problems("[tunnel]\nmtu = 1\n[bgp]\nasn = 0\nannounce = [\"x\"]");
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn bad_bgp_values() {
    let base = "[bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n";
    let table = [
        ("hold_time = \"2s\"", "no BGP speaker takes this hold time"),
        ("hold_time = \"3500ms\"", "no BGP speaker takes this hold time"),
        ("listen = [\"179\"]", "this is not an address to listen on"),
        ("announce = [\"10.10.0.1/16\"]", "has bits set behind its prefix length"),
        (
            "neighbor = [{ name = \"n\", address = \"10.0.0.2/24\", asn = 1 }]",
            "this is not a neighbor's address",
        ),
        (
            "neighbor = [{ name = \"n\", address = \"10.0.0.2\", asn = 23456 }]",
            "cannot be an autonomous system's number",
        ),
        (
            "neighbor = [{ name = \"n\", address = \"10.0.0.2\", asn = 5, import = \"some\" }]",
            "there is no policy called \"some\"",
        ),
        (
            "neighbor = [{ name = \"n\", address = \"10.0.0.2\", asn = 5, bfd = { multiplier = 256 } }]",
            "this multiplier is out of range",
        ),
        (
            "neighbor = [{ name = \"n\", address = \"10.0.0.2\", asn = 5, bfd = { interval = \"5ms\" } }]",
            "this duration is out of range",
        ),
    ];
    for (line, reason) in table {
        let problem = only_problem(&format!("{base}{line}"));
        assert!(problem.starts_with("4: ") && problem.contains(reason), "{line}: {problem}");
    }
    assert!(only_problem("[bgp]\nasn = 65001").contains("has no router_id"));
}

#[test]
fn sections_not_served_are_refused_not_ignored() {
    assert!(
        only_problem("[dns]\nlisten = [\"10.99.0.1:53\"]").contains("[dns] is not served by this version")
    );
}

#[test]
fn one_address_in_two_spellings_is_one_neighbor() {
    let neighbors = "neighbor = [{ name = \"a\", address = \"fd00::2\", asn = 5 }, { name = \"b\", address = \"fd00:0::2\", asn = 5 }]";
    let problem = only_problem(&format!("[bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n{neighbors}"));
    assert!(problem.contains("neighbor \"a\" has this address already"), "{problem}");
}

#[test]
fn ipv4_in_ipv6_clothes_is_ipv4() {
    let text = format!(
        "[[tunnel.peer]]\nname = \"p\"\npublic_key = \"{KEY_A}\"\nendpoint = \"[::ffff:192.0.2.1]:51820\"\n[bgp]\nasn = 65001\n\
         router_id = \"10.0.0.1\"\nneighbor = [{{ name = \"n\", address = \"::ffff:10.0.0.2\", asn = 5 }}]"
    );
    let config = parse_text(&text).unwrap();
    let endpoint = config.tunnel.unwrap().peers[0].endpoint.clone();
    assert_eq!(endpoint, Some(tunnel::Endpoint::Address("192.0.2.1:51820".parse().unwrap())));
    assert_eq!(config.bgp.unwrap().neighbors[0].place.address.to_string(), "10.0.0.2");
}

#[test]
fn identity_needs_a_site_to_be_checked_against() {
    let problems = problems("[identity]\ntrust_bundle = \"x\"");
    assert!(problems[0].contains("this node's site is not known (add site to [node]"), "{problems:?}");
}

#[test]
fn workload_api_needs_an_issuer() {
    let problem = only_problem("[workload_api]\n");
    assert!(problem.contains("nobody to issue"), "{problem}");
}

#[test]
fn entries_are_checked() {
    let entry = |spiffe_id: &str, selector: &str| {
        let text = format!("[[workload_api.entry]]\nspiffe_id = \"{spiffe_id}\"\nselectors = [{selector}]");
        problems(&text).into_iter().filter(|p| !p.contains("nobody to issue")).collect::<Vec<_>>()
    };
    assert_eq!(entry("/ns/a", "\"unix:uid:0\""), Vec::<String>::new());
    assert_eq!(entry("/u/{unix:user}", "\"unix:group:adm\", \"unix:path:/usr/bin/a\""), Vec::<String>::new());
    for bad in [
        "ns/a",
        "/",
        "/a//b",
        "/a/../b",
        "/a/",
        "/a b",
        "/a%41",
        "",
        "/site/aws-use1/node/gw1",
        "/{unix:pid}",
        "/site/{unix:user}",
        "/{unix:user",
    ] {
        assert!(entry(bad, "\"unix:uid:0\"")[0].contains("is not the path of a SPIFFE ID"), "{bad}");
    }
    for bad in [
        "\"unix:uid\"",
        "\"unix:uid:-1\"",
        "\"k8s:namespace:x\"",
        "\"unix:uid:4294967296\"",
        "\"unix:path:bin/a\"",
    ] {
        assert!(entry("/a", bad)[0].contains("is not a selector"), "{bad}");
    }
    assert!(entry("/a", "")[0].contains("would match everyone"));
}

#[test]
fn entries_about_pods_need_somebody_who_knows_them() {
    let checked = |section: &str, entry: &str| {
        let text = format!("[workload_api]\n{section}\n[[workload_api.entry]]\n{entry}");
        problems(&text).into_iter().filter(|p| !p.contains("nobody to issue")).collect::<Vec<_>>()
    };
    let entries = [
        "spiffe_id = \"/a\"\nselectors = [\"unix:uid:0\", \"k8s:ns:x\"]",
        "spiffe_id = \"/ns/{k8s:ns}\"\nselectors = [\"unix:uid:0\"]",
    ];
    for entry in entries {
        assert!(checked("", entry)[0].contains("nobody is named who knows them"), "{entry}");
        assert_eq!(checked("[workload_api.kubernetes]\ninsecure = true", entry), Vec::<String>::new());
    }
    for (section, reason) in [
        ("", "how the kubelet is known"),
        ("insecure = true\nca_file = \"/etc/passwd\"", "how the kubelet is known"),
        ("insecure = true\nkubelet = \"https://10.0.0.1:10250\"", "how the kubelet is known"),
        ("insecure = true\nkubelet = \"https://localhost:10250\"", "how the kubelet is known"),
        ("insecure = true\nkubelet = \"http://127.0.0.1:10255\"", "not the address of a kubelet"),
        ("ca_file = \"/nonexistent\"", "there is no such file"),
        ("insecure = true\ntoken_file = \"/nonexistent\"", "there is no such file"),
        ("insecure = true\nclient_key = \"x.key\"", "a key its certificate"),
        ("insecure = true\nnode_name = \"a b\"", "not the name of a Kubernetes node"),
        ("insecure = true\nnode = \"a\"", "unknown key `node`"),
    ] {
        let found = checked(&format!("[workload_api.kubernetes]\n{section}"), entries[0]).join("\n");
        assert!(found.contains(reason), "{section}: {found}");
    }
}

#[test]
fn how_the_workload_api_is_served_is_checked() {
    let checked = |text: &str| {
        let text = format!("[workload_api]\n{text}\n");
        problems(&text).into_iter().filter(|p| !p.contains("nobody to issue")).collect::<Vec<_>>()
    };
    let good = "max_connections = 5\nmax_per_user = 2\n[workload_api.sds]\ndefault_svid_name = \"cert\"";
    assert_eq!(checked(good), Vec::<String>::new());
    for (bad, reason) in [
        ("max_connections = 0", "0 connections are not between"),
        ("max_per_user = 400001", "400001 connections are not between"),
        ("[workload_api.sds]\ndefault_bundle_name = \"\"", "is no name for a secret"),
        ("[workload_api.sds]\ndefault_bundle_name = \"default\"", "\"default\" is no name for a secret"),
        ("[workload_api.sds]\nname = \"a\"", "unknown key `name`"),
    ] {
        let found = checked(bad).join("\n");
        assert!(found.contains(reason), "{bad}: {found}");
    }
}

#[test]
fn hints_that_would_meet_are_refused() {
    let entries = |selectors: [&str; 2], hints: [&str; 2]| {
        let entry = |n: usize| {
            format!(
                "[[workload_api.entry]]\nspiffe_id = \"/{n}\"\nselectors = [{}]\nhint = \"{}\"\n",
                selectors[n], hints[n]
            )
        };
        let text = entry(0) + &entry(1);
        problems(&text).into_iter().filter(|p| !p.contains("nobody to issue")).collect::<Vec<_>>()
    };
    let (user, both) = ("\"unix:uid:1\"", "\"unix:gid:2\", \"unix:uid:1\"");
    for selectors in [[user, user], [user, both], [both, user]] {
        let found = entries(selectors, ["in", "in"]);
        assert!(found.len() == 1 && found[0].contains("the hint \"in\" is another entry's"), "{found:?}");
        assert_eq!(entries(selectors, ["in", "out"]), Vec::<String>::new());
    }
    // Perhaps nobody ever is in both.
    assert_eq!(entries([user, "\"unix:gid:2\""], ["in", "in"]), Vec::<String>::new());
}

/// Workload API section 5.2.1.
#[test]
fn a_hint_has_at_most_1024_bytes() {
    let found = |hint: &str| {
        let entry = "[[workload_api.entry]]\nspiffe_id = \"/a\"\nselectors = [\"unix:uid:1\"]\nhint = ";
        let all = problems(&format!("{entry}\"{hint}\"\n")).into_iter();
        all.filter(|p| !p.contains("nobody to issue")).collect::<Vec<_>>()
    };
    assert_eq!(found(&"a".repeat(1024)), Vec::<String>::new());
    // Bytes, not letters.
    assert_eq!(found(&"é".repeat(512)), Vec::<String>::new());
    for (hint, length) in [("a".repeat(1025), 1025), ("é".repeat(513), 1026), (String::new(), 0)] {
        let found = found(&hint);
        let says = format!("a hint has 1 to 1024 bytes, this one has {length}");
        assert!(found.len() == 1 && found[0].contains(&says), "{found:?}");
    }
}

#[test]
fn secret_files_must_be_private() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("isthmusd.toml");
    let key = dir.path().join("tunnel.key");
    fs::write(&key, format!("{KEY_A}\n")).unwrap();
    let text = "[tunnel]\nprivate_key_file = \"tunnel.key\"";

    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = parse(&config, text).unwrap_err().one_line();
    assert!(error.contains(":2: ") && error.contains("others can read it (mode 0640)"), "{error}");
    assert!(error.contains(&format!("chmod 600 {}", key.display())), "{error}");

    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let tunnel = parse(&config, text).unwrap().tunnel.unwrap();
    assert_eq!(tunnel.private_key.unwrap().expose(), &[1; 32]);

    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&key, Some(12345), None).unwrap();
        let error = parse(&config, text).unwrap_err().one_line();
        assert!(error.contains("user 12345 owns it"), "{error}");
        std::os::unix::fs::chown(&key, Some(0), None).unwrap();
    }

    fs::write(&key, "not a key").unwrap();
    assert!(parse(&config, text).unwrap_err().one_line().contains("does not hold a key"));
}

#[test]
fn what_is_no_text_file_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    for (path, reason) in [
        (fifo.as_path(), "not a regular file"),
        (Path::new("/dev/zero"), "not a regular file"),
        (dir.path(), "not a regular file"),
        (Path::new("/nonexistent/x"), "No such file"),
    ] {
        let error = load(path).unwrap_err().to_string();
        assert!(error.contains(reason), "{}: {error}", path.display());
    }
    let latin = dir.path().join("latin.toml");
    fs::write(&latin, b"# caf\xe9").unwrap();
    assert!(load(&latin).unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn a_problem_that_repeats_is_counted_not_listed() {
    let entry = "[[tunnel.peer]]\nname = \"a b\"\npublic_key = \"x\"\n";
    let error = parse_text(&entry.repeat(1000)).unwrap_err();
    let Error::Invalid { problems, more, .. } = &error else { panic!("{error}") };
    assert_eq!(problems.len(), PROBLEM_LIMIT);
    assert!(*more > 1000, "{more}");
    assert!(error.to_string().contains("problems, the first 20 of them shown"), "{error}");
}

#[test]
fn socket_paths_must_fit_the_kernel() {
    let text = format!("[api]\nsocket = \"/{}\"", "x".repeat(107));
    assert!(only_problem(&text).starts_with("2: this path is too long for a unix socket"));
}

#[test]
fn report_shows_file_line_and_help() {
    let error = parse_text("[tunnel]\nmtu = 1").unwrap_err();
    let mut report = String::new();
    miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
        .render_report(&mut report, &error)
        .unwrap();
    assert!(report.contains("/nonexistent/isthmusd.toml:2:7"), "{report}");
    assert!(report.contains("this MTU is out of range") && report.contains("help: use 1280"), "{report}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = parse_text(&text);
    }

    #[test]
    fn no_value_panics(key in "(mtu|interface|listen|addresses|peer|private_key_file)", value in "[\\PC\\[\\]{}\"0-9]{0,40}") {
        let _ = parse_text(&format!("[tunnel]\n{key} = {value}"));
    }
}

#[test]
fn peers_of_the_fabric_are_issuers_named_once() {
    let checked = |peers: &str| {
        let text = format!("[fabric]\npeers = [{peers}]");
        problems(&text).into_iter().filter(|p| !p.contains("no use without an identity")).collect::<Vec<_>>()
    };
    for good in ["", "\"192.0.2.1:51820\"", "\"https://issuer.example:51820/\", \"[2001:db8::1]:51820\""] {
        assert_eq!(checked(good), Vec::<String>::new(), "{good}");
    }
    for bad in
        ["http://a.example:1", "a.example", "a.example:0", "https://a.example", "https://a/b:1", "a b:1", ""]
    {
        let found = checked(&format!("\"{bad}\"")).join("\n");
        assert!(found.contains("is not where an issuer listens (write ADDRESS:PORT"), "{bad}: {found}");
    }
    let twice = checked("\"a.example:1\", \"https://a.example:1\"").join("\n");
    assert!(twice.contains("the peer \"a.example:1\" is named twice"), "{twice}");
    let many: Vec<String> = (0..65).map(|n| format!("\"a{n}.example:1\"")).collect();
    assert!(checked(&many.join(", ")).join("\n").contains("more than 64 issuers"));
}
