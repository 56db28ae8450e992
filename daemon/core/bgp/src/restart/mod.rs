//! Graceful restart (RFC 4724, RFC 8538): routes outlive the session that brought them.
//!
//! [`Keeper`] is our part while a peer restarts, the receiving speaker's: what it announced is kept, marked stale, and used as long as
//! nothing better is there. [`Deferral`] is our part when we have restarted: what the kernel still forwards is left alone until the
//! peers have told all they know. [`Departure`] is how we go. All three are pure: events and time in, orders out.

mod deferral;
mod departure;
mod keeper;

pub use deferral::Deferral;
pub use departure::{Departure, Parting};
pub use keeper::{Keeper, KeeperConfig, Order};

#[cfg(test)]
pub(crate) use keeper::tests::agreement;
