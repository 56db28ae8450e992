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
        let own = self.kind != Kind::FederatedRoot;
        let authority = matches!(self.kind, Kind::Root | Kind::SiteCa);
        Labels {
            kind: self.kind,
            spiffe_id: self.spiffe_id.clone(),
            issuer: own.then(|| self.issuer.clone()),
            serial: authority.then(|| self.serial.clone()),
        }
    }
}

/// What tells one gauge from another. A gauge once set stays for as long as the process runs, so there must be no end of labels in sight
/// of those who could make one up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    kind: Kind,
    spiffe_id: String,
    /// Not of another fabric's roots, whose names are theirs to choose: they share the gauge of their trust domain.
    issuer: Option<String>,
    /// Of our roots and CAs, which are few. Leaves change their serial with each renewal.
    serial: Option<String>,
}

impl Labels {
    fn write(self) -> Vec<metrics::Label> {
        let kind = ("kind", Some(self.kind.as_str().to_owned()));
        let rest = [("spiffe_id", Some(self.spiffe_id)), ("issuer", self.issuer), ("serial", self.serial)];
        let all = [kind].into_iter().chain(rest);
        all.filter_map(|(name, value)| Some(metrics::Label::new(name, value?))).collect()
    }
}

/// Sets `isthmus_certificate_expiry_timestamp_seconds` for certificates that came, changed or went: the earliest end of those that
/// share the labels, or NaN, which no alert compares true with, where none is left.
pub(super) fn export<'a>(touched: impl IntoIterator<Item = &'a CertificateInfo>, all: &[CertificateInfo]) {
    let touched: BTreeSet<Labels> = touched.into_iter().map(CertificateInfo::labels).collect();
    for labels in touched {
        let same = all.iter().filter(|certificate| certificate.labels() == labels);
        let earliest = same.map(|certificate| certificate.not_after).min();
        set_gauge(labels, earliest);
    }
}

fn set_gauge(labels: Labels, earliest: Option<i64>) {
    let gauge = metrics::gauge!("isthmus_certificate_expiry_timestamp_seconds", labels.write());
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
    /// How many certificates that share a gauge end at which second: ten thousand streams with one ID cost each other nothing.
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
            issuer: "CN=site".into(),
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
            let line = r#"isthmus_certificate_expiry_timestamp_seconds{kind="workload-svid",spiffe_id="spiffe://td/w",issuer="CN=site"}"#;
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

    fn certificate(kind: Kind, issuer: &str, serial: &str, not_after: i64) -> CertificateInfo {
        let svid = svid(serial, not_after).as_ref().clone();
        CertificateInfo { kind, spiffe_id: "spiffe://td".into(), issuer: issuer.into(), ..svid }
    }

    #[test]
    fn roots_and_cas_have_a_gauge_each_and_what_others_name_has_one_for_all() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let all = [
            certificate(Kind::Root, "CN=a", "01", 100),
            certificate(Kind::Root, "CN=a", "02", 200),
            certificate(Kind::SiteCa, "CN=a", "03", 300),
            certificate(Kind::SiteCa, "CN=a", "04", 400),
            certificate(Kind::NodeSvid, "CN=s", "05", 500),
            certificate(Kind::NodeSvid, "CN=s", "06", 600),
            certificate(Kind::FederatedRoot, "CN=x\"} 1", "07", 800),
            certificate(Kind::FederatedRoot, "CN=y", "08", 700),
        ];
        metrics::with_local_recorder(&recorder, || {
            export(&all, &all);
            // One of two roots goes: its gauge says so, the other's stays.
            export(&all[..1], &all[1..]);
        });
        let shown = recorder.handle().render();
        let mut lines: Vec<&str> =
            shown.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        lines.sort_unstable();
        let expected = [
            r#"kind="federated-root",spiffe_id="spiffe://td"} 700"#,
            r#"kind="node-svid",spiffe_id="spiffe://td",issuer="CN=s"} 500"#,
            r#"kind="root",spiffe_id="spiffe://td",issuer="CN=a",serial="01"} NaN"#,
            r#"kind="root",spiffe_id="spiffe://td",issuer="CN=a",serial="02"} 200"#,
            r#"kind="site-ca",spiffe_id="spiffe://td",issuer="CN=a",serial="03"} 300"#,
            r#"kind="site-ca",spiffe_id="spiffe://td",issuer="CN=a",serial="04"} 400"#,
        ]
        .map(|labels| format!("isthmus_certificate_expiry_timestamp_seconds{{{labels}"));
        assert_eq!(lines, expected);
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
