//! The PKI of a fabric as a pure library: no files, no sockets, no clock; time and serial numbers are arguments.
//!
//! One trust domain per fabric, an offline root, one CA per site, X.509-SVIDs below it (`profile` has the table).
//! [`id`] parses SPIFFE IDs, [`key`] holds private keys, [`csr`] believes a request's public key and nothing else,
//! [`authority`] issues and revokes, [`shamir`] and [`share`] split what opens the root, [`plan`] and [`transcript`] are what an auditor
//! reads; [`bundle`] reads roots and chains, [`verify`] and [`jwt`] decide whom to believe, [`crl`] whom no longer, [`audit`] makes and
//! checks the issuer's log, [`inspect`] explains a file.
//! For the programs of others: [`x509`] reads what their CAs make, [`families`] says what their verifiers say, [`istio`] plans what
//! istiod is given, [`doctor`] examines meshes.
//! [`text`] makes what files say fit for a terminal.
//! [`charter`] is the fabric's signed constitution, [`rotation`] the order in which keys change hands without anybody noticing.

#![forbid(unsafe_code)]

pub mod audit;
pub mod authority;
pub mod blocks;
pub mod bundle;
pub mod charter;
pub mod crl;
pub mod csr;
pub mod doctor;
pub mod facts;
pub mod families;
pub mod id;
pub mod inspect;
pub mod istio;
mod json;
pub mod jwt;
pub mod key;
pub mod keyhash;
pub mod kubernetes;
pub mod plan;
pub mod profile;
pub mod renewal;
pub mod rotation;
pub mod shamir;
pub mod share;
pub mod signed_by;
pub mod statement;
pub mod text;
pub mod transcript;
pub mod verify;
pub mod words;
pub mod x509;

pub use authority::{Authority, Issued};
pub use bundle::{Bundle, TrustStore};
pub use charter::Charter;
pub use crl::{Crl, CrlError};
pub use facts::Facts;
pub use id::{SpiffeId, TrustDomain};
pub use isthmus_token as token;
pub use key::{Curve, Key, PublicKey};
pub use keyhash::KeyHash;
pub use profile::{Profile, Serial};

#[cfg(test)]
mod testing;
