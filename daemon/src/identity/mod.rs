//! Identity: the node's own SVID, issuing to workloads, the Workload API, and TLS between SPIFFE identities.
//!
//! [`start`] loads and checks every file, binds the Workload API's socket and returns a [`Handle`]. [`Handle::apply`] does the same
//! for a changed configuration: it validates all, then applies; on an error the old state stays as it was.

pub mod attest;
pub mod audit;
mod certificates;
mod config;
pub mod enroll;
pub mod federation;
mod files;
mod handle;
mod issuing;
#[cfg(test)]
mod log_watch;
mod material;
mod own;
mod publishing;
mod registration;
pub mod rotation;
pub mod sds;
mod standing;
mod supplier;
mod template;
#[cfg(test)]
mod tests;
pub mod tls;
mod trust;
mod workload;

pub use certificates::{CertificateInfo, Kind};
pub use config::*;
pub(crate) use federation::RawFederationConfig;
pub use federation::{Federation, FederationConfig, FederationError};
pub use files::FileError;
pub use handle::{Condition, Error, Handle, check, start};
pub use issuing::{Certified, Error as IssuerError, Issuer, JwtSvid, Limited, Requester, SiteCa, Svid};
pub use material::{Error as MaterialError, Material};
pub use own::{Error as OwnError, Own};
pub use registration::{Error as EntryError, Identity, MAX_IDENTITIES, Registry};
pub use standing::{Live, Standing};
pub use trust::Trust;
pub use workload::{Limits, Settings};
