//! Configurations and certificates that are refused: with the file, the reason and the remedy, and nothing started.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use isthmus_lab::{
    bins::Bins,
    files::write_secret,
    mesh::{Family, Mesh, bgp, neighbor, node_section, peer, public_key},
    netns::Netns,
    node::Node,
    pki::{Pki, identity_config, issuer_config},
    sandbox,
};
use time::{Duration, OffsetDateTime};

/// What a daemon that does not start says, and how it ends.
fn refusal(node: &mut Node, config: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let _ = fs::remove_file(node.log());
    node.write_config(config).unwrap();
    node.restart_with(|command| _ = command.args(arguments)).unwrap();
    let status = node.wait_end().unwrap();
    // A long message is broken into lines with a margin.
    let words = node.log_text();
    let words = words.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    (status.code(), words)
}

#[test]
fn a_bad_configuration_is_refused_with_its_line() {
    sandbox::run_with_bins("refusals::a_bad_configuration_is_refused_with_its_line", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        let good =
            mesh.base(1) + &peer(2, Some(Family::V4)) + &peer(3, None) + &bgp(65001, &["10.10.0.0/16"]);
        let good = good + &neighbor(2, 65002);
        let node = mesh.node_mut(1);
        let open = node.dir().join("psk");
        fs::write(&open, "AAAA\n").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        let chmod = format!("chmod 600 {}", open.display());
        let own_key = fs::read_to_string(node.state_dir().join("tunnel.key")).unwrap();
        let with = |line: &str| good.replacen("allowed_ips", &format!("{line}\nallowed_ips"), 1);
        let cases = [
            (
                good.replace("hold_time = \"3s\"", "hold_tim = \"3s\""),
                "hold_tim =",
                "unknown key `hold_tim`",
                "did you mean `hold_time`?",
            ),
            (
                good.replace("10.10.0.0/16", "10.10.0.1/16"),
                "10.10.0.1",
                "has bits set behind its prefix length",
                "write \"10.10.0.0/16\"",
            ),
            (
                good.replace("10.10.0.0/16", "10.10.0.0/33"),
                "/33",
                "is not an address with a prefix length",
                "ADDRESS/LENGTH",
            ),
            (
                good.replace(&public_key(3), &public_key(2)),
                "",
                "peer \"gw2\" has this public key already",
                "merge the two peers",
            ),
            (
                good.replace("fd7a::3/128", "fd7a::2/128"),
                "",
                "peer \"gw2\" owns this prefix already",
                "let BGP announce",
            ),
            (
                with("preshared_key_file = \"none\""),
                "preshared_key_file",
                "there is no such file",
                "put the file there",
            ),
            (
                with("preshared_key_file = \"psk\""),
                "preshared_key_file",
                "others can read it (mode 0644)",
                &chmod,
            ),
            (
                good.replace("asn = 65002", "asn = 0"),
                "asn = 0",
                "cannot be an autonomous system's number",
                "64512",
            ),
            (good.replace("[bgp]", "[bgp"), "[bgp", "", "docs/reference/config.md"),
            (good.clone() + "[dns]\n", "[dns]", "is not served by this version", "remove it"),
        ];
        for (text, at, reason, remedy) in cases {
            assert_ne!(text, good, "{reason}");
            let found = text.lines().position(|line| !at.is_empty() && line.contains(at));
            let place = found.map(|line| format!("{}:{}:", node.config().display(), line + 1));
            let place = place.unwrap_or_else(|| format!("{}:", node.config().display()));
            for arguments in [&[][..], &["--check"]] {
                let (code, words) = refusal(node, &text, arguments);
                assert_eq!(code, Some(3), "{words}");
                for expected in [&place, reason, remedy] {
                    assert!(words.contains(expected), "no {expected:?} in {words}");
                }
                assert!(!words.contains(own_key.trim()), "a secret is shown");
            }
            assert!(!node.netns().links().unwrap().contains(&"isthmus0".to_owned()));
        }
        let (code, words) = refusal(node, &good, &["--check"]);
        assert_eq!((code, words), (Some(0), format!("{}: ok", node.config().display())));

        fs::remove_file(node.config()).unwrap();
        node.restart().unwrap();
        assert_eq!(node.wait_end().unwrap().code(), Some(3));
        assert!(node.log_text().contains("cannot read"), "{}", node.log_text());
    });
}

/// A node with good files, and a way to spoil them.
struct Holder {
    node: Node,
    pki: Pki,
    other: Pki,
    now: OffsetDateTime,
    _files: tempfile::TempDir,
}

impl Holder {
    fn new(bins: &Bins) -> Self {
        let files = tempfile::tempdir().unwrap();
        let node = Node::new("gw1", &Netns::create("holder").unwrap(), files.path(), bins).unwrap();
        let now = OffsetDateTime::now_utc();
        let pki = || Pki::new("s1", now - Duration::days(30)).unwrap();
        Self { node, pki: pki(), other: pki(), now, _files: files }
    }

    fn dir(&self) -> &Path {
        self.node.dir()
    }

    /// Good files, spoilt by `spoil`, are refused with this code and these words.
    fn check(&mut self, config: &str, code: i32, words: &[&str], spoil: impl FnOnce(&Self)) {
        self.pki.write_all(self.dir(), "gw1").unwrap();
        spoil(self);
        let (ended, said) = refusal(&mut self.node, config, &[]);
        assert_eq!(ended, Some(code), "{said}");
        for word in words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        for key in ["node.key", "site-ca.key"] {
            let secret = fs::read_to_string(self.dir().join(key)).unwrap();
            assert!(!secret.lines().skip(1).any(|line| said.contains(line) && !line.starts_with('-')));
        }
        assert!(!self.node.socket().exists() && !self.node.workload_socket().exists());
    }

    fn svid(&self, name: &str, from: Duration, lifetime: Duration) {
        self.pki.write_node(self.dir(), name, self.now + from, lifetime).unwrap();
    }
}

#[test]
fn a_bad_identity_is_refused_with_its_file() {
    sandbox::run_with_bins("refusals::a_bad_identity_is_refused_with_its_file", |bins| {
        let mut holder = Holder::new(bins);
        let (day, good) = (Duration::days(1), identity_config(&holder.node, "s1"));
        let file = |name: &str| holder.node.dir().join(name).display().to_string();
        let (svid, key, bundle) = (file("node.pem"), file("node.key"), file("root.pem"));
        let (ca, ca_key) = (file("site-ca.pem"), file("site-ca.key"));

        holder.check(&good, 1, &[&svid, &key, "key that the certificate was requested with"], |h| {
            let elsewhere = tempfile::tempdir().unwrap();
            h.other.write_all(elsewhere.path(), "gw1").unwrap();
            fs::copy(elsewhere.path().join("node.key"), h.dir().join("node.key")).unwrap();
        });
        holder.check(&good, 1, &[&svid, &bundle, "isthmus-ca node sign"], |h| {
            let elsewhere = tempfile::tempdir().unwrap();
            h.other.write_all(elsewhere.path(), "gw1").unwrap();
            fs::copy(elsewhere.path().join("root.pem"), h.dir().join("root.pem")).unwrap();
        });
        let others = &[&svid, "/site/s1/node/gw9", "name \"gw1\"", "fix [node] or sign a certificate for it"];
        holder.check(&good, 1, &others.map(|word| word as &str), |h| h.svid("gw9", Duration::ZERO, day));
        let elsewhere = identity_config(&holder.node, "s2");
        holder.check(&elsewhere, 1, &[&svid, "/site/s1/node/gw1", "site \"s2\"", "fix [node]"], |_| ());
        holder.check(&good, 1, &[&svid, "isthmus-ca inspect"], |h| {
            fs::write(h.dir().join("node.pem"), "x").unwrap()
        });
        holder.check(&good, 1, &[&bundle, "isthmus-ca inspect"], |h| {
            fs::write(h.dir().join("root.pem"), "").unwrap()
        });
        holder.check(&good, 1, &[&key], |h| write_secret(&h.dir().join("node.key"), "x").unwrap());
        holder.check(&good, 3, &["others can read it (mode 0640)", &format!("chmod 600 {key}")], |h| {
            fs::set_permissions(h.dir().join("node.key"), fs::Permissions::from_mode(0o640)).unwrap();
        });
        let no_file = good.replace("root.pem", "missing.pem");
        holder.check(&no_file, 3, &["isthmusd.toml:", "there is no such file", "correct the path"], |_| ());

        let issuer = issuer_config(&holder.node, "s1");
        holder.check(&issuer, 1, &[&ca, &ca_key], |h| {
            let elsewhere = tempfile::tempdir().unwrap();
            h.other.write_all(elsewhere.path(), "gw1").unwrap();
            fs::copy(elsewhere.path().join("site-ca.key"), h.dir().join("site-ca.key")).unwrap();
        });
        holder.check(&issuer, 1, &[&ca, "isthmus-ca site sign"], |h| {
            let elsewhere = tempfile::tempdir().unwrap();
            h.other.write_all(elsewhere.path(), "gw1").unwrap();
            for name in ["site-ca.pem", "site-ca.key"] {
                fs::copy(elsewhere.path().join(name), h.dir().join(name)).unwrap();
            }
        });
        let alone = node_section(&holder.node, Some("s1"))
            + "[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n";
        holder.check(&alone, 3, &["isthmusd.toml:", "add [identity]"], |_| ());
    });
}
