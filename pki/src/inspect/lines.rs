//! What a person reads.

use super::{Entry, Item, Jwk};
use crate::{
    facts::{Facts, utc},
    text::clean,
    x509::Crl,
};

/// Lines for a person; nothing that the file says can drive a terminal or begin a line.
pub fn lines(item: &Item) -> Vec<String> {
    as_written(item).iter().map(|line| clean(line).into_owned()).collect()
}

fn as_written(item: &Item) -> Vec<String> {
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
        Item::Share { set, index, threshold, total } => vec![
            format!("share {index} of the key that opens a root: any {threshold} of {total} do"),
            format!("  set           {set}"),
        ],
        Item::Crl { list, problems } => crl_lines(list, problems),
        Item::Bundle { sequence, refresh_hint, keys, problems } => {
            bundle_lines(*sequence, *refresh_hint, keys, problems)
        }
        Item::Token { algorithm, key_id, subject, audience, expires_at, problems } => {
            let mut lines = vec![
                format!("JWT-SVID, {algorithm}; its signature is not checked here"),
                format!("  SPIFFE ID     {}", subject.as_deref().unwrap_or("none")),
                format!("  audience      {}", audience.join(", ")),
                format!("  key           {}", key_id.as_deref().unwrap_or("none")),
                format!("  expires       {}", expires_at.map_or("never".to_owned(), utc)),
            ];
            lines.extend(problem_lines(problems));
            lines
        }
        Item::Object { object, entries } => {
            std::iter::once(object.clone()).chain(entries.iter().flat_map(entry_lines)).collect()
        }
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
    lines.extend(problem_lines(problems));
    lines
}

fn problem_lines(problems: &[String]) -> impl Iterator<Item = String> {
    problems.iter().map(|problem| format!("  problem       {problem}"))
}

fn entry_lines(entry: &Entry) -> Vec<String> {
    let items = entry.items.iter().flat_map(as_written).map(|line| format!("    {line}"));
    std::iter::once(format!("  {}", entry.name)).chain(items).collect()
}

fn crl_lines(list: &Crl, problems: &[String]) -> Vec<String> {
    let mut lines = vec![
        format!("revocation list, number {}", list.number.as_deref().unwrap_or("none")),
        format!("  issuer        {}", list.issuer),
        format!(
            "  in force      {} to {}",
            utc(list.this_update),
            list.next_update.map_or("?".to_owned(), utc)
        ),
        format!("  revokes       {} certificates", list.revoked.len()),
    ];
    lines.extend(list.revoked.iter().map(|serial| format!("  revoked       {serial}")));
    lines.extend(problem_lines(problems));
    lines
}

fn bundle_lines(sequence: Option<u64>, hint: Option<u64>, keys: &[Jwk], problems: &[String]) -> Vec<String> {
    let mut lines = vec![
        format!("JWK set with {} keys", keys.len()),
        format!("  sequence      {}", sequence.map_or("none".to_owned(), |n| n.to_string())),
        format!("  refresh       {}", hint.map_or("no hint".to_owned(), |n| format!("every {n} s"))),
    ];
    for key in keys {
        let what = key.subject.as_deref().or(key.key_id.as_deref()).unwrap_or("");
        lines.push(format!("  key           {} {} {what}", key.used_for, key.kind));
        lines.extend(key.problems.iter().map(|problem| format!("  ignored       {problem}")));
    }
    lines.extend(problem_lines(problems));
    lines
}
