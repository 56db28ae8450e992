//! The Isthmus daemon as a library, so that tests and benches can run its parts.
//!
//! `docs/architecture.md` is the map. Subsystems do not import each other; they meet at the board in [`routes`], and only `app`
//! knows them all.

pub mod api;
pub mod app;
pub mod bgp;
pub mod config;
mod connections;
mod descriptors;
pub mod fib;
pub mod identity;
mod leash;
pub mod lifecycle;
mod log_limit;
pub mod metrics;
mod prefixes;
pub mod routes;
pub mod scrape;
pub mod secret;
pub mod secret_file;
pub mod tunnel;
pub mod unix_socket;
mod wall_clock;
