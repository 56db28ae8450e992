//! Pure core of the BGP speaker: bytes and time in, bytes and decisions out.
//!
//! [`Speaker`] is what a driver talks to; it owns one [`fsm::Session`] for each peer, the [`rib::Rib`] and what each peer was told
//! ([`adj_out::AdjOut`]). [`wire`] turns bytes into messages that cannot be wrong and back. Nothing here opens a socket, reads a
//! clock or draws a random number: time is an argument, and randomness comes from a seed.
//!
//! RFCs: 4271 (BGP-4), 4760 (other address families), 5492 (capabilities), 6793 (4-octet AS numbers), 6286 (identifiers), 6608 (FSM
//! error subcodes), 7606 (error handling), 7607 (AS 0), 9774 (no AS_SET), 1997 (communities), 2545 (IPv6 next hops), 4486 and 9003 (Cease),
//! 4724 and 8538 (graceful restart), 2918 and 7313 (route refresh), 7911 (add-path), 8950 (IPv6 next hops), 9234 (roles), 9384 (BFD
//! Cease), 8212 (no policy, no routes), 9072 (long OPEN), 9687 (send hold timer).
#![forbid(unsafe_code)]

pub mod adj_out;
pub mod dynamic;
mod family;
pub mod fsm;
pub mod policy;
pub mod refresh;
pub mod restart;
pub mod rib;
pub mod speaker;
pub mod wire;

pub use family::{Families, Family};
pub use policy::Policy;
pub use speaker::{
    AddPathSelection, Config, ConnectionId, Event, Guards, Multipath, NextHopMode, PeerConfig, PeerId,
    PeerStatus, Refused, Speaker,
};

/// AS_TRANS, the number that stands for a 4-octet one where only two octets fit (RFC 6793 section 9).
pub const AS_TRANS: u32 = 23_456;
