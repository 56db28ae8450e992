//! The rules of Envoy's secret discovery, version 3, without any socket: which secrets a name stands for, and when a stream answers.
//!
//! [`Names::plan`] turns the names that a client asks for into [`Item`]s, [`secret`] builds one of them, and a [`Session`] follows one
//! stream: feed it each request, hand it the resources whenever they may have changed, send what it gives back.

mod names;
mod secret;
mod session;

pub use names::{Item, Kind, Names, NotEntitled, Offer};
pub use secret::{Anchors, Certificate, all_bundles, bundle, certificate};
pub use session::{Malformed, Session, Step, TYPE_URL};
