//! The line that tells of the run every minute.

use super::{flows::Flows, vitals::Vitals};

/// After this minute of so many.
pub(super) fn minute(minute: u32, of: u32, flows: &Flows, vitals: &Vitals) -> String {
    let ((sent, received), ([near, far], rekeys)) = (flows.datagrams(), vitals.now());
    format!(
        "minute {minute}/{of}: TCP {:.2} GB, UDP {} of {sent} not arrived, {rekeys} rekeys, RSS {near:.1} and {far:.1} MiB\n",
        flows.tcp_octets() as f64 / 1e9,
        sent.saturating_sub(received),
    )
}
