//! Pure core of the BGP speaker: bytes and time in, bytes and decisions out.
//!
//! [`Speaker`] is what a driver talks to; it owns one [`fsm::Session`] for each peer, the [`rib::Rib`] and what each peer was told
//! ([`adj_out::AdjOut`]). [`wire`] turns bytes into messages that cannot be wrong and back. Nothing here opens a socket, reads a
//! clock or draws a random number: time is an argument, and randomness comes from a seed.
//!
//! RFCs: 4271 (BGP-4), 4760 (other address families), 5492 (capabilities), 6793 (4-octet AS numbers), 6286 (identifiers), 6608
//! (FSM error subcodes), 7606 (error handling), 7607 (AS 0), 9774 (no AS_SET), 1997 and 8092 (communities), 2545 and 8950 (IPv6 next
//! hops), 4456 (reflection), 4486, 9003 and 9384 (Cease), 4724 and 8538 (graceful restart), 8326 (graceful shutdown), 2918 and 7313
//! (route refresh), 7911 (several paths), 8212 (no policy, no routes), 9072 (long OPEN), 9234 (roles), 9687 (send hold timer), 6396 and
//! 8050 (table dumps).
#![forbid(unsafe_code)]

pub mod adj_out;
pub mod dynamic;
mod family;
pub mod fsm;
pub mod mrt;
pub mod policy;
pub mod refresh;
pub mod restart;
pub mod rib;
pub mod speaker;
pub mod wire;

pub use family::{Families, Family};
pub use policy::Policy;
pub use speaker::{
    AddPathSelection, Config, ConnectionId, DynamicPeers, Event, ExportReport, Guards, Member, Messages,
    Multipath, NextHopMode, PathReport, PeerConfig, PeerDetail, PeerId, PeerStatus, Refused, Reset,
    RestartConfig, RestartMode, Speaker,
};

/// AS_TRANS, the number that stands for a 4-octet one where only two octets fit (RFC 6793 section 9).
pub const AS_TRANS: u32 = 23_456;
