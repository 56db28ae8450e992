//! Who a caller of the Workload API is found to be, by real processes, cgroups and a kubelet played by an HTTPS server.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "attestation/cgroups.rs"]
mod cgroups;
#[path = "attestation/kubelet.rs"]
mod kubelet;
#[path = "attestation/pods.rs"]
mod pods;
#[path = "attestation/programs.rs"]
mod programs;
#[path = "attestation/rig.rs"]
mod rig;
#[path = "attestation/units.rs"]
mod units;
