//! `isthmusctl audit head`: what the site CA signed.

use std::fs;
use std::path::Path;

use isthmus_pki::audit::SignedHead;
use isthmus_pki::{Bundle, TrustStore};
use serde::Serialize;

use super::files;
use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};

/// Schema `isthmus.v1/audit-head`.
#[derive(Debug, Serialize)]
pub(super) struct HeadDocument {
    schema: &'static str,
    #[serde(flatten)]
    facts: HeadFacts,
    /// The JWS: keep it elsewhere to hold the log against it later.
    signed: String,
}

/// What is known of a head whose signature holds.
#[derive(Debug, Serialize)]
pub(super) struct HeadFacts {
    pub(super) records: u64,
    pub(super) root: String,
    made_at: Option<Moment>,
    signer: String,
    signer_sha256: String,
    /// The signer hangs on the given roots; nothing if none were given.
    trusted: Option<bool>,
}

impl HeadFacts {
    /// # Errors
    /// A signer that does not hang on the roots; roots that cannot be read.
    pub(super) fn new(signed: &SignedHead, bundle: Option<&Path>) -> Result<Self, Failure> {
        if let Some(bundle) = bundle {
            check(signed, bundle)?;
        }
        Ok(Self {
            records: signed.head.size,
            root: signed.head.root.to_string(),
            made_at: Moment::from_unix(signed.head.iat),
            signer: signed.signer().subject.clone(),
            signer_sha256: signed.signer().sha256.clone(),
            trusted: bundle.map(|_| true),
        })
    }

    pub(super) fn lay_out(&self, now: Moment, page: &mut Page) {
        let trusted = match self.trusted {
            Some(_) => Cell::new("hangs on the given roots", Tone::Plain),
            None => Cell::new("not checked against any root: give --bundle", Tone::Plain),
        };
        page.facts([
            ("Head covers", format!("records 1 to {}", self.records).into()),
            ("Root", self.root.as_str().into()),
            ("Made", format!("{} ago", age(self.made_at, now)).into()),
            ("Signed by", self.signer.as_str().into()),
            ("Signer SHA-256", self.signer_sha256.as_str().into()),
            ("Signer", trusted),
        ]);
    }
}

fn check(signed: &SignedHead, bundle: &Path) -> Result<(), Failure> {
    let refuse = |reason: String| Failure::failed(format!("{}: {reason}", bundle.display()));
    let bytes = fs::read(bundle).map_err(|error| files::unreadable(bundle, &error))?;
    let roots = Bundle::parse(&bytes).map_err(|error| refuse(error.to_string()))?;
    signed
        .verify(&TrustStore::from(roots))
        .map_err(|error| refuse(format!("the head is not signed by a site CA of these roots: {error}")))
}

/// # Errors
/// No head, or one that does not hold.
pub(super) fn show(path: &Path, bundle: Option<&Path>) -> Result<HeadDocument, Failure> {
    let Some((signed, text)) = files::head(path)? else {
        return Err(Failure::failed(format!(
            "there is no {}.head: isthmusd writes it a second after a record",
            path.display()
        )));
    };
    Ok(HeadDocument {
        schema: "isthmus.v1/audit-head",
        facts: HeadFacts::new(&signed, bundle)?,
        signed: text,
    })
}

impl Document for HeadDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        self.facts.lay_out(now, page);
    }
}
