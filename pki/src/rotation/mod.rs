//! Rotation and incidents as a state machine: what changes hands when, and what must be true before it may.
//!
//! ```text
//! site CA   prepare --> requested --install--> prepared --activate--> active --next activate--> retiring --last leaf dead--> gone
//!                                                  \________________ taint ________________/
//!                                                                     |--> tainted --CRL known--> revoked
//! root      publish (both in the charter) --> 3 refresh hints, every known node has it, Istio's cacerts have it
//!             --> activate a site CA under the new root --> its leaves reissued, the old CA's last leaf dead --> retire (old one dropped)
//! ```
//!
//! How to drive it: keep one [`State`] and one [`Fleet`] a node. For a command call [`plan`]; it answers with the [`Effect`]s in the
//! order in which they must happen, or with a [`Refusal`] that names every obstacle. Carry each out, and [`State::apply`] it, before the
//! next; write the state down after each. A dry run is a plan that nobody carries out. [`State::next_due`] says when to ask
//! [`State::due`] for what time alone brings. [`progress`] says what is done and what is waited for.
//!
//! Time is seconds since the Unix epoch, an argument everywhere.

mod command;
mod fleet;
mod plan;
mod progress;
mod refusal;
mod state;
pub mod taint;
#[cfg(test)]
mod tests;

pub use command::{CaFacts, CharterView, Command, Effect, Order, RootView};
pub use fleet::{Fleet, Lag, MAX_NODES, Report};
pub use plan::{ISTIO_CAVEAT, JITTER, URGENT, plan};
pub use progress::{Line, Status, progress};
pub use refusal::{Obstacle, Refusal};
pub use state::{Ca, CharterSeen, KnownRoot, Phase, Reissue, State};
