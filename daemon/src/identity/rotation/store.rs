//! What is written down, read back and checked.

use std::path::{Path, PathBuf};

use isthmus_pki::{
    Charter, Facts, KeyHash,
    charter::sealed,
    rotation::{CharterView, Effect, Fleet, State, taint},
    signed_by,
};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{Error, disk, hear, keys, statements::Statements};
use crate::identity::{
    certificates::{CertificateInfo, Kind},
    config::IssuerConfig,
    files,
};

/// All of it. Changed on a copy, or step by step with a [`Store::save`] after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) dir: PathBuf,
    pub(super) state: State,
    pub(super) fleet: Fleet,
    pub(super) charter: Option<Signed>,
    /// Taint statements, own and heard.
    pub(super) taints: Statements,
    /// CRLs that came by `rotate revoke`, or from other nodes; DER.
    pub(super) crls: Vec<Vec<u8>>,
    /// Something is in force that could not be written down.
    pub(super) unwritten: bool,
    /// From the configuration: the site, and the CA that it names with its key.
    pub(super) site: Option<String>,
    pub(super) configured: Option<(KeyHash, IssuerConfig)>,
    /// Roots in force: the charter's, or the trust bundle's.
    pub(super) roots: Vec<CertificateDer<'static>>,
}

/// The charter in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) charter: Charter,
    /// As it was signed.
    pub(super) file: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    state: State,
    fleet: Fleet,
    taints: Vec<String>,
    /// Hex DER.
    crls: Vec<String>,
}

impl Store {
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("state.json");
        let written = read_state(&path)?;
        let taints = Statements::parse(written.taints).map_err(|reason| Error::State { path, reason })?;
        let store = Self {
            dir: dir.to_owned(),
            state: written.state,
            fleet: written.fleet,
            charter: read_charter(&dir.join("charter.jws"))?,
            taints,
            crls: written.crls.iter().filter_map(|crl| hex::decode(crl).ok()).collect(),
            unwritten: false,
            site: None,
            configured: None,
            roots: Vec::new(),
        };
        store.check()?;
        Ok(store)
    }

    /// The charter's file is written first, so it is at or ahead of the state.
    fn check(&self) -> Result<(), Error> {
        let written = self.state.charter_sequence();
        let found = self.charter.as_ref().map_or(0, |signed| signed.charter.sequence);
        if found >= written {
            return Ok(());
        }
        let reason = format!("charter {written} was in force and this is {found}; a charter never goes back");
        Err(Error::State { path: self.dir.join("charter.jws"), reason })
    }

    /// After a crash between the charter's file and the step that puts it in force: the file was checked before it was written.
    pub(super) fn catch_up(&mut self, now: i64) {
        let ahead =
            self.charter.as_ref().filter(|signed| signed.charter.sequence > self.state.charter_sequence());
        if let Some(view) = ahead.map(|signed| self.view(&signed.charter)) {
            self.state.apply(&Effect::ApplyCharter(view), now);
        }
    }

    /// Replaces `state.json`.
    pub(super) fn save(&self) -> Result<(), Error> {
        let path = self.dir.join("state.json");
        let written = Written {
            state: self.state.clone(),
            fleet: self.fleet.clone(),
            taints: self.taints.texts().map(str::to_owned).collect(),
            crls: self.crls.iter().map(hex::encode).collect(),
        };
        let text = serde_json::to_vec_pretty(&written)
            .map_err(|e| Error::State { path: path.clone(), reason: e.to_string() })?;
        disk::replace(&path, &text)
    }

    /// The same, of what is in force whether it is written down or not. If that fails, the next change, report or reload tries again.
    pub(super) fn save_or_later(&mut self, what: &'static str) {
        let saved = self.save();
        self.unwritten = saved.is_err();
        if let Err(error) = saved {
            tracing::warn!(%error, what, "what is in force could not be written down; it is tried again with the next change");
        }
    }

    /// The charter as this site sees it.
    pub(super) fn view(&self, charter: &Charter) -> CharterView {
        CharterView::new(charter, self.site.as_deref().unwrap_or_default())
    }

    /// CRLs of the charter, and those that came since.
    pub(super) fn crls(&self) -> Vec<Vec<u8>> {
        let of_charter = self.charter.iter().flat_map(|signed| &signed.charter.crls);
        of_charter.chain(&self.crls).cloned().collect()
    }

    /// Notes which condemned CAs a CRL in force names.
    pub(super) fn note_lists(&mut self) {
        let condemned: Vec<KeyHash> = self.state.tainted().cloned().collect();
        for key in condemned {
            let listed = self.is_listed(&key);
            self.state.list(&key, listed);
        }
    }

    /// False too where its certificate is not here any more: then nobody can tell.
    fn is_listed(&self, key: &KeyHash) -> bool {
        let chain = self.issuer(key).and_then(|issuer| files::certificates(&issuer.certificate).ok());
        let lists = |crl: &Vec<u8>| {
            chain.iter().flat_map(|chain| chain.first()).any(|ca| signed_by::crl_lists(crl, ca))
        };
        self.crls().iter().any(lists)
    }

    /// Files of a CA whose key was made here.
    pub(super) fn file(&self, key: &KeyHash, extension: &str) -> PathBuf {
        self.dir.join(format!("ca-{}.{extension}", key.short()))
    }

    /// The CA as `[issuer]` would name it, wherever its files are.
    pub(super) fn issuer(&self, key: &KeyHash) -> Option<IssuerConfig> {
        let (configured, template) = self.configured.as_ref()?;
        let mut issuer = template.clone();
        if configured != key {
            issuer.certificate = self.file(key, "pem");
            issuer.key = keys::source(&template.key, self.file(key, "key"));
        }
        Some(issuer)
    }

    /// What the certificate of that CA says, and where it is.
    pub(super) fn certificate(&self, key: &KeyHash) -> Option<CertificateInfo> {
        let configured = self.configured.as_ref().filter(|(configured, _)| configured == key);
        let path = configured.map_or_else(|| self.file(key, "pem"), |(_, issuer)| issuer.certificate.clone());
        let chain = files::certificates(&path).ok()?;
        let facts = Facts::parse(chain.first()?).ok().filter(|facts| KeyHash::of(facts) == *key)?;
        Some(CertificateInfo::new(Kind::SiteCa, &facts, Some(path)))
    }

    /// Keeps a statement if it holds under the roots in force; false if it is nothing new.
    pub(super) fn add_taint(&mut self, statement: String, now: OffsetDateTime) -> Result<bool, Error> {
        let bundle = hear::bundle(self)?;
        let taint = taint::open(&statement, &bundle)?;
        Ok(self.taints.add(statement, taint, &bundle, now)?)
    }
}

fn read_state(path: &Path) -> Result<Written, Error> {
    let Some(text) = disk::read(path)? else { return Ok(Written::default()) };
    serde_json::from_slice(&text).map_err(|e| Error::State { path: path.to_owned(), reason: e.to_string() })
}

/// It was proven when it came, and this directory is ours alone.
fn read_charter(path: &Path) -> Result<Option<Signed>, Error> {
    let Some(bytes) = disk::read(path)? else { return Ok(None) };
    let (charter, _) = sealed::look(&bytes)
        .map_err(|reason| Error::Charter { place: path.display().to_string(), reason: Box::new(reason) })?;
    let file = String::from_utf8(bytes.to_vec())
        .map_err(|_| Error::State { path: path.to_owned(), reason: "not UTF-8".into() })?;
    Ok(Some(Signed { charter, file }))
}
