//! What there is to look at: one cluster, or directory, after another.

mod builder;
mod envoy;

pub use builder::ClusterBuilder;
pub use envoy::{EnvoyAdmin, EnvoyCertificate};

use time::Duration;

use crate::{
    istio::Cacerts,
    x509::{Certificate, PemFile},
};

/// Everything that is examined together.
#[derive(Debug)]
pub struct Inventory {
    /// Clusters that are to trust each other.
    pub clusters: Vec<Cluster>,
    /// Longest life of a workload's certificate: what a signing CA must still outlive.
    pub workload_ttl: Duration,
}

impl Default for Inventory {
    /// No cluster, and Istio's 24 hours.
    fn default() -> Self {
        Self { clusters: Vec::new(), workload_ttl: Duration::hours(24) }
    }
}

/// One cluster or directory.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The context or the directory.
    pub name: String,
    /// The plugged-in CA, or that of `istio-ca-secret`.
    pub cacerts: Option<Cacerts>,
    /// When the Secret was changed last, in seconds since the Unix epoch.
    pub cacerts_changed_at: Option<i64>,
    /// `istio-ca-root-cert` of each namespace, and files that hold nothing but roots.
    pub roots: Vec<PemFile>,
    /// Chains that workloads present.
    pub leaves: Vec<Leaf>,
    /// Other files with certificates.
    pub others: Vec<PemFile>,
    /// Files that can't be read: place and reason.
    pub unreadable: Vec<(String, String)>,
    /// meshConfig.
    pub mesh: Option<Mesh>,
    /// True if ztunnel runs.
    pub ambient: bool,
    /// Environment of istiod.
    pub istiod: Vec<Setting>,
    /// Admin pages of Envoys.
    pub envoys: Vec<EnvoyAdmin>,
    /// Clocks beside ours.
    pub clocks: Vec<ClockReading>,
    /// Command line of istio-csr: where it was found, and its arguments.
    pub istio_csr: Option<(String, Vec<String>)>,
}

/// A chain that somebody presents.
#[derive(Debug)]
pub struct Leaf {
    /// Where it was found.
    pub place: String,
    /// Leaf first.
    pub chain: Vec<Certificate>,
}

/// The part of meshConfig that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Where it was found.
    pub place: String,
    /// `trustDomain`; Istio's default is `cluster.local`.
    pub trust_domain: String,
    /// `trustDomainAliases`.
    pub aliases: Vec<String>,
}

/// A variable of a container's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Where it was found.
    pub place: String,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What another clock said when ours said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Whose.
    pub place: String,
    /// Its time, seconds since the Unix epoch.
    pub theirs: i64,
    /// Our time at the latest moment at which it can have been read.
    pub ours: i64,
    /// How long before that it may have been read, in seconds: the period of a heartbeat.
    pub age: i64,
}

impl Cluster {
    /// Every file with certificates.
    pub(super) fn files(&self) -> impl Iterator<Item = &PemFile> {
        let own = self.cacerts.iter().flat_map(|c| [&c.ca_cert, &c.root_cert, &c.cert_chain]);
        own.chain(&self.roots).chain(&self.others)
    }

    /// Every CA in every file and chain, with its place.
    pub(super) fn cas(&self) -> impl Iterator<Item = (&str, &Certificate)> {
        self.certificates().filter(|(_, c)| c.facts.is_ca())
    }

    /// Every certificate, with its place.
    pub(super) fn certificates(&self) -> impl Iterator<Item = (&str, &Certificate)> {
        let files = self.files().flat_map(|f| f.certificates.iter().map(|c| (f.place.as_str(), c)));
        files.chain(self.leaves.iter().flat_map(|l| l.chain.iter().map(|c| (l.place.as_str(), c))))
    }

    /// The CA that istiod signs with.
    pub(super) fn signing_ca(&self) -> Option<&Certificate> {
        self.cacerts.as_ref()?.ca_cert.certificates.first()
    }

    /// What workloads are to trust: root-cert.pem, or the files of roots where there is none.
    pub(super) fn anchors(&self) -> Vec<&Certificate> {
        let own = self.cacerts.iter().flat_map(|c| &c.root_cert.certificates);
        let own: Vec<_> = own.collect();
        if !own.is_empty() {
            return own;
        }
        self.roots.iter().flat_map(|f| &f.certificates).collect()
    }
}
