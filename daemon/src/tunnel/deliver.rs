//! From opened packets to the TUN device: who may send from where, what congestion was met, and as few writes as possible.

use std::io::{self, IoSlice};

use isthmus_tunnel::{
    buffer::Opened,
    counters::Drop,
    ecn, mss,
    offload::{
        merge::{Group, MAX_SEGMENTS, Merger, Rules},
        vnet::{self, VnetHeader},
    },
    packet,
    table::{Router, Slot},
};

use super::{
    engine::Engine,
    offload::{Offload, Offloads},
    peer::Peer,
    snapshot::Snapshot,
    tun::{Queue, Sink},
};

/// What is written before more than this many bytes wait for it: one burst of the largest size.
const ENOUGH: usize = 60 * 1024;
/// Pieces of one write: virtio header, headers, payloads.
const PIECES: usize = MAX_SEGMENTS + 2;

/// Merges and writes; one for each thread that does.
pub(super) struct Deliverer {
    merger: Merger,
    tunnels: bool,
}

/// The delivery of one received batch.
pub(super) struct Delivery<'s, 'a> {
    merger: &'s mut Merger,
    engine: &'s Engine,
    snapshot: &'s Snapshot,
    router: Router<'s>,
    queue: &'s Queue,
    packets: Vec<&'a [u8]>,
    bytes: usize,
}

impl Deliverer {
    pub(super) fn new() -> Self {
        Self { merger: Merger::new(Rules::default()), tunnels: kernel_keeps_merged_tunnels() }
    }

    pub(super) fn start<'s, 'a>(
        &'s mut self,
        engine: &'s Engine,
        snapshot: &'s Snapshot,
        queue: &'s Queue,
    ) -> Delivery<'s, 'a> {
        self.merger.set_rules(rules(&engine.offloads, self.tunnels));
        Delivery {
            merger: &mut self.merger,
            engine,
            snapshot,
            router: snapshot.table.router(),
            queue,
            packets: Vec::new(),
            bytes: 0,
        }
    }
}

fn rules(offloads: &Offloads, tunnels: bool) -> Rules {
    Rules {
        tcp: offloads.is_on(Offload::TunTcpGro),
        udp: offloads.is_on(Offload::TunUdpGro),
        verify: true,
        tunnels,
    }
}

/// Kernels before 6.8.5 lose merged VXLAN and Geneve.
fn kernel_keeps_merged_tunnels() -> bool {
    let release = nix::sys::utsname::uname().ok().and_then(|name| name.release().to_str().map(version));
    release.is_some_and(|version| version >= [6, 8, 5])
}

/// The first three numbers of "6.8.5-1-amd64".
fn version(release: &str) -> [u32; 3] {
    let numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut version = [0; 3];
    version.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = number);
    version
}

impl<'a> Delivery<'_, 'a> {
    /// Takes what a peer sent; what it may not send is dropped and counted.
    pub(super) fn accept(&mut self, slot: Slot, opened: impl Iterator<Item = Opened<'a>>) {
        let Some(peer) = self.snapshot.peer(slot) else { return };
        let tap = self.engine.tap.load();
        for opened in opened {
            match check(&mut self.router, slot, peer, opened) {
                Ok(packet) if tap.as_ref().is_some_and(|tap| tap.takes(&peer.name, packet)) => {}
                Ok(packet) => {
                    self.bytes += packet.len();
                    self.packets.push(packet);
                }
                Err(reason) => peer.counters.drops.add(reason, 1),
            }
        }
        if self.bytes >= ENOUGH {
            self.flush();
        }
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        let (engine, queue) = (self.engine, self.queue);
        for group in self.merger.merge(&self.packets) {
            write(engine, queue, &group);
        }
        self.packets.clear();
        self.bytes = 0;
    }
}

/// The packet without its padding, if it is one and this peer may send from its source.
fn check<'a>(router: &mut Router<'_>, slot: Slot, peer: &Peer, opened: Opened<'a>) -> Result<&'a [u8], Drop> {
    let Opened { bytes, ecn } = opened;
    let packet = packet::parse(bytes).map_err(|_| Drop::Malformed)?;
    if !router.is_feasible(packet.source, slot) {
        return Err(Drop::SourceNotFeasible);
    }
    let length = packet.bytes.len();
    let bytes = &mut bytes[..length];
    ecn::decapsulate(bytes, ecn).map_err(|_| Drop::CongestionLost)?;
    if mss::is_syn(bytes) {
        mss::clamp(bytes, peer.session.mtu());
    }
    Ok(bytes)
}

/// Writes a group; if the kernel does not take it as a burst, its packets one by one.
fn write(engine: &Engine, sink: &impl Sink, group: &Group<'_, &[u8]>) {
    let Err(error) = write_group(sink, group) else {
        engine.batches.tun_write.record(u64::try_from(group.count()).unwrap_or(u64::MAX));
        return;
    };
    if group.count() == 1 {
        return refused(engine, &error);
    }
    if error.raw_os_error() == Some(libc::EINVAL) {
        engine.offloads.refuse(offload_of(group), format!("the kernel refuses a burst: {error}"));
    }
    for packet in group.packets() {
        match sink.write_packet(packet) {
            Ok(()) => engine.batches.tun_write.record(1),
            Err(error) => refused(engine, &error),
        }
    }
}

fn refused(engine: &Engine, error: &io::Error) {
    tracing::trace!(%error, "the kernel refuses an inner packet");
    engine.drops.add(Drop::TunWrite, 1);
}

fn offload_of(group: &Group<'_, &[u8]>) -> Offload {
    match VnetHeader::parse(group.vnet).gso_type {
        vnet::GSO_UDP_L4 => Offload::TunUdpGro,
        _ => Offload::TunTcpGro,
    }
}

fn write_group(sink: &impl Sink, group: &Group<'_, &[u8]>) -> io::Result<()> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    pieces[0] = IoSlice::new(&group.vnet);
    pieces[1] = IoSlice::new(group.head);
    let mut used = 2;
    for (piece, payload) in pieces[2..].iter_mut().zip(group.payloads()) {
        *piece = IoSlice::new(payload);
        used += 1;
    }
    sink.write(&pieces[..used])
}

/// Asks the kernel whether it takes bursts, with some that it drops for the checksum of their IP header: some versions refuse them.
pub(super) fn self_test(engine: &Engine) {
    let Some(queue) = engine.tun.queues().first() else { return };
    for (offload, burst) in [(Offload::TunTcpGro, probe(true)), (Offload::TunUdpGro, probe(false))] {
        if !engine.offloads.is_on(offload) {
            continue;
        }
        let (header, packet) = burst;
        if let Err(error) = queue.write(&[IoSlice::new(&header), IoSlice::new(&packet)]) {
            engine.offloads.refuse(offload, format!("the kernel refuses a burst: {error}"));
        }
    }
}

/// A burst of two segments of 8 bytes, sound but for the checksum of its IP header.
fn probe(tcp: bool) -> ([u8; vnet::LENGTH], Vec<u8>) {
    let transport = if tcp { 20 } else { 8 };
    let total = 20 + transport + 16;
    let mut packet = vec![0; usize::from(total)];
    (packet[0], packet[3], packet[8]) = (0x45, total, 1);
    packet[9] = if tcp { 6 } else { 17 };
    // From and to addresses for documentation (RFC 5737).
    packet[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    if tcp {
        (packet[32], packet[33]) = (0x50, 0x10);
    } else {
        packet[25] = total - 20;
    }
    let header = VnetHeader {
        flags: vnet::NEEDS_CSUM,
        gso_type: if tcp { vnet::GSO_TCPV4 } else { vnet::GSO_UDP_L4 },
        hdr_len: u16::from(20 + transport),
        gso_size: 8,
        csum_start: 20,
        csum_offset: if tcp { 16 } else { 6 },
    };
    (header.encode(), packet)
}

#[cfg(test)]
mod tests;
