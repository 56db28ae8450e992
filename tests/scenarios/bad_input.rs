//! What the network, local users and operators get wrong: nothing of it stops a node, and each refusal says why and what to do.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "bad_input/hostile.rs"]
mod hostile;
#[path = "bad_input/refusals.rs"]
mod refusals;
#[path = "bad_input/start.rs"]
mod start;
