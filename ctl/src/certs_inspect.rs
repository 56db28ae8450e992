//! `isthmusctl certs inspect FILE`: what is in a file, and why it would be refused. Asks no daemon.

use std::io::{self, Read as _};
use std::path::Path;

use isthmus_pki::Facts;
use isthmus_pki::inspect::{self, Item as Found};
use serde::Serialize;

use crate::certs::expiry;
use crate::failure::Failure;
use crate::input;
use crate::moment::{Moment, age};
use crate::output::{Document, Output};
use crate::page::{Cell, Page, Tone};

/// Prints what certificates, requests and keys say. Of a private key only the hash of its public half is ever shown.
///
/// # Errors
/// A file that cannot be read; after printing, that something in it would be refused.
pub(crate) fn inspect(output: &Output, file: &Path) -> Result<(), Failure> {
    let content =
        read(file).map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))?;
    let found = inspect::inspect(&content, Moment::now().into());
    output.print(&InspectDocument {
        schema: "isthmus.v1/inspected-file",
        file: file.display().to_string(),
        sound: inspect::is_sound(&found),
        items: found.iter().map(Item::from).collect(),
    })?;
    if !inspect::is_sound(&found) {
        return Err(Failure::failed(format!("{} holds something that would be refused", file.display())));
    }
    Ok(())
}

/// Reads one byte more than is looked at, so that a file too long is seen as such and a device cannot fill the memory.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let most = u64::try_from(inspect::MAX_LEN + 1).expect("a length fits 64 bits");
    input::open(file)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// Schema `isthmus.v1/inspected-file`.
#[derive(Debug, Serialize)]
struct InspectDocument {
    schema: &'static str,
    file: String,
    /// Nothing in it would be refused.
    sound: bool,
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item {
    Certificate(Box<Certificate>),
    Request {
        subject: String,
        uris: Vec<String>,
        key_sha256: String,
    },
    Key {
        encrypted: bool,
        key_sha256: Option<String>,
    },
    Unknown {
        label: String,
        reason: String,
    },
    /// Revocation lists, bundles, tokens and objects, as the library writes and lays them out.
    #[serde(untagged)]
    Other {
        #[serde(flatten)]
        document: serde_json::Value,
        #[serde(skip)]
        lines: Vec<String>,
    },
}

#[derive(Debug, Serialize)]
struct Certificate {
    /// "root", "ca", "svid" or "other".
    kind: &'static str,
    subject: String,
    issuer: String,
    serial: String,
    not_before: Option<Moment>,
    not_after: Option<Moment>,
    uris: Vec<String>,
    dns_names: Vec<String>,
    is_ca: bool,
    path_len: Option<u32>,
    sha256: String,
    key_sha256: String,
    /// Why it would be refused; empty when it is sound by itself.
    problems: Vec<String>,
}

impl From<&Found> for Item {
    fn from(found: &Found) -> Self {
        match found.clone() {
            Found::Certificate { kind, facts, problems } => {
                Self::Certificate(Box::new(Certificate::new(kind, *facts, problems)))
            }
            Found::Request { subject, uris, key_sha256 } => Self::Request { subject, uris, key_sha256 },
            Found::Key { encrypted, key_sha256 } => Self::Key { encrypted, key_sha256 },
            Found::Unknown { label, reason } => Self::Unknown { label, reason },
            Found::Share { .. }
            | Found::Crl { .. }
            | Found::Bundle { .. }
            | Found::Token { .. }
            | Found::Object { .. } => Self::Other {
                document: serde_json::to_value(found).expect("strings and numbers only"),
                lines: inspect::lines(found),
            },
        }
    }
}

impl Certificate {
    fn new(kind: &'static str, facts: Facts, problems: Vec<String>) -> Self {
        Self {
            kind,
            not_before: Moment::from_unix(facts.not_before),
            not_after: Moment::from_unix(facts.not_after),
            is_ca: facts.is_ca(),
            path_len: facts.basic_constraints.and_then(|constraints| constraints.path_len),
            subject: facts.subject,
            issuer: facts.issuer,
            serial: facts.serial,
            uris: facts.uris,
            dns_names: facts.dns_names,
            sha256: facts.sha256,
            key_sha256: facts.key_sha256,
            problems,
        }
    }
}

impl Document for InspectDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                page.line("");
            }
            item.lay_out(now, page);
        }
    }
}

impl Item {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        match self {
            Self::Certificate(certificate) => certificate.lay_out(now, page),
            Self::Request { subject, uris, key_sha256 } => page.facts([
                ("Certificate request", "signature holds".into()),
                ("Subject", subject.as_str().into()),
                ("URI", uris.join(", ").into()),
                ("Key SHA-256", key_sha256.as_str().into()),
            ]),
            Self::Key { encrypted, key_sha256 } => page.facts([
                ("Private key", if *encrypted { "encrypted" } else { "not encrypted" }.into()),
                ("Key SHA-256", key_sha256.as_deref().unwrap_or("").into()),
            ]),
            Self::Other { lines, .. } => lines.iter().for_each(|line| page.line(line)),
            Self::Unknown { label, reason } => page.facts([(label, Cell::new(reason, Tone::Bad))]),
        }
    }
}

impl Certificate {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let authority = match (self.is_ca, self.path_len) {
            (false, _) => "no".to_owned(),
            (true, None) => "yes".to_owned(),
            (true, Some(length)) => format!("yes, pathLen {length}"),
        };
        page.facts([
            ("Certificate", self.kind.into()),
            ("Subject", self.subject.as_str().into()),
            ("Issuer", self.issuer.as_str().into()),
            ("Serial", self.serial.as_str().into()),
            ("URI", self.uris.join(", ").into()),
            ("DNS names", self.dns_names.join(", ").into()),
            ("Valid since", age(self.not_before, now).into()),
            ("Expires", expiry(self.not_before, self.not_after, now)),
            ("CA", authority.into()),
            ("SHA-256", self.sha256.as_str().into()),
            ("Key SHA-256", self.key_sha256.as_str().into()),
            ("Problems", Cell::new(self.problems.join("; "), Tone::Bad)),
        ]);
    }
}
