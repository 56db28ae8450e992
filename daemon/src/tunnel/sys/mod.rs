//! The system calls that have no safe wrapper elsewhere.

mod address;
mod control;
mod device;
mod incoming;
mod options;
mod outgoing;

pub(super) use device::{Queues, attach, interface_index, set_offload, set_vnet_header_size};
pub(super) use incoming::ReceiveBatch;
pub(super) use options::{accept_merged, discover_mtu, keep_fragments_possible, report_packet_info};
pub(super) use outgoing::{Message, SendSpace};

#[cfg(test)]
mod tests;
