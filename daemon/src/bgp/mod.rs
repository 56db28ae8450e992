//! placeholder
#![allow(unused)]
#![allow(missing_docs)]

mod config;
use std::time::{Duration, SystemTime};

pub use config::*;
#[derive(Clone)]
pub struct Handle;
pub struct NeighborStatus { pub name: String, pub state_reason: String }
impl NeighborStatus { pub fn is_established(&self) -> bool { false } }
impl Handle {
    pub async fn neighbors(&self) -> Vec<NeighborStatus> { vec![] }
    pub async fn apply(&self, _: Config) -> Result<Vec<String>, std::io::Error> { Ok(vec![]) }
}
pub async fn start(_: Config, _: crate::routes::Board, _: &crate::lifecycle::Readiness, t: crate::lifecycle::CancellationToken) -> Result<(Handle, tokio::task::JoinHandle<()>), std::io::Error> { Ok((Handle, tokio::spawn(async move { t.cancelled().await }))) }
