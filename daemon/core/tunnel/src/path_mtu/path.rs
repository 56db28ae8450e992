//! One outer path: what it costs around an inner packet, what is known about it, and how to say so.

use std::{fmt, net::SocketAddr};

use super::{
    FLOOR, Kind, LENGTH, Message,
    search::{Failure, Search},
};
use crate::OVERHEAD;

const UDP_HEADER: u16 = 8;

#[derive(Debug)]
pub(super) struct Path {
    pub(super) remote: SocketAddr,
    pub(super) search: Search,
}

/// A message to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What to send. It comes to [`Message::length`] bytes of payload.
    pub message: Message,
    /// The size of its outer packet in bytes, IP header included.
    pub outer_size: u16,
}

/// What is known about a path, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No session yet, or the far end has not said yet what it is.
    Unknown,
    /// The far end did not answer: another implementation, or nobody.
    Foreign,
    /// Sizes are being tried.
    Searching,
    /// A full inner packet passes.
    Whole,
    /// This is the largest size that passes; larger ones are lost on the way.
    Limited,
    /// This is the largest size that passes; our own kernel refuses larger ones.
    Refused,
    /// The far end answers, but nothing larger than [`FLOOR`] passes.
    Floor,
}

impl Path {
    pub(super) fn new(remote: SocketAddr, ceiling_inner: u16) -> Self {
        Self { remote, search: Search::new(FLOOR, ceiling_inner.saturating_add(overhead(remote))) }
    }

    pub(super) fn probe(&self, id: u32, outer_size: u16) -> Probe {
        let size = outer_size.saturating_sub(overhead(self.remote));
        Probe { message: Message { kind: Kind::Probe, id, size }, outer_size }
    }

    pub(super) fn hello(&self, id: u32) -> Probe {
        let size = u16::try_from(LENGTH).expect("16");
        Probe { message: Message { kind: Kind::Hello, id, size }, outer_size: size + overhead(self.remote) }
    }

    /// The largest inner packet that fits, once anything is known.
    pub(super) fn inner_mtu(&self, ceiling: u16) -> Option<u16> {
        let room = self.search.known()?.saturating_sub(overhead(self.remote));
        Some(room.min(ceiling))
    }

    pub(super) fn state(&self) -> State {
        match self.search.failure() {
            _ if self.search.is_at_ceiling() => State::Whole,
            Some(Failure::Refused) => State::Refused,
            _ if self.search.is_at_floor() => State::Floor,
            Some(Failure::Lost) | None => State::Limited,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unknown => "not known yet",
            Self::Foreign => "the far end does not answer path probes",
            Self::Searching => "trying sizes",
            Self::Whole => "a full packet passes",
            Self::Limited => "larger packets are lost on the way",
            Self::Refused => "this node's kernel refuses larger packets",
            Self::Floor => "nothing above the floor passes",
        })
    }
}

/// Bytes around an inner packet: outer IP header, UDP header and the tunnel's own. IPv4 in IPv6 form is IPv4.
fn overhead(remote: SocketAddr) -> u16 {
    let ip = if remote.ip().to_canonical().is_ipv4() { 20 } else { 40 };
    ip + UDP_HEADER + u16::try_from(OVERHEAD).expect("32")
}
