//! Facts of the certificates that a node holds, trusts or has issued and that are in use.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use isthmus_pki::Facts;

/// What a certificate is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A root of the trust bundle.
    Root,
    /// A root of a trust domain that the node federates with.
    FederatedRoot,
    /// The CA of a site, also one that a rotation has prepared or set aside.
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
            Self::FederatedRoot => "federated-root",
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
    /// Its URI SAN; of a federated root the ID of its trust domain.
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

    fn labels(&self) -> Labels {
        (self.kind, self.spiffe_id.clone())
    }
}

type Labels = (Kind, String);

/// Sets `isthmus_certificate_expiry_timestamp_seconds` for certificates that came, changed or went: the earliest end of those that
/// share kind and ID, or NaN, which no alert compares true with, where none is left.
pub(super) fn export<'a>(touched: impl IntoIterator<Item = &'a CertificateInfo>, all: &[CertificateInfo]) {
    let touched: BTreeSet<Labels> = touched.into_iter().map(CertificateInfo::labels).collect();
    for (kind, spiffe_id) in touched {
        let same = all.iter().filter(|c| c.kind == kind && c.spiffe_id == spiffe_id);
        let earliest = same.map(|c| c.not_after).min();
        set_gauge((kind, spiffe_id), earliest);
    }
}

fn set_gauge((kind, spiffe_id): Labels, earliest: Option<i64>) {
    let gauge = metrics::gauge!(
        "isthmus_certificate_expiry_timestamp_seconds",
        "kind" => kind.as_str(),
        "spiffe_id" => spiffe_id,
    );
    gauge.set(earliest.map_or(f64::NAN, seconds));
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is an f64, exact for the next 285 million years")]
fn seconds(timestamp: i64) -> f64 {
    timestamp as f64
}

/// SVIDs in the hands of workloads, by stream. A stream's go when its [`Holder`] is dropped.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    next: u64,
    held: HashMap<u64, Vec<Arc<CertificateInfo>>>,
    /// How many certificates of each kind and ID end at which second: ten thousand streams with one ID cost each other nothing.
    ends: BTreeMap<Labels, BTreeMap<i64, usize>>,
}

impl Inner {
    fn count(&mut self, certificate: &CertificateInfo) {
        *self.ends.entry(certificate.labels()).or_default().entry(certificate.not_after).or_default() += 1;
    }

    fn discount(&mut self, certificate: &CertificateInfo) {
        let labels = certificate.labels();
        let Some(ends) = self.ends.get_mut(&labels) else { return };
        match ends.get_mut(&certificate.not_after) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                ends.remove(&certificate.not_after);
            }
        }
        if ends.is_empty() {
            self.ends.remove(&labels);
        }
    }

    fn export(&self, touched: BTreeSet<Labels>) {
        for labels in touched {
            let earliest = self.ends.get(&labels).and_then(|ends| ends.keys().next().copied());
            set_gauge(labels, earliest);
        }
    }
}

impl Ledger {
    /// Opens an account for one stream.
    pub(super) fn holder(&self) -> Holder {
        let mut inner = self.lock();
        inner.next += 1;
        Holder { ledger: self.clone(), id: inner.next }
    }

    /// Everything that is held now.
    pub(super) fn list(&self) -> Vec<CertificateInfo> {
        self.lock().held.values().flatten().map(|certificate| certificate.as_ref().clone()).collect()
    }

    /// How many are held now.
    pub(super) fn size(&self) -> usize {
        self.lock().held.values().map(Vec::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One stream's account.
pub(super) struct Holder {
    ledger: Ledger,
    id: u64,
}

impl Holder {
    /// Replaces what the stream holds.
    pub(super) fn hold(&self, certificates: Vec<Arc<CertificateInfo>>) {
        let mut inner = self.ledger.lock();
        let before = inner.held.remove(&self.id).unwrap_or_default();
        let touched: BTreeSet<Labels> = before.iter().chain(&certificates).map(|c| c.labels()).collect();
        before.iter().for_each(|certificate| inner.discount(certificate));
        certificates.iter().for_each(|certificate| inner.count(certificate));
        if !certificates.is_empty() {
            inner.held.insert(self.id, certificates);
        }
        // Under the lock, so that of two streams with one ID the later has the last word.
        inner.export(touched);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.hold(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svid(serial: &str, not_after: i64) -> Arc<CertificateInfo> {
        Arc::new(CertificateInfo {
            kind: Kind::WorkloadSvid,
            spiffe_id: "spiffe://td/w".into(),
            subject: String::new(),
            issuer: String::new(),
            serial: serial.into(),
            not_before: 0,
            not_after,
            sha256: String::new(),
            path: None,
            renew_at: None,
        })
    }

    #[test]
    fn the_gauge_follows_the_earliest_and_never_lingers() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let shown = || recorder.handle().render().lines().last().unwrap_or_default().to_owned();
        metrics::with_local_recorder(&recorder, || {
            let ledger = Ledger::default();
            let (first, second) = (ledger.holder(), ledger.holder());
            first.hold(vec![svid("1", 100)]);
            second.hold(vec![svid("2", 200)]);
            assert_eq!((ledger.list().len(), ledger.size()), (2, 2));
            let line = r#"isthmus_certificate_expiry_timestamp_seconds{kind="workload-svid",spiffe_id="spiffe://td/w"}"#;
            let is = |value: &str| {
                assert!(recorder.handle().render().contains(&format!("{line} {value}\n")), "{}", shown())
            };
            is("100");
            first.hold(vec![svid("3", 300)]);
            is("200");
            drop(second);
            is("300");
            drop(first);
            is("NaN");
            assert!(ledger.list().is_empty());
        });
    }

    #[test]
    fn two_that_end_in_the_same_second_are_two() {
        let ledger = Ledger::default();
        let (first, second) = (ledger.holder(), ledger.holder());
        first.hold(vec![svid("1", 100), svid("2", 100)]);
        second.hold(vec![svid("3", 100)]);
        let count = |ledger: &Ledger| ledger.lock().ends.values().flat_map(BTreeMap::values).sum::<usize>();
        assert_eq!(count(&ledger), 3);
        first.hold(vec![svid("4", 200)]);
        assert_eq!(count(&ledger), 2);
        drop((first, second));
        assert!(ledger.lock().ends.is_empty() && ledger.lock().held.is_empty());
    }
}
