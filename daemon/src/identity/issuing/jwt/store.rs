//! The keys in a file of their own, 0600, replaced as a whole: what signed tokens before a restart does so after it.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use isthmus_pki::{Key, jwt::SigningKey};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{Error, Held, ring::Span};
use crate::{
    identity::{files, trust::MAX_SEQUENCE},
    secret_file::Rule,
};

/// Most keys in a file; two are usual.
const MAX_KEYS: usize = 16;

/// What is in the file.
#[derive(Clone, Default)]
pub(super) struct Stored {
    pub(super) keys: Vec<Held>,
    /// Of the bundle that was published last.
    pub(super) sequence: u64,
    /// What that bundle held.
    pub(super) content: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sequence: u64,
    content: String,
    keys: Vec<Entry>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// PKCS#8 DER in base64.
    key: String,
    #[zeroize(skip)]
    from: i64,
    #[zeroize(skip)]
    until: i64,
    #[zeroize(skip)]
    cas: Vec<String>,
}

/// Where the keys of a node are.
pub(super) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("jwt-keys.json")
}

/// Reads the file; none is no keys yet.
pub(super) fn read(path: &Path) -> Result<Stored, Error> {
    if !path.exists() {
        return Ok(Stored::default());
    }
    let text = files::secret(path, Rule::Private)?;
    let broken = |reason: String| Error::Keys { path: path.to_owned(), reason };
    let file: File = serde_json::from_slice(&text).map_err(|_| broken("not a file of keys".into()))?;
    if file.keys.len() > MAX_KEYS {
        return Err(broken(format!("more than {MAX_KEYS} keys in it")));
    }
    if file.sequence > MAX_SEQUENCE {
        return Err(broken(format!("its sequence is above {MAX_SEQUENCE}")));
    }
    let keys: Option<Vec<Held>> = file.keys.iter().map(held).collect();
    let keys = keys.ok_or_else(|| broken("a key in it is damaged".into()))?;
    Ok(Stored { keys, sequence: file.sequence, content: file.content })
}

fn held(entry: &Entry) -> Option<Held> {
    let der = Zeroizing::new(BASE64_STANDARD.decode(&entry.key).ok()?);
    let held = Held::new(Key::from_pkcs8(&der).ok()?, Span { from: entry.from, until: entry.until }).ok()?;
    Some(Held { cas: entry.cas.clone(), ..held })
}

/// Replaces the file; on an error the old one is as it was.
pub(super) fn write(path: &Path, stored: &Stored) -> Result<(), Error> {
    let entry = |held: &Held| Entry {
        key: BASE64_STANDARD.encode(&*held.pkcs8),
        from: held.span.from,
        until: held.span.until,
        cas: held.cas.clone(),
    };
    let file = File {
        sequence: stored.sequence,
        content: stored.content.clone(),
        keys: stored.keys.iter().map(entry).collect(),
    };
    let text = Zeroizing::new(serde_json::to_vec(&file).expect("texts and numbers become JSON"));
    replace(path, &text).map_err(|e| Error::Keys { path: path.to_owned(), reason: e.to_string() })
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("json.new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

impl Held {
    pub(super) fn new(key: Key, span: Span) -> Result<Self, isthmus_pki::jwt::Error> {
        let pkcs8 = key.to_pkcs8();
        Ok(Self { key: SigningKey::new(key)?.into(), pkcs8, span, cas: Vec::new() })
    }
}
