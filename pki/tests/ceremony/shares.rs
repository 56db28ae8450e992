//! A root whose key is opened by a quorum.

use std::process::Command;

use crate::rig::{Ceremony, mode, openssl_is_there};

const SIGN: &str = "site sign --csr site/site-ca.csr --root root --site a";

fn with_site() -> Ceremony {
    let ceremony = Ceremony::split();
    ceremony.ok("site csr --site a --trust-domain fabric.example --out site");
    ceremony
}

#[test]
fn inspect_says_what_a_share_is_and_not_what_is_in_it() {
    let ceremony = Ceremony::split();
    let text = ceremony.ok("inspect shares/share-2.txt");
    assert!(text.starts_with("share 2 of the key that opens a root: any 2 of 3 do\n  set "), "{text}");
    let item = ceremony.json("inspect shares/share-2.txt")["items"][0].clone();
    assert_eq!((&item["type"], &item["index"], &item["total"]), (&"share".into(), &2.into(), &3.into()));
    let share = ceremony.read("shares/share-2.txt");
    let data = share.lines().find(|line| line.starts_with("Data 1")).unwrap()[11..30].to_owned();
    assert!(!text.contains(&data) && !item.to_string().contains(&data));
    ceremony.write("cut", &share[..share.len() / 2], 0o600);
    let said = String::from_utf8(ceremony.run("inspect cut").stdout).unwrap();
    assert!(said.starts_with("key share: "), "{said}");
}

#[test]
fn any_two_of_three_open_the_root() {
    let ceremony = with_site();
    for (index, pair) in [(1, 2), (1, 3), (3, 2)].into_iter().enumerate() {
        let shares = format!("--share shares/share-{}.txt --share shares/share-{}.txt", pair.0, pair.1);
        ceremony.ok(&format!("{SIGN} {shares} --out out{index}"));
        ceremony.ok(&format!("node csr --site a --name gw1 --trust-domain fabric.example --out n{index}"));
        ceremony.ok(&format!("node sign --csr n{index}/node.csr --ca out{index}/site-ca.pem --ca-key site/site-ca.key --site a --name gw1"));
        ceremony.ok(&format!("verify --bundle root/root.pem --chain n{index}/node.pem"));
    }
    for share in ["shares/share-1.txt", "shares/share-3.txt", "root/root.key"] {
        assert_eq!(mode(&ceremony.path(share)), 0o600, "{share}");
    }
}

#[test]
fn a_custodian_checks_a_share_alone() {
    let ceremony = Ceremony::split();
    let json = ceremony.json("share verify shares/share-2.txt");
    assert_eq!((&json["index"], &json["threshold"], &json["total"]), (&2.into(), &2.into(), &3.into()));
    assert_eq!(json["schema"], "isthmus.share-verify/v1");
    let text = ceremony.read("shares/share-2.txt");
    let set = json["set"].as_str().unwrap();
    assert!(text.contains(set) && ceremony.read("root/root.key").contains(set));
    let line = text.lines().find(|line| line.starts_with("Data 3")).unwrap();
    let digit = if &line[11..12] == "7" { "8" } else { "7" };
    let mangled = text.replace(line, &format!("{}{digit}{}", &line[..11], &line[12..]));
    ceremony.write("mangled", &mangled, 0o600);
    ceremony.fails("share verify mangled", &["mangled", "\"data 3\"", "compare it with the print"]);
    // A scanner's capitals, line ends and notes don't matter.
    let scanned = format!("Alice's\r\n{}", text.replace('\n', "\r\n").replace('0', "O"));
    ceremony.write("scanned", &scanned, 0o600);
    ceremony.ok("share verify scanned");
    ceremony.write("open", &text, 0o644);
    ceremony.fails("share verify open", &["open", "chmod 600"]);
}

#[test]
fn wrong_shares_are_refused_by_name() {
    let (ceremony, other) = (with_site(), Ceremony::split());
    ceremony.write("foreign", &other.read("shares/share-2.txt"), 0o600);
    let sign = |shares: &str| format!("{SIGN} --out x {shares}");
    ceremony.fails(
        &sign("--share shares/share-1.txt --share foreign"),
        &["foreign", "of set", "root.key is wrapped by", "take the shares of one set"],
    );
    ceremony.fails(
        &sign("--share shares/share-1.txt --share shares/share-1.txt"),
        &["shares/share-1.txt", "a share counts once"],
    );
    ceremony.fails(
        &sign("--share shares/share-3.txt"),
        &["1 of the 2 shares", "shares/share-3.txt", "bring 1 more"],
    );
    ceremony
        .fails(&sign("--share root/root.pem --share shares/share-1.txt"), &["root/root.pem", "chmod 600"]);
    ceremony
        .fails(&sign("--share root/root.key --share shares/share-1.txt"), &["root/root.key", "0 key shares"]);
    ceremony.fails(&format!("{SIGN} --out x"), &["give --share FILE"]);
    assert!(!ceremony.path("x").exists());
}

#[test]
fn a_root_of_another_kind_says_so() {
    let ceremony = Ceremony::new();
    let other = Ceremony::split();
    ceremony.write("s1", &other.read("shares/share-1.txt"), 0o600);
    ceremony.fails(
        "site sign --csr site/site-ca.csr --root root --site aws-use1 --out x --share s1",
        &["root/root.key", "under a passphrase, not under shares"],
    );
}

/// The way back without this tool: OpenSSL opens root.key with the combined key.
#[test]
fn openssl_decrypts_with_the_combined_key() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = Ceremony::split();
    ceremony.ok("share combine --share shares/share-3.txt --share shares/share-1.txt --out key");
    assert_eq!(mode(&ceremony.path("key")), 0o600);
    ceremony.openssl("pkcs8 -in root/root.key -passin file:key -out plain.key");
    let ours = ceremony.openssl("x509 -in root/root.pem -noout -pubkey");
    assert_eq!(ceremony.openssl("pkey -in plain.key -pubout"), ours);
    // And such a file opens the root here too.
    ceremony.ok("site csr --site a --trust-domain fabric.example --out site");
    ceremony.ok(&format!("{SIGN} --passphrase-file key"));
    let wrong = Command::new("openssl")
        .current_dir(ceremony.path(""))
        .args(["pkcs8", "-in", "root/root.key", "-passin", "pass:0000", "-out", "none"])
        .output()
        .unwrap();
    assert!(!wrong.status.success());
}

#[test]
fn a_new_set_opens_the_new_file_and_the_old_set_does_not() {
    let ceremony = with_site();
    let old = "--share shares/share-1.txt --share shares/share-2.txt";
    let out =
        ceremony.ok(&format!("share reshare --root root {old} --shares 3/4 --share-out new --out root2"));
    assert!(out.contains("destroy every copy"), "{out}");
    let sign = SIGN.replace("--root root", "--root root2");
    ceremony
        .fails(&format!("{sign} --out x {old}"), &["share-1.txt", "of set", "root2/root.key is wrapped by"]);
    let two = "--share new/share-1.txt --share new/share-4.txt";
    ceremony.fails(&format!("{sign} --out x {two}"), &["2 of the 3 shares"]);
    ceremony.ok(&format!("{sign} {two} --share new/share-2.txt"));
    assert_eq!(ceremony.read("root2/root.pem"), ceremony.read("root/root.pem"));
    assert!(ceremony.path("new/share-4.txt").exists() && !ceremony.path("new/share-5.txt").exists());
    // Five shares of which one was forged, checksum and all, would be found: here one of another set stands in.
    ceremony.fails(
        &format!("{sign} --out x {two} --share shares/share-3.txt"),
        &["shares/share-3.txt", "of set"],
    );
}

#[test]
fn no_share_and_no_key_is_overwritten() {
    let ceremony = Ceremony::split();
    let before = ceremony.everything();
    for (arguments, file) in [
        ("--out root --shares 2/3 --share-out other", "root/root.pem"),
        ("--out other --shares 2/3 --share-out shares", "shares/share-1.txt"),
    ] {
        ceremony.fails(
            &format!("root init --trust-domain fabric.example {arguments}"),
            &[file, "not overwritten"],
        );
    }
    let old = "--share shares/share-1.txt --share shares/share-2.txt";
    ceremony.fails(
        &format!("share reshare --root root {old} --shares 2/3 --share-out shares --out r"),
        &["shares/share-1.txt", "not overwritten"],
    );
    ceremony
        .fails(&format!("share combine {old} --out root/root.key"), &["root/root.key", "not overwritten"]);
    assert_eq!(ceremony.everything(), before);
    for bad in ["1/3", "4/3", "2", "0/0"] {
        let output =
            ceremony.run(&format!("root init --trust-domain a --out x --share-out y --shares {bad}"));
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
}

#[test]
fn a_full_disk_leaves_no_half_of_a_set() {
    let ceremony = Ceremony::empty();
    // Key and shares fit into what is left of the disk, the certificate does not.
    ceremony.on_a_full_disk(
        "root init --trust-domain fabric.example --out root --shares 2/3 --share-out shares",
        "root/root.pem",
    );
    assert!(ceremony.everything().is_empty());
    assert!(!ceremony.path("shares").exists() && !ceremony.path("root").exists());
}
