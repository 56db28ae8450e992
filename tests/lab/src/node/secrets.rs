//! No log of a daemon holds a secret: neither what looks like one, nor what lies in a secret file of the daemon's directory.
//! (spiffe/spire#6732, rust-spiffe 0.17)

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// PEM; PKCS#8 of P-256 and P-384 keys in base64, and in hex; the beginnings of a JWS (`{"alg":`, `{"kid":`, `{"typ":`).
const FORMS: [&str; 7] = [
    "PRIVATE KEY-----",
    "MIGHAgEAMBMGByqGSM49",
    "MIG2AgEAMBAGByqGSM49",
    "308187020100301306072a86",
    "eyJhbGciOi",
    "eyJraWQiOi",
    "eyJ0eXAiOi",
];
/// What a join token starts with. Alone it is no secret: an error says what a token looks like.
const JOIN_TOKEN: &str = "isthmus-join_";
/// Names of files with one secret a line.
const FILES: [&str; 4] = [".key", "token", "pass", "psk"];
/// Shorter lines may be in a log by chance.
const LEAST: usize = 20;
/// Longest file that is looked into for secrets, in bytes.
const MAX_SECRETS: u64 = 1 << 18;
/// Most of a log that is read, in bytes.
const MAX_LOG: u64 = 1 << 26;
/// How deep below the daemon's directory.
const DEPTH: u8 = 4;

/// The first line of a log that holds a secret, and what it holds. A log that is not there holds none.
pub(super) fn find(log: &Path, dir: &Path) -> Option<String> {
    let mut text = Vec::new();
    File::open(log).ok()?.take(MAX_LOG).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut kept = Vec::new();
    collect(dir, DEPTH, &mut kept);
    text.lines().find_map(|line| fault(line, &kept).map(|what| format!("{what} in the line {line:?}")))
}

fn fault(line: &str, kept: &[String]) -> Option<String> {
    let form = FORMS.into_iter().find(|form| line.contains(form));
    let token = line.split(JOIN_TOKEN).skip(1).any(|rest| rest.starts_with(|c: char| is_base64url(c)));
    let known = kept.iter().any(|secret| line.contains(secret.as_str()));
    form.map(|form| format!("{form:?}"))
        .or(token.then(|| "a join token".to_owned()))
        .or(known.then(|| "what is in a secret file".to_owned()))
}

fn is_base64url(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Secrets in the files below a directory that nobody but their owner may read.
fn collect(dir: &Path, depth: u8, kept: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        if kind.is_dir() && depth > 0 {
            collect(&entry.path(), depth - 1, kept);
        } else if kind.is_file() && metadata.mode() & 0o077 == 0 && metadata.len() <= MAX_SECRETS {
            let text = fs::read(entry.path()).unwrap_or_default();
            kept.extend(secrets(&entry.file_name().to_string_lossy(), &String::from_utf8_lossy(&text)));
        }
    }
}

/// Of a file with PEM the lines of its private keys; of others all, if the name says that they are secret.
fn secrets(name: &str, text: &str) -> Vec<String> {
    let mut inside = !text.contains("-----BEGIN") && FILES.iter().any(|part| name.contains(part));
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("-----") {
            inside = line.starts_with("-----BEGIN") && line.contains("PRIVATE KEY");
        } else if inside && line.len() >= LEAST && !line.starts_with("pkcs11:") {
            found.push(line.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use isthmus_pki::{Curve, Key};

    use super::*;
    use crate::files::write_secret;

    fn found(dir: &Path, line: &str) -> Option<String> {
        let log = dir.join("isthmusd.log");
        fs::write(&log, format!("INFO ready\n{line}\nINFO bye\n")).unwrap();
        find(&log, dir)
    }

    #[test]
    fn what_looks_like_a_secret_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (p256, p384) = (Key::generate(Curve::P256).unwrap(), Key::generate(Curve::P384).unwrap());
        for line in [
            p256.to_pem().to_string(),
            p256.to_pem().lines().nth(1).unwrap().to_owned(),
            p384.to_pem().lines().nth(1).unwrap().to_owned(),
            "token=eyJhbGciOiJFUzI1NiJ9.e30.x".to_owned(),
            "INFO token=isthmus-join_mF3kQ.td/s/gw1.4c1d09be".to_owned(),
        ] {
            assert!(found(dir.path(), &line).is_some(), "{line}");
        }
        for line in ["a token starts with \"isthmus-join_\"", "-----BEGIN CERTIFICATE-----", ""] {
            assert_eq!(found(dir.path(), line), None);
        }
        assert_eq!(find(&dir.path().join("absent.log"), dir.path()), None);
    }

    #[test]
    fn what_lies_in_a_secret_file_is_found_whatever_it_looks_like() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state/identity");
        fs::create_dir_all(&state).unwrap();
        let key = Key::generate(Curve::P256).unwrap();
        write_secret(
            &state.join("node.pem"),
            &format!("{}-----BEGIN CERTIFICATE-----\n{}\n", *key.to_pem(), "c".repeat(64)),
        )
        .unwrap();
        write_secret(&dir.path().join("passphrase"), "correct horse battery staple").unwrap();
        write_secret(&dir.path().join("isthmusd.toml"), "trust_bundle = \"/somewhere/root.pem\"").unwrap();
        let second = key.to_pem().lines().nth(2).unwrap().to_owned();
        for line in [format!("DEBUG read {second}"), "WARN correct horse battery staple?".to_owned()] {
            assert!(found(dir.path(), &line).unwrap().starts_with("what is in a secret file"), "{line}");
        }
        for line in ["c".repeat(64), "trust_bundle = \"/somewhere/root.pem\"".to_owned()] {
            assert_eq!(found(dir.path(), &line), None);
        }
    }
}
