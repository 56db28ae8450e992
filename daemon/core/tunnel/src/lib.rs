//! The tunnel engine without its sockets: what to do with a packet, never how it got here.
//!
//! Two directions, both in batches:
//! - out: [`packet::parse`] an inner packet, [`table::Table::route`] it to a peer, [`peer::Peer::seal`] the peer's share of the batch;
//! - in: [`receive::Receiver::classify`] a datagram to a peer, [`peer::Peer::open`] a run of them, [`packet::parse`] what came out and
//!   ask [`table::Table::is_feasible`] whether that peer may speak for that source.
//!
//! Only [`peer`], [`receive`] and [`admission`] know the wire format, WireGuard's; the cryptography under it is in `noise` and `session`.
//! Time and randomness are arguments.

#![forbid(unsafe_code)]

pub mod admission;
pub mod buffer;
pub mod checksum;
pub mod clock;
pub mod counters;
pub mod ecn;
pub mod fragment;
mod headers;
pub mod icmp;
pub mod limiter;
pub mod mss;
mod noise;
pub mod offload;
pub mod packet;
pub mod path_mtu;
pub mod peer;
pub mod plaintext;
pub mod receive;
pub mod replay;
mod session;
pub mod table;
#[cfg(test)]
mod testing;
pub mod x25519;

pub use clock::Now;
pub use noise::Identity;

/// Bytes that the tunnel adds to an inner packet: 16 of header, 16 of authentication tag.
pub const OVERHEAD: usize = 32;
