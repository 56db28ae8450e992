//! The arithmetic of the TUN device's offloads: what the kernel would leave to a network card is done here.
//!
//! - [`vnet`]: the header in front of each packet of the device;
//! - [`split`]: a burst that the kernel did not cut (TSO, USO) becomes packets with lengths, numbers and checksums of their own;
//! - [`merge`]: packets of one flow become a burst that the kernel takes as one (GRO).

pub mod merge;
pub mod split;
pub mod vnet;
