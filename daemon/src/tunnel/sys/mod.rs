//! The system calls that have no safe wrapper elsewhere.

mod batch;
mod device;

pub(super) use batch::{BATCH, ReceiveBatch, send};
pub(super) use device::{interface_index, set_interface, set_offload, set_vnet_header_size};
