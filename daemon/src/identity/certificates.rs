//! Facts of the certificates that a node holds, trusts or has issued and that are in use.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use isthmus_pki::Facts;

/// What a certificate is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A root of the trust bundle.
    Root,
    /// The CA of a site.
    SiteCa,
    /// This node's own.
    NodeSvid,
    /// Issued to a workload whose stream is open.
    WorkloadSvid,
}

impl Kind {
    /// As the control API and the metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::SiteCa => "site-ca",
            Self::NodeSvid => "node-svid",
            Self::WorkloadSvid => "workload-svid",
        }
    }
}

/// One certificate, as message `Certificate` of the control API shows it. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// What it is to this node.
    pub kind: Kind,
    /// Its URI SAN.
    pub spiffe_id: String,
    /// Subject name.
    pub subject: String,
    /// Issuer name.
    pub issuer: String,
    /// Serial number, lower-case hex.
    pub serial: String,
    /// First valid second.
    pub not_before: i64,
    /// Last valid second.
    pub not_after: i64,
    /// Lower-case hex SHA-256 of the DER.
    pub sha256: String,
    /// The file it was read from; `None` for issued ones.
    pub path: Option<PathBuf>,
    /// When it is to be renewed; `None` where nobody renews it.
    pub renew_at: Option<i64>,
}

impl CertificateInfo {
    pub(super) fn new(kind: Kind, facts: &Facts, path: Option<PathBuf>) -> Self {
        Self {
            kind,
            spiffe_id: facts.uris.first().cloned().unwrap_or_default(),
            subject: facts.subject.clone(),
            issuer: facts.issuer.clone(),
            serial: facts.serial.clone(),
            not_before: facts.not_before,
            not_after: facts.not_after,
            sha256: facts.sha256.clone(),
            path,
            renew_at: None,
        }
    }

    /// Sets `isthmus_certificate_expiry_timestamp_seconds`.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is an f64; exact for the next 285 million years")]
    pub(super) fn export(&self) {
        metrics::gauge!(
            "isthmus_certificate_expiry_timestamp_seconds",
            "kind" => self.kind.as_str(),
            "spiffe_id" => self.spiffe_id.clone(),
        )
        .set(self.not_after as f64);
    }
}

/// SVIDs in the hands of workloads, by stream. A stream's go when its [`Holder`] is dropped.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    next: u64,
    held: BTreeMap<u64, Vec<CertificateInfo>>,
}

impl Ledger {
    /// Opens an account for one stream.
    pub(super) fn holder(&self) -> Holder {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.next += 1;
        Holder { ledger: self.clone(), id: inner.next }
    }

    /// Everything that is held now.
    pub(super) fn list(&self) -> Vec<CertificateInfo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).held.values().flatten().cloned().collect()
    }
}

/// One stream's account.
pub(super) struct Holder {
    ledger: Ledger,
    id: u64,
}

impl Holder {
    /// Replaces what the stream holds.
    pub(super) fn hold(&self, certificates: Vec<CertificateInfo>) {
        certificates.iter().for_each(CertificateInfo::export);
        self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner).held.insert(self.id, certificates);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner).held.remove(&self.id);
    }
}
