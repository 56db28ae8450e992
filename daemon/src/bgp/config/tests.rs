//! Neighbors, presets and policies as a file has them: what is accepted, what is refused, and with which words.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use isthmus_bgp::{
    Families, Family, NextHopMode,
    dynamic::Template,
    fsm::AsnSet,
    policy::{Action, MedChange, NextHopChange, PrefixPattern},
    wire::{Community, Origin, Role},
};

use super::*;
use crate::config::{self, Error};

const HEAD: &str = "[bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n";

fn parse(text: &str) -> Result<(Config, Vec<String>), Vec<String>> {
    parse_at(Path::new("/nonexistent/c.toml"), text)
}

fn parse_at(path: &Path, text: &str) -> Result<(Config, Vec<String>), Vec<String>> {
    match config::parse(path, &format!("{HEAD}{text}")) {
        Ok(config) => Ok((config.bgp.unwrap(), config.warnings)),
        Err(Error::Invalid { problems, .. }) => Err(problems.iter().map(config::Problem::one_line).collect()),
        Err(error) => panic!("{error}"),
    }
}

/// A neighbor "n" with these keys.
fn neighbor(asn: u32, keys: &str) -> String {
    format!("[[bgp.neighbor]]\nname = \"n\"\naddress = \"10.0.0.2\"\nasn = {asn}\n{keys}\n")
}

fn good(asn: u32, keys: &str) -> NeighborConfig {
    let (mut config, _) =
        parse(&neighbor(asn, keys)).unwrap_or_else(|problems| panic!("{keys}: {problems:?}"));
    config.neighbors.remove(0)
}

#[test]
fn every_key_of_a_neighbor() {
    let external = good(
        65002,
        r#"
port = 1179
passive = true
local_address = "10.0.0.1"
multihop = 3
families = ["ipv4"]
max_prefixes = 1000
max_prefixes_out = 50
role = "customer"
strict_role = true
next_hop_self = true
add_path = "receive"
extended_next_hop = true
graceful_restart = "helper"
allow_default = true
enforce_first_as = false
remove_private_as = true
shutdown = "maintenance until 18:00"
"#,
    );
    let (peer, v4) = (external.peer, Families::from_iter([Family::Ipv4Unicast]));
    assert_eq!((peer.port, peer.passive, peer.families), (1179, true, v4));
    assert_eq!(external.transport.local_address, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(external.transport.reach.ttl(), 3);
    assert_eq!((peer.guards.max_prefixes, peer.max_prefixes_out), (Some(1000), Some(50)));
    assert_eq!((peer.offer.role, peer.offer.strict_role), (Some(Role::Customer), true));
    assert_eq!(peer.next_hop, NextHopMode::SelfAddress);
    assert_eq!((peer.offer.add_path.receive, peer.offer.add_path.send), (v4, Families::NONE));
    assert!(peer.offer.extended_next_hop && peer.guards.allow_default && peer.remove_private_as);
    assert!(!peer.guards.enforce_first_as);
    assert_eq!(external.graceful_restart, GracefulRestart::Helper);
    assert_eq!(peer.shutdown.as_deref(), Some("maintenance until 18:00"));
    let internal = good(65001, "reflector_client = true\nttl_security = 2");
    assert!(internal.peer.route_reflector_client);
    assert_eq!(internal.transport.reach.lowest_ttl(), Some(254));
}

#[test]
fn defaults_by_kind() {
    let (external, internal) = (good(65002, ""), good(65001, ""));
    assert_eq!((external.transport.reach.ttl(), internal.transport.reach.ttl()), (1, 255));
    assert_eq!((external.peer.hold_time, external.graceful_restart), (9, GracefulRestart::Full));
    assert!(external.peer.guards.enforce_first_as && !external.peer.guards.allow_default);
    assert_eq!(good(65002, "ttl_security = false").transport.reach.ttl(), 1);
}

#[test]
fn what_is_refused_and_how() {
    let table = [
        (65001, "role = \"peer\"", "role is for external neighbors (eBGP)"),
        (65001, "multihop = 3", "multihop is for external neighbors (eBGP)"),
        (65001, "remove_private_as = true", "remove_private_as is for external"),
        (65001, "enforce_first_as = true", "enforce_first_as is for external"),
        (65002, "reflector_client = true", "reflector_client is for internal"),
        (65002, "strict_role = true", "strict_role needs a role"),
        (65002, "role = \"clint\"", "\"clint\" is no role"),
        (65002, "multihop = 3\nttl_security = true", "say two things about the same TTL"),
        (65002, "multihop = 1", "this is no number of hops"),
        (65002, "multihop = 256", "this is no number of hops"),
        (65002, "ttl_security = 0", "does not say how far away"),
        (65002, "ttl_security = \"yes\"", "does not say how far away"),
        (65002, "local_address = \"fd00::1\"", "address of the other family"),
        (65002, "local_address = \"eth0\"", "not an address to dial from"),
        (65002, "families = []", "a session without a family carries nothing"),
        (65002, "families = [\"ipv5\"]", "this is no address family"),
        (65002, "max_prefixes = 0", "this is no limit of prefixes"),
        (65002, "max_prefixes_out = -1", "this is no limit of prefixes"),
        (65002, "add_path = \"yes\"", "no direction for add-path"),
        (65002, "graceful_restart = \"yes\"", "no part in graceful restart"),
        (65002, "shutdown = \"two\\nlines\"", "the neighbor cannot be told this"),
        (65002, "password_file = \"/nonexistent/password\"", "password_file /nonexistent/password"),
        (65002, "preset = \"aws-tgv\"", "did you mean \"aws-tgw\"?"),
        (65002, "import = \"al\"", "did you mean \"all\"?"),
        (65002, "pasive = true", "did you mean `passive`?"),
    ];
    for (asn, keys, reason) in table {
        let problems = parse(&neighbor(asn, keys)).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(reason), "{keys}: {problems:?}");
    }
    let long = format!("shutdown = \"{}\"", "x".repeat(256));
    assert!(parse(&neighbor(65002, &long)).is_err());
}

#[test]
fn the_section_itself() {
    let text = "cluster_id = \"10.0.0.9\"\nmultipath = { maximum = 4, relax_as_path = false }\n";
    let (config, _) = parse(text).unwrap();
    assert_eq!(config.cluster_id, Some(Ipv4Addr::new(10, 0, 0, 9)));
    assert_eq!(config.multipath, Multipath { maximum: 4, relax_as_path: false });
    let table = [
        ("multipath = { maximum = 0 }", "this is no number of paths"),
        ("multipath = { maximum = 65 }", "this is no number of paths"),
        ("cluster_id = \"0.0.0.0\"", "this is not a cluster ID"),
        ("graceful_restart = \"2h\"", "this duration is out of range"),
    ];
    for (line, reason) in table {
        let problems = parse(line).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(reason), "{line}: {problems:?}");
    }
    let off = format!("graceful_restart = \"0s\"\n{}", neighbor(65002, ""));
    assert_eq!(parse(&off).unwrap().0.neighbors[0].graceful_restart, GracefulRestart::Helper);
    let on = format!("graceful_restart = \"0s\"\n{}", neighbor(65002, "graceful_restart = true"));
    assert!(parse(&on).unwrap_err()[0].contains("nothing is kept here"));
}

#[test]
fn one_link_local_address_on_two_interfaces_is_two_neighbors() {
    let two = |second: &str, keys: &str| {
        format!(
            "[[bgp.neighbor]]\nname = \"a\"\naddress = \"fe80::1%eth0\"\nasn = 5\n{keys}\n\
             [[bgp.neighbor]]\nname = \"b\"\naddress = \"{second}\"\nasn = 5\n"
        )
    };
    let (config, _) = parse(&two("fe80::1%eth1", "")).unwrap();
    let interfaces: Vec<_> = config.neighbors.iter().map(|n| n.place.interface.as_deref()).collect();
    assert_eq!(interfaces, [Some("eth0"), Some("eth1")]);
    assert!(parse(&two("fe80:0::1%eth0", "")).unwrap_err()[0].contains("has this address already"));
    let (_dir, path) = password("secret\n", 0o600);
    let problems = parse_at(&path, &two("fe80::1%eth1", "password_file = \"password\"")).unwrap_err();
    assert!(problems[0].contains("one address on two interfaces"), "{problems:?}");
}

/// A neighbor "pods" by prefix, with these keys.
fn pods(keys: &str) -> String {
    format!("[[bgp.neighbor]]\nname = \"pods\"\nprefix = \"10.1.0.0/24\"\n{keys}\n")
}

#[test]
fn neighbors_by_prefix() {
    let of = |keys: &str| parse(&pods(keys)).unwrap_or_else(|all| panic!("{all:?}")).0.templates.remove(0);
    let plain = of("asn = 65010");
    let expected = Template {
        name: "pods".into(),
        prefix: "10.1.0.0/24".parse().unwrap(),
        asns: AsnSet::from(65010),
        limit: 100,
        linger: Duration::from_secs(300),
    };
    assert_eq!(plain.template, expected);
    assert!(plain.settings.peer.passive && plain.settings.transport.reach.ttl() == 1);
    let full = of(
        "asns = [\"65010-65020\", 65200]\nlimit = 1000\nlinger = \"0s\"\npassive = true\nimport = \"all\"",
    );
    assert_eq!(full.template.asns, AsnSet::new([65010..=65020, 65200..=65200]));
    assert_eq!((full.template.limit, full.template.linger), (1000, Duration::ZERO));
    assert_eq!(&**full.settings.peer.import.name(), "all");
    let internal = of("asn = 65001\nreflector_client = true");
    assert!(internal.settings.peer.route_reflector_client && internal.settings.transport.reach.ttl() == 255);
}

#[test]
fn what_does_not_go_with_a_prefix() {
    let table = [
        ("asn = 5\naddress = \"10.1.0.2\"", "address does not go with prefix"),
        ("asn = 5\nport = 1179", "port does not go with prefix"),
        ("asn = 5\nlocal_address = \"10.1.0.1\"", "local_address does not go with prefix"),
        ("asn = 5\npassive = false", "passive = false does not go with prefix"),
        ("asn = 5\nbfd = {}", "bfd does not go with prefix"),
        ("asn = 5\nlimit = 0", "this is no limit of neighbors"),
        ("asn = 5\nlimit = 1001", "this is no limit of neighbors"),
        ("asn = 5\nlinger = \"2h\"", "this duration is out of range"),
        ("", "nothing says which AS numbers"),
        ("asn = 5\nasns = [6]", "say the same thing twice"),
        ("asns = []", "nobody has no AS number"),
        ("asns = [0]", "these are no AS numbers"),
        ("asns = [\"7-5\"]", "these are no AS numbers"),
        ("asns = [\"5-4294967295\"]", "these are no AS numbers"),
        ("asns = [\"5-\"]", "these are no AS numbers"),
        ("asns = [\"65000-65100\"]", "our own AS number is among those of others"),
        ("asns = [65001, 65002]", "our own AS number is among those of others"),
    ];
    for (keys, reason) in table {
        let problems = parse(&pods(keys)).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(reason), "{keys}: {problems:?}");
    }
    for prefix in ["10.1.0.1/24", "224.0.0.0/8", "ff00::/8", "::ffff:10.1.0.0/120", "10.1.0.0"] {
        let problems = parse(&pods("asn = 5").replace("10.1.0.0/24", prefix)).unwrap_err();
        assert_eq!(problems.len(), 1, "{prefix}: {problems:?}");
    }
    for (keys, reason) in
        [("asns = [5]", "asns is for"), ("limit = 5", "limit is for"), ("linger = \"5s\"", "linger is for")]
    {
        let problems = parse(&neighbor(65002, keys)).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(reason), "{keys}: {problems:?}");
    }
    let nowhere = parse("[[bgp.neighbor]]\nname = \"n\"\n").unwrap_err();
    assert!(nowhere.len() == 2 && nowhere[0].contains("where this neighbor is"), "{nowhere:?}");
}

#[test]
fn prefixes_beside_each_other_and_beside_addresses() {
    let two = |first: &str, second: &str| {
        parse(&[pods("asn = 5"), pods("asn = 5").replace(first, second)].concat())
    };
    assert!(two("pods", "nodes").unwrap_err()[0].contains("\"pods\" has this prefix already"));
    assert!(two("10.1.0.0/24", "10.2.0.0/24").unwrap_err()[0].contains("a second neighbor is called"));
    let called = |name: &str| {
        let other = neighbor(65002, "").replace("\"n\"", &format!("\"{name}\""));
        parse(&[pods("asn = 5"), other].concat())
    };
    assert!(called("pods-10.1.0.9").unwrap_err()[0].contains("is called as one that comes by \"pods\""));
    assert!(called("pods-10.9.0.9").is_ok() && called("pods-1").is_ok());

    let wide = pods("asn = 65002").replace("pods", "wide").replace("10.1.0.0/24", "10.0.0.0/8");
    let (config, _) = parse(&[neighbor(65002, ""), wide, pods("asn = 65002")].concat()).unwrap();
    let at = |address: &str| {
        let place = Place { address: address.parse().unwrap(), interface: None };
        config
            .neighbor_at(&place, None)
            .map(|found| (found.peer.name.to_string(), found.peer.address == place.address))
    };
    assert_eq!(at("10.0.0.2"), Some(("n".into(), true)));
    assert_eq!(at("10.1.0.2"), Some(("pods-10.1.0.2".into(), true)));
    assert_eq!(at("10.2.0.2"), Some(("wide-10.2.0.2".into(), true)));
    assert_eq!((at("11.0.0.2"), at("fd00::2")), (None, None));
    let by = |name: &str| config.template_of(name).map(|found| found.template.name.to_string());
    assert_eq!(by("pods-10.1.0.2"), Some("pods".into()));
    assert_eq!((by("n"), by("pods"), by("pods-10.9.0.2"), by("pods-x")), (None, None, None, None));
}

#[test]
fn the_password_of_a_prefix_is_everybodys_in_it() {
    let (_dir, path) = password("secret\n", 0o600);
    let guarded = pods("asn = 65002\npassword_file = \"password\"").replace("10.1.0.0/24", "10.0.0.0/8");
    let with = |other: String| parse_at(&path, &[guarded.clone(), other].concat());
    assert!(
        with(neighbor(65002, "")).unwrap_err()[0].contains("whose password the kernel demands of it too")
    );
    assert!(with(neighbor(65002, "password_file = \"password\"")).is_ok());
    let within = pods("asn = 65002").replace("pods", "nodes");
    assert!(with(within.clone()).unwrap_err()[0].contains("\"nodes\" is within the prefix of \"pods\""));
    assert!(with(within.replace("10.1.0.0/24", "0.0.0.0/0")).is_ok());
}

/// A directory with a file "password", and where the configuration beside it would be.
fn password(text: &str, mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("password"), text).unwrap();
    fs::set_permissions(dir.path().join("password"), fs::Permissions::from_mode(mode)).unwrap();
    let path = dir.path().join("c.toml");
    (dir, path)
}

#[test]
fn passwords_come_from_private_files() {
    let of = |text: &str, mode: u32| {
        let (_dir, path) = password(text, mode);
        let parsed = parse_at(&path, &neighbor(65002, "password_file = \"password\""));
        parsed.map(|(mut config, _)| config.neighbors.remove(0).transport.password)
    };
    assert_eq!(of("one two\r\nthree\n", 0o600).unwrap(), Password::new(b"one two"));
    assert!(of("secret", 0o644).unwrap_err()[0].contains("others can read it"));
    assert!(of("\n", 0o600).unwrap_err()[0].contains("1 to 80 bytes"));
    let long = of(&"x".repeat(81), 0o600).unwrap_err();
    assert!(long[0].contains("1 to 80 bytes") && !long[0].contains("xx"), "{long:?}");
}

#[test]
fn a_preset_fills_what_is_not_written() {
    let azure = good(65515, "preset = \"azure-vpn-gateway\"");
    assert_eq!((azure.peer.hold_time, azure.peer.max_prefixes_out), (180, Some(4000)));
    assert_eq!(azure.peer.families, Families::from_iter([Family::Ipv4Unicast]));
    assert_eq!((azure.transport.reach.ttl(), azure.warnings.len()), (255, 0));
    let tgw = good(64512, "preset = \"aws-tgw\"\nhold_time = \"12s\"\nmultihop = 5\nmax_prefixes = 7");
    assert_eq!((tgw.peer.hold_time, tgw.transport.reach.ttl()), (12, 5));
    assert_eq!((tgw.peer.guards.max_prefixes, tgw.preset), (Some(7), Some("aws-tgw")));
}

#[test]
fn what_fights_a_preset_warns_with_its_place() {
    let (config, warnings) =
        parse(&neighbor(65515, "preset = \"azure-vpn-gateway\"\nhold_time = \"30s\"")).unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("/nonexistent/c.toml:8: azure-vpn-gateway: "), "{warnings:?}");
    let of_neighbor = &config.neighbors[0].warnings;
    assert!(
        of_neighbor[0].contains("every 60 s") && of_neighbor[0].contains("(remove hold_time"),
        "{of_neighbor:?}"
    );
    let (_, warnings) = parse(&neighbor(65002, "hold_time = \"0s\"")).unwrap();
    assert!(warnings[0].contains("only TCP notices"), "{warnings:?}");
}

fn policy(rules: &str) -> String {
    format!("{}[[bgp.policy]]\nname = \"p\"\nrules = [{rules}]\n", neighbor(65002, "import = \"p\""))
}

#[test]
fn every_key_of_a_rule() {
    let (config, warnings) = parse(&policy(
        r#"
{ prefix = "10.20.0.0/16", le = 24, action = "accept", local_pref = 200 },
{ prefixes = ["10.0.0.0/8 ge 16 le 24", "fd00::/8 le 64"], family = "ipv4", neighbors = ["n"], originated = false,
  next_hops = ["10.0.0.0/24", "192.0.2.1"], origin = "egp", as_path = ["65002 * 65010"], as_path_contains = [7],
  origin_as = [65010], neighbor_as = [65002], as_path_length = "1-3", communities = ["65002:*"],
  all_communities = ["no-export"], large_communities = ["65002:*:1"], all_large_communities = ["1:2:3"], action = "next",
  med = "+50", prepend = 2, prepend_as = 65001, add_communities = ["65001:1"], remove_communities = ["*:*"],
  add_large_communities = ["1:2:3"], remove_large_communities = ["1:*:*"], next_hop = "self" },
{ as_path_length = 0, med = "remove", next_hop = "10.0.0.9", action = "accept" },
{ action = "reject" },
"#,
    ))
    .unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let policy = &config.neighbors[0].peer.import;
    let [first, second, third, last] = policy.rules() else { panic!("{policy:?}") };
    let net = |text: &str| text.parse().unwrap();
    assert_eq!(first.condition.prefixes, [PrefixPattern::new(net("10.20.0.0/16"), 16, 24).unwrap()]);
    assert_eq!((first.change.local_pref, first.action), (Some(200), Action::Accept));
    let condition = &second.condition;
    let prefixes = [("10.0.0.0/8", 16, 24), ("fd00::/8", 8, 64)];
    assert_eq!(
        condition.prefixes,
        prefixes.map(|(prefix, ge, le)| PrefixPattern::new(net(prefix), ge, le).unwrap())
    );
    assert_eq!((condition.family, condition.originated), (Some(Family::Ipv4Unicast), Some(false)));
    assert_eq!((condition.origin, condition.next_hops.len()), (Some(Origin::Egp), 2));
    assert_eq!((&condition.as_path.contains[..], condition.as_path.length.clone()), (&[7][..], Some(1..=3)));
    assert_eq!(
        (&condition.as_path.origin[..], &condition.as_path.neighbor[..]),
        (&[65010][..], &[65002][..])
    );
    assert_eq!((condition.as_path.patterns.len(), condition.neighbors.len()), (1, 1));
    assert_eq!((condition.communities.any.len(), condition.communities.all.len()), (1, 1));
    assert_eq!((condition.large_communities.any.len(), condition.large_communities.all.len()), (1, 1));
    let change = &second.change;
    assert_eq!((change.med, change.prepend.unwrap().count), (Some(MedChange::Add(50)), 2));
    assert_eq!(change.prepend.unwrap().asn, Some(65001));
    assert_eq!(change.communities.add, [Community(65001 << 16 | 1)]);
    assert_eq!((change.communities.remove.len(), change.large_communities.add.len()), (1, 1));
    assert_eq!((change.next_hop, second.action), (Some(NextHopChange::SelfAddress), Action::Next));
    assert_eq!(
        (third.change.med, third.condition.as_path.length.clone()),
        (Some(MedChange::Remove), Some(0..=0))
    );
    assert_eq!(last.action, Action::Reject);
}

#[test]
fn rules_that_are_refused() {
    let table = [
        ("{ action = \"permit\" }", "this is no action"),
        ("{ action = \"reject\", local_pref = 1 }", "changes routes and then rejects them"),
        ("{ prefix = \"10.0.0.0/8\", ge = 4, action = \"accept\" }", "no prefix within 10.0.0.0/8"),
        ("{ prefix = \"10.0.0.1/8\", action = \"accept\" }", "bits set behind"),
        ("{ le = 24, action = \"accept\" }", "ge and le are about prefix"),
        ("{ prefixes = [\"10.0.0.0/8 lt 24\"], action = \"accept\" }", "describes no prefixes"),
        ("{ prefixes = [\"10.0.0.0/8 le 33\"], action = \"accept\" }", "no prefix within"),
        ("{ neighbors = [\"m\"], action = \"accept\" }", "there is no neighbor called \"m\""),
        ("{ origin = \"x\", action = \"accept\" }", "this is no ORIGIN"),
        ("{ family = \"x\", action = \"accept\" }", "no address family"),
        ("{ as_path = [\"65001 x\"], action = \"accept\" }", "is no AS number"),
        ("{ as_path_length = \"3-1\", action = \"accept\" }", "no length of a path"),
        ("{ origin_as = [0], action = \"accept\" }", "out of range"),
        ("{ communities = [\"x\"], action = \"accept\" }", "is not a community"),
        ("{ add_communities = [\"65001:*\"], action = \"accept\" }", "is not a community"),
        ("{ med = \"50\", action = \"accept\" }", "no change of a MED"),
        ("{ med = -1, action = \"accept\" }", "no change of a MED"),
        ("{ prepend = 33, action = \"accept\" }", "out of range"),
        ("{ prepend_as = 5, action = \"accept\" }", "nothing how often"),
        ("{ next_hop = \"me\", action = \"accept\" }", "this is no next hop"),
        ("{ local_pref = 4294967296, action = \"accept\" }", "out of range"),
        ("{ comunities = [], action = \"accept\" }", "did you mean `communities`?"),
        ("{ prefix = \"10.0.0.0/8\" }", "missing field `action`"),
    ];
    for (rule, reason) in table {
        let problems = parse(&policy(rule)).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(reason), "{rule}: {problems:?}");
    }
}

#[test]
fn names_of_policies() {
    let named = |name: &str| format!("[[bgp.policy]]\nname = \"{name}\"\nrules = []\n");
    assert!(parse(&named("all")).unwrap_err()[0].contains("\"all\" is built in"));
    assert!(
        parse(&[named("p"), named("p")].concat()).unwrap_err()[0].contains("a second policy is called \"p\"")
    );
    let (_, warnings) = parse(&named("p")).unwrap();
    assert!(warnings[0].contains("no neighbor uses the policy \"p\""), "{warnings:?}");
    let used = neighbor(65002, "export = \"from-azur\"") + &named("from-azure");
    assert!(parse(&used).unwrap_err()[0].contains("did you mean \"from-azure\"?"));
    let rules = "{ action = \"accept\" },".repeat(1001);
    assert!(parse(&policy(&rules)).unwrap_err()[0].contains("too large: 1001 rules"));
}

/// The TOML blocks of a page below docs/.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs").join(page);
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.collect()
}

#[test]
fn the_page_on_cloud_routers_is_accepted_without_a_warning() {
    let blocks = blocks("how-to/cloud-routers.md");
    let mut presets = Vec::new();
    for block in &blocks {
        let config = config::parse(Path::new("/nonexistent/c.toml"), block);
        let config = config.unwrap_or_else(|error| panic!("{block}: {}", error.one_line()));
        assert_eq!(config.warnings, [] as [String; 0], "{block}");
        presets.extend(config.bgp.unwrap().neighbors.iter().filter_map(|neighbor| neighbor.preset));
    }
    presets.dedup();
    assert_eq!(presets, preset::PRESETS.map(|preset| preset.name), "each preset has its block");
}

#[test]
fn the_example_on_the_page_of_policies_works() {
    let [block] = &blocks("reference/bgp-policy.md")[..] else { panic!("one block") };
    let (config, _) = parse(&(neighbor(65002, "import = \"from-azure\"") + block)).unwrap();
    assert_eq!(config.neighbors[0].peer.import.rules().len(), 3);
}
