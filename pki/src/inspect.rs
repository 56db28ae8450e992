//! What is in a file: certificates, requests, keys, with the reasons why they would be refused.

use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    bundle::damaged_blocks,
    csr,
    facts::{Facts, utc},
    key::{self, Key},
    verify,
};

/// Longest file that is looked at, in bytes.
pub const MAX_LEN: usize = 1 << 20;

/// One thing found in a file.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Item {
    /// A certificate.
    Certificate {
        /// "root", "ca", "svid" or "other".
        kind: &'static str,
        /// What it says.
        #[serde(flatten)]
        facts: Box<Facts>,
        /// Why it would be refused; empty: by itself it is sound.
        problems: Vec<String>,
    },
    /// A signing request whose signature holds.
    Request {
        /// What the requester calls itself.
        subject: String,
        /// URI names it asks for.
        uris: Vec<String>,
        /// Hex SHA-256 of its public key.
        key_sha256: String,
    },
    /// A private key; nothing secret is shown.
    Key {
        /// True: the passphrase is needed for more.
        encrypted: bool,
        /// Hex SHA-256 of its public half, if it can be read.
        key_sha256: Option<String>,
    },
    /// Something we can't read.
    Unknown {
        /// What the PEM block says it is, or "DER".
        label: String,
        /// Why it can't be read.
        reason: String,
    },
}

/// Looks at every PEM block of a file, or at one DER object.
pub fn inspect(bytes: &[u8], now: OffsetDateTime) -> Vec<Item> {
    let unknown = |reason: String| vec![Item::Unknown { label: "file".into(), reason }];
    if bytes.len() > MAX_LEN {
        return unknown(format!("{} bytes; more than {MAX_LEN} are not looked at", bytes.len()));
    }
    if bytes.first() == Some(&0x30) {
        return vec![der(bytes, now)];
    }
    match pem::parse_many(bytes) {
        Ok(blocks) if blocks.is_empty() => unknown("neither PEM nor DER".into()),
        Ok(blocks) => {
            let damage = damaged_blocks(bytes, blocks.len());
            let damage = damage.map(|reason| Item::Unknown { label: "PEM".into(), reason });
            blocks.iter().map(|block| pem_block(block, now)).chain(damage).collect()
        }
        Err(e) => unknown(format!("damaged PEM: {e}")),
    }
}

/// True if nothing in it would be refused.
pub fn is_sound(items: &[Item]) -> bool {
    items.iter().all(|item| match item {
        Item::Certificate { problems, .. } => problems.is_empty(),
        Item::Unknown { .. } => false,
        Item::Request { .. } | Item::Key { .. } => true,
    })
}

fn pem_block(block: &pem::Pem, now: OffsetDateTime) -> Item {
    match block.tag() {
        "CERTIFICATE" => match Facts::parse(block.contents()) {
            Ok(facts) => certificate(facts, now),
            Err(e) => Item::Unknown { label: block.tag().into(), reason: e.to_string() },
        },
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => request(block.contents(), block.tag()),
        "PRIVATE KEY" => private_key(Key::from_pkcs8(block.contents())),
        "ENCRYPTED PRIVATE KEY" => Item::Key { encrypted: true, key_sha256: None },
        label => {
            Item::Unknown { label: label.into(), reason: "not a certificate, request or PKCS#8 key".into() }
        }
    }
}

fn der(bytes: &[u8], now: OffsetDateTime) -> Item {
    match (Facts::parse(bytes), csr::parse(bytes), Key::from_pkcs8(bytes)) {
        (Ok(facts), ..) => certificate(facts, now),
        (_, Ok(_), _) => request(bytes, "DER"),
        (.., Ok(key)) => private_key(Ok(key)),
        (Err(e), ..) => Item::Unknown { label: "DER".into(), reason: e.to_string() },
    }
}

fn request(bytes: &[u8], label: &str) -> Item {
    match csr::parse(bytes) {
        Ok(r) => Item::Request { subject: r.subject, uris: r.uris, key_sha256: r.public_key.sha256() },
        Err(e) => Item::Unknown { label: label.into(), reason: e.to_string() },
    }
}

fn private_key(key: Result<Key, key::Error>) -> Item {
    match key {
        Ok(key) => Item::Key { encrypted: false, key_sha256: Some(key.public().sha256()) },
        Err(e) => Item::Unknown { label: "PRIVATE KEY".into(), reason: e.to_string() },
    }
}

fn certificate(facts: Facts, now: OffsetDateTime) -> Item {
    let kind = match (facts.is_ca(), facts.self_issued, facts.uris.is_empty()) {
        (true, true, _) => "root",
        (true, false, _) => "ca",
        (false, _, false) => "svid",
        (false, _, true) => "other",
    };
    Item::Certificate { kind, problems: problems(&facts, now), facts: Box::new(facts) }
}

fn problems(facts: &Facts, now: OffsetDateTime) -> Vec<String> {
    let mut problems: Vec<String> = facts.out_of_date(now).into_iter().collect();
    if facts.negative_serial {
        problems.push("its serial number is negative: Go refuses it".into());
    }
    if facts.is_ca() {
        ca_problems(facts, &mut problems)
    } else {
        leaf_problems(facts, &mut problems)
    }
    problems
}

fn ca_problems(facts: &Facts, problems: &mut Vec<String>) {
    if !facts.may_sign_certificates() {
        problems.push("a CA without keyCertSign issues nothing".into());
    }
    if facts.name_constraints {
        problems.push("it has name constraints: rustls and Istio ambient refuse constraints on URIs".into());
    }
    let both = |usages: &Vec<String>| {
        ["serverAuth", "clientAuth"].iter().all(|want| usages.iter().any(|u| u == want))
    };
    if facts.extended_key_usage.as_ref().is_some_and(|usages| !both(usages)) {
        problems.push(
            "its extKeyUsage limits everything below it; it needs both serverAuth and clientAuth, or none"
                .into(),
        );
    }
}

fn leaf_problems(facts: &Facts, problems: &mut Vec<String>) {
    if let Err(e) = verify::check_leaf(facts) {
        problems.push(e.to_string());
    }
    for usage in ["serverAuth", "clientAuth"] {
        if !facts.extended_key_usage.as_ref().is_some_and(|usages| usages.iter().any(|u| u == usage)) {
            problems.push(format!("its extKeyUsage lacks {usage}"));
        }
    }
}

/// Lines for a person.
pub fn lines(item: &Item) -> Vec<String> {
    match item {
        Item::Certificate { kind, facts, problems } => certificate_lines(kind, facts, problems),
        Item::Request { subject, uris, key_sha256 } => vec![
            "certificate request, signature holds".into(),
            format!("  calls itself  {subject} {}", uris.join(" ")),
            format!("  key SHA-256   {key_sha256}"),
        ],
        Item::Key { encrypted, key_sha256 } => vec![
            format!("private key, {}", if *encrypted { "encrypted" } else { "not encrypted" }),
            format!(
                "  key SHA-256   {}",
                key_sha256.as_deref().unwrap_or("not shown without the passphrase")
            ),
        ],
        Item::Unknown { label, reason } => vec![format!("{label}: {reason}")],
    }
}

fn certificate_lines(kind: &str, facts: &Facts, problems: &[String]) -> Vec<String> {
    let mut lines = vec![
        format!("certificate ({kind})"),
        format!("  SPIFFE ID     {}", facts.uris.join(", ")),
        format!("  subject       {}", facts.subject),
        format!("  issuer        {}", facts.issuer),
        format!("  serial        {}", facts.serial),
        format!("  valid         {} to {}", utc(facts.not_before), utc(facts.not_after)),
        format!("  SHA-256       {}", facts.sha256),
        format!("  key SHA-256   {}", facts.key_sha256),
    ];
    if !facts.dns_names.is_empty() {
        lines.push(format!("  DNS names     {}", facts.dns_names.join(", ")));
    }
    if let Some(path_len) = facts.basic_constraints.and_then(|b| b.path_len) {
        lines.push(format!("  path length   {path_len}"));
    }
    lines.extend(problems.iter().map(|problem| format!("  problem       {problem}")));
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::Duration;

    use super::*;
    use crate::testing::{Fabric, NOW};

    #[test]
    fn says_what_it_is_and_why_it_is_refused() {
        let fabric = Fabric::shared();
        let (leaf, key) = fabric.node("gw1");
        let file =
            crate::bundle::to_pem(&[leaf, fabric.site.certificate().clone(), fabric.root_certificate()]);
        let items = inspect((file + &key.to_pem()).as_bytes(), NOW);
        let kinds: Vec<_> = items.iter().map(|item| lines(item)[0].clone()).collect();
        assert_eq!(
            kinds,
            ["certificate (svid)", "certificate (ca)", "certificate (root)", "private key, not encrypted"]
        );
        assert!(is_sound(&items));
        let json = serde_json::to_string(&items).unwrap();
        assert!(json.contains(r#""type":"certificate","kind":"svid""#), "{json}");
        let late = inspect(fabric.site.certificate(), NOW + Duration::days(100));
        assert!(lines(&late[0]).iter().any(|line| line.contains("expired")));
        assert!(!is_sound(&late));
        assert!(!is_sound(&inspect(b"hello", NOW)));
        let cut = key.to_pem().to_string() + "-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(!is_sound(&inspect(cut.as_bytes(), NOW)), "a block that does not end is no sound file");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = inspect(&bytes, NOW);
            bytes.insert(0, 0x30);
            let _ = inspect(&bytes, NOW);
        }
    }
}
