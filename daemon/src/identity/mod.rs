//! Identity: the node's own SVID, issuing to workloads, the Workload API, and TLS between SPIFFE identities.
//!
//! [`start`] loads and checks every file, binds the Workload API's socket and returns a [`Handle`]. [`Handle::apply`] does the same
//! for a changed configuration: it validates all, then applies; on an error the old state stays as it was.
//!
//! `handle` is the door; behind it `loading` makes `loaded` out of files, `serving` binds the sockets, `changing` carries each change out
//! and hands the result to all who go by it, `mending` tries again what could not be loaded, `hearing` takes what other nodes say,
//! `again` what was refused of it at first, `watching` sees files that were swapped, and `condition` says how it is.

mod again;
pub mod attest;
pub mod audit;
mod certificates;
mod changing;
mod clock;
mod condition;
mod config;
pub mod enroll;
mod error;
pub mod federation;
mod files;
mod handle;
mod hearing;
mod issuing;
mod loaded;
mod loading;
#[cfg(test)]
mod log_watch;
mod material;
mod mending;
mod orders;
mod own;
mod publishing;
mod registration;
pub mod rotation;
pub mod sds;
mod serving;
mod standing;
mod supplier;
mod template;
#[cfg(test)]
mod tests;
pub mod tls;
mod trust;
mod watching;
mod workload;

pub use certificates::{CertificateInfo, Kind};
pub use condition::Condition;
pub use config::*;
pub use error::Error;
pub(crate) use federation::RawFederationConfig;
pub use federation::{Federation, FederationConfig, FederationError};
pub use files::FileError;
pub use handle::{Handle, start};
pub use issuing::{Certified, Error as IssuerError, Issuer, JwtSvid, Limited, Requester, SiteCa, Svid};
pub use loading::check;
pub use material::{Error as MaterialError, Material};
pub use orders::Noted;
pub use own::{Error as OwnError, Own};
pub use registration::{Error as EntryError, Identity, MAX_IDENTITIES, Registry};
pub use standing::{Live, Standing};
pub use trust::Trust;
pub use workload::{Limits, Settings};
