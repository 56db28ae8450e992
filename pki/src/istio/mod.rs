//! Istio's plugged-in CA: the files of the Secret `cacerts`, what istiod asks of them before it starts, and how they may change in a mesh
//! that runs (pilot/pkg/bootstrap/istio_ca.go and security/pkg/pki of Istio).

mod accept;
mod change;
mod manifest;

pub use accept::{Complaint, accept};
pub use change::{Refusal, Signer, Step, plan};
pub use manifest::{manifest, manifest_yaml};

use std::collections::{BTreeMap, BTreeSet};

use zeroize::Zeroizing;

use crate::x509::{Crl, KeyFacts, KeyFault, PemFile, Rejected, read_crls};

/// Certificate of the signing CA.
pub const CA_CERT: &str = "ca-cert.pem";
/// Its private key.
pub const CA_KEY: &str = "ca-key.pem";
/// The roots that every workload trusts.
pub const ROOT_CERT: &str = "root-cert.pem";
/// What follows the leaf in every handshake.
pub const CERT_CHAIN: &str = "cert-chain.pem";
/// Revocation lists, optional.
pub const CA_CRL: &str = "ca-crl.pem";
/// A key of the Secret that makes istiod take it for its own, self-signed: never written.
pub const ISTIO_GENERATED: &str = "istio-generated";
/// The four that belong together.
pub const REQUIRED: [&str; 4] = [CA_CERT, CA_KEY, ROOT_CERT, CERT_CHAIN];
/// The other layout, of a Secret of type kubernetes.io/tls.
pub const TLS: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// Files by name.
pub type Files = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The files of one `cacerts`, read.
#[derive(Clone, Debug)]
pub struct Cacerts {
    /// The directory or Secret.
    pub place: String,
    /// Names of the files that are there.
    pub present: BTreeSet<String>,
    /// ca-cert.pem, or tls.crt.
    pub ca_cert: PemFile,
    /// root-cert.pem, or ca.crt.
    pub root_cert: PemFile,
    /// cert-chain.pem, or tls.crt and ca.crt.
    pub cert_chain: PemFile,
    /// ca-key.pem or tls.key, if there.
    pub key: Option<Result<KeyFacts, KeyFault>>,
    /// ca-crl.pem, if there.
    pub crls: Option<(Vec<Crl>, Vec<Rejected>)>,
    /// It has the layout of kubernetes.io/tls.
    pub tls: bool,
}

impl Cacerts {
    /// True for a name that belongs to them.
    pub fn knows(name: &str) -> bool {
        REQUIRED.contains(&name) || TLS.contains(&name) || [CA_CRL, ISTIO_GENERATED].contains(&name)
    }

    /// Reads them; `None` if none of their names is there. Istiod takes the four names before those of kubernetes.io/tls.
    pub fn read(place: impl Into<String>, files: &Files) -> Option<Self> {
        let place = place.into();
        let present: BTreeSet<String> = files.keys().filter(|name| Self::knows(name)).cloned().collect();
        if present.iter().all(|name| [CA_CRL, ISTIO_GENERATED].contains(&name.as_str())) {
            return None;
        }
        let tls = !REQUIRED.iter().any(|name| present.contains(*name));
        let [ca, key, root] = if tls { TLS } else { [CA_CERT, CA_KEY, ROOT_CERT] };
        let bytes = |name: &str| files.get(name).map_or(&[][..], |bytes| bytes.as_slice());
        let file = |name: &str| PemFile::read(format!("{place}/{name}"), bytes(name));
        let mut cert_chain = if tls { file(ca) } else { file(CERT_CHAIN) };
        if tls {
            cert_chain.certificates.extend(file(root).certificates);
        }
        Some(Self {
            ca_cert: file(ca),
            root_cert: file(root),
            cert_chain,
            key: files.get(key).map(|pem| KeyFacts::read(pem)),
            crls: files.get(CA_CRL).map(|pem| read_crls(pem)),
            place,
            present,
            tls,
        })
    }

    /// Path of one of its files.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }
}

#[cfg(test)]
mod tests;
