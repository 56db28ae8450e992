//! Which peer carries a packet, and in which shape.

use std::{net::IpAddr, time::Instant};

use isthmus_tunnel::{
    buffer::Plaintext,
    counters::Drop,
    mss,
    offload::{
        split::{Split, split},
        vnet::{self, VnetHeader},
    },
    packet::{self, Packet},
    table::{self, Slot},
};

use super::{
    guard::Guard,
    notices::Notices,
    work::{Pieces, Work},
};
use crate::tunnel::{engine::Engine, peer::Peer, snapshot::Snapshot, tun::Queue};

/// No IPv6 link is narrower (RFC 8200 section 5): a packet of this size is carried whatever the path, in fragments if need be.
const V6_LEAST: u16 = 1280;

/// Routes the packets of one batch.
pub(super) struct Router<'a> {
    engine: &'a Engine,
    snapshot: &'a Snapshot,
    table: table::Router<'a>,
    guard: &'a mut Guard,
    notices: &'a mut Notices,
    queue: &'a Queue,
    now: Instant,
    /// How many there are in the burst at hand.
    packets: u64,
}

/// What there is to know about a packet before it changes shape.
struct Facts {
    peer: Slot,
    /// Bytes that belong to the packet.
    length: usize,
    v6: bool,
    destination: IpAddr,
}

impl<'a> Router<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        snapshot: &'a Snapshot,
        guard: &'a mut Guard,
        notices: &'a mut Notices,
        queue: &'a Queue,
        now: Instant,
    ) -> Self {
        Self { engine, snapshot, table: snapshot.table.router(), guard, notices, queue, now, packets: 0 }
    }

    /// What is to be done with what one read yielded; `None`: dropped and counted, and its sender told if it may learn from that.
    pub(super) fn route<'p>(&mut self, bytes: &'p mut [u8]) -> Option<Work<'p>> {
        self.packets = 1;
        let Some((header, packet)) = bytes.split_first_chunk_mut::<{ vnet::LENGTH }>() else {
            return self.drop(Drop::Malformed);
        };
        let header = VnetHeader::parse(*header);
        self.packets = packets(header, packet.len());
        self.engine.batches.tun_read.record(self.packets);
        let facts = match packet::parse(packet) {
            Ok(parsed) => self.facts(&parsed)?,
            Err(_) => return self.drop(Drop::Malformed),
        };
        let peer = self.snapshot.peer(facts.peer)?;
        let mtu = peer.session.mtu();
        let most = if facts.v6 { mtu.max(V6_LEAST) } else { mtu };
        let packet = &mut packet[..facts.length];
        match shape(header, packet, mtu) {
            Ok(split) => {
                self.packets = u64::try_from(split.len()).unwrap_or(u64::MAX);
                self.fit(split, peer, &facts, most)
            }
            Err(_) => self.drop(Drop::Malformed),
        }
    }

    fn facts(&mut self, packet: &Packet<'_>) -> Option<Facts> {
        let sealed_for = self.guard.sealed_for(self.snapshot, self.engine.port(), packet, self.now);
        if let Some(peer) = sealed_for.and_then(|slot| self.snapshot.peer(slot)) {
            peer.counters.drops.add(Drop::OwnOuterPacket, self.packets);
            return None;
        }
        let Some(peer) = self.table.route(packet) else { return self.drop(Drop::NoRoute) };
        let (length, v6) = (packet.bytes.len(), packet.source.is_ipv6());
        Some(Facts { peer, length, v6, destination: packet.destination })
    }

    /// A packet that is too long for the path to its peer goes in fragments if its sender allows that; else the sender is told.
    fn fit<'p>(&mut self, split: Split<'p>, peer: &Peer, facts: &Facts, most: u16) -> Option<Work<'p>> {
        let first = split.clone().next()?;
        if first.len() <= usize::from(most) {
            return Some(Work { peer: facts.peer, pieces: Pieces::Segments(split) });
        }
        if let Some(pieces) = Pieces::fragments(split, most) {
            return Some(Work { peer: facts.peer, pieces });
        }
        peer.counters.drops.add(Drop::TooBig, self.packets);
        self.notices.too_big(&first, most, facts.destination, self.queue, self.now);
        None
    }

    fn drop<T>(&self, reason: Drop) -> Option<T> {
        self.engine.drops.add(reason, self.packets);
        None
    }
}

/// About how many packets a burst of so many bytes is, headers included: the header's word for their length is a hint.
fn packets(header: VnetHeader, bytes: usize) -> u64 {
    let payload = bytes.saturating_sub(header.hdr_len.into());
    let count = if header.gso_size == 0 { 1 } else { payload.div_ceil(header.gso_size.into()).max(1) };
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Cuts a burst; completes checksums. The first packet of a TCP connection is told how much fits: both ends then send no more.
fn shape(
    header: VnetHeader,
    packet: &mut [u8],
    mtu: u16,
) -> Result<Split<'_>, isthmus_tunnel::offload::split::Malformed> {
    if !mss::is_syn(packet) || header.gso_type != vnet::GSO_NONE {
        return split(header, packet);
    }
    // The checksum must be whole before anything under it changes.
    split(header, packet)?;
    mss::clamp(packet, mtu);
    split(VnetHeader::default(), packet)
}
