//! Real daemons against what went wrong with other tunnels, and against networks that mean harm.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "datapath/addresses.rs"]
mod addresses;
#[path = "datapath/batches.rs"]
mod batches;
#[path = "datapath/churn.rs"]
mod churn;
#[path = "datapath/common.rs"]
mod common;
#[path = "datapath/ecmp.rs"]
mod ecmp;
#[path = "datapath/ecn.rs"]
mod ecn;
#[path = "datapath/flood.rs"]
mod flood;
#[path = "datapath/network.rs"]
mod network;
#[path = "datapath/peers.rs"]
mod peers;
#[path = "datapath/roaming.rs"]
mod roaming;
#[path = "datapath/underlay.rs"]
mod underlay;
#[path = "datapath/workers.rs"]
mod workers;
