//! `[identity]`, `[issuer]`, `[workload_api]`: from the file's words to configurations that cannot be wrong.

use std::{path::PathBuf, time::Duration};

/// A validated `[identity]` section. Files are loaded by [`super::Material`], so that a reload re-reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// PEM file with the root certificate(s).
    pub trust_bundle: PathBuf,
    /// PEM file: node certificate, then its site CA.
    pub svid: PathBuf,
    /// PEM file, PKCS#8: the node certificate's key.
    pub key: PathBuf,
}

/// A validated `[issuer]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerConfig {
    /// PEM file: the site CA's certificate.
    pub certificate: PathBuf,
    /// PEM file, PKCS#8: the site CA's key.
    pub key: PathBuf,
}

/// A validated `[workload_api]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadApiConfig {
    /// Unix socket, default `/run/isthmus/workload.sock`.
    pub socket: PathBuf,
    /// Registration entries.
    pub entries: Vec<Entry>,
}

/// A validated `[[workload_api.entry]]`: who gets which identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path within the trust domain, for example `/ns/payments/sa/api`.
    pub path: String,
    /// All of them must hold.
    pub selectors: Vec<Selector>,
    /// Lifetime of an SVID, 1 min..=24 h.
    pub ttl: Duration,
    /// DNS names put beside the SPIFFE ID.
    pub dns_names: Vec<String>,
}

/// What can be known of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `unix:uid:N`
    Uid(u32),
    /// `unix:gid:N`
    Gid(u32),
}
