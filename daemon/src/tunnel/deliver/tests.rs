use std::{cell::RefCell, sync::Arc};

use isthmus_tunnel::{
    buffer::Plaintext,
    checksum::{fold, pseudo_v4},
    offload::split::split,
    table::Underlay,
};

use super::*;

#[test]
fn versions_compare_by_number() {
    for (release, good) in [
        ("6.8.5", true),
        ("6.10.0-rc1", true),
        ("6.18.44-fc", true),
        ("6.8.4-generic", false),
        ("5.15.0-105-generic", false),
        ("strange", false),
    ] {
        assert_eq!(version(release) >= [6, 8, 5], good, "{release}");
    }
}

/// Stands in for a TUN device: takes what `refuses` has no error for, and cuts bursts as the kernel does.
struct Kernel<F> {
    refuses: F,
    packets: RefCell<Vec<Vec<u8>>>,
    bursts: RefCell<usize>,
}

impl<F: Fn(&VnetHeader, &[u8]) -> Option<i32>> Kernel<F> {
    fn new(refuses: F) -> Self {
        Self { refuses, packets: RefCell::default(), bursts: RefCell::default() }
    }

    fn packets(&self) -> Vec<Vec<u8>> {
        self.packets.borrow().clone()
    }
}

impl<F: Fn(&VnetHeader, &[u8]) -> Option<i32>> Sink for Kernel<F> {
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let (header, packet) = bytes.split_first_chunk::<{ vnet::LENGTH }>().unwrap();
        let header = VnetHeader::parse(*header);
        if let Some(code) = (self.refuses)(&header, packet) {
            return Err(io::Error::from_raw_os_error(code));
        }
        *self.bursts.borrow_mut() += usize::from(header.gso_type != vnet::GSO_NONE);
        self.packets.borrow_mut().extend(cut(header, packet.to_vec()));
        Ok(())
    }
}

/// The packets of a burst, whole and with their checksums.
fn cut(header: VnetHeader, mut burst: Vec<u8>) -> Vec<Vec<u8>> {
    let whole = |segment: isthmus_tunnel::offload::split::Segment<'_>| {
        let mut bytes = vec![0; segment.len()];
        segment.write(&mut bytes);
        bytes
    };
    split(header, &mut burst).unwrap().map(whole).collect()
}

/// `count` packets of one flow, 100 bytes of payload each.
fn flow(tcp: bool, count: u16, seed: u8) -> Vec<Vec<u8>> {
    let (transport, protocol) = if tcp { (20, 6) } else { (8, 17) };
    let total = 20 + transport + 100 * count;
    let mut packet = vec![0; usize::from(total)];
    (packet[0], packet[6], packet[8], packet[9]) = (0x45, 0x40, 64, protocol);
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    packet[21] = seed;
    if tcp {
        (packet[32], packet[33]) = (0x50, 0x10);
    } else {
        packet[24..26].copy_from_slice(&(total - 20).to_be_bytes());
    }
    let payload = usize::from(20 + transport);
    (0..=u8::MAX).cycle().zip(&mut packet[payload..]).for_each(|(n, byte)| *byte = n ^ seed);
    let sum = fold(pseudo_v4(packet[12..20].first_chunk().unwrap(), protocol, total - 20));
    let offset = if tcp { 16 } else { 6 };
    packet[20 + offset..][..2].copy_from_slice(&sum.to_be_bytes());
    let header = VnetHeader {
        flags: vnet::NEEDS_CSUM,
        gso_type: if tcp { vnet::GSO_TCPV4 } else { vnet::GSO_UDP_L4 },
        hdr_len: 20 + transport,
        gso_size: 100,
        csum_start: 20,
        csum_offset: u16::try_from(offset).unwrap(),
    };
    cut(header, packet)
}

fn engine() -> Engine {
    let snapshot = Snapshot::new(vec![], &[], Underlay::default());
    let tun = crate::tunnel::tun::tests::none();
    Engine::new(snapshot, vec![], tun, Offloads::new(|_| true), Arc::default()).unwrap()
}

/// What a thread does with a batch that may enter.
fn deliver(engine: &Engine, kernel: &impl Sink, batch: &[Vec<u8>]) {
    let mut merger = Merger::new(rules(&engine.offloads, true));
    let packets: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    merger.merge(&packets).for_each(|group| write(engine, kernel, &group));
}

fn status(engine: &Engine, offload: Offload) -> (bool, String) {
    let status = engine.offloads.status();
    let status = status.into_iter().find(|status| status.offload == offload).unwrap();
    (status.active, status.reason)
}

const BOTH: [(bool, Offload, Offload); 2] =
    [(true, Offload::TunTcpGro, Offload::TunUdpGro), (false, Offload::TunUdpGro, Offload::TunTcpGro)];

fn is_udp(header: &VnetHeader) -> bool {
    header.gso_type == vnet::GSO_UDP_L4
}

#[test]
fn a_kernel_that_refuses_bursts_gets_every_packet_in_order() {
    for (tcp, refused, other) in BOTH {
        let engine = engine();
        let kernel = Kernel::new(|header: &VnetHeader, _: &[u8]| {
            (header.gso_type != vnet::GSO_NONE && is_udp(header) != tcp).then_some(libc::EINVAL)
        });
        let first = flow(tcp, 20, 1);
        deliver(&engine, &kernel, &first);
        assert_eq!(kernel.packets(), first);
        let (active, reason) = status(&engine, refused);
        assert!(!active && reason.contains("refuses a burst: Invalid argument"), "{active} {reason}");
        assert!(status(&engine, other).0, "the other protocol's bursts are not refused");

        // From now on it is not even tried, and the other protocol goes on in bursts.
        let (second, others) = (flow(tcp, 20, 2), flow(!tcp, 20, 3));
        deliver(&engine, &kernel, &second);
        deliver(&engine, &kernel, &others);
        assert_eq!(kernel.packets(), [first, second, others].concat());
        assert_eq!(*kernel.bursts.borrow(), 1);
        let written = engine.batches.tun_write.sizes();
        assert_eq!((written.packets, written.cumulative.last().unwrap().1), (60, 41));
        assert_eq!(engine.drops.get(Drop::TunWrite), 0);
    }
}

#[test]
fn flows_between_others_keep_their_order_through_the_fallback() {
    let engine = engine();
    let kernel = Kernel::new(|header: &VnetHeader, _: &[u8]| {
        (header.gso_type == vnet::GSO_TCPV4).then_some(libc::EINVAL)
    });
    let flows = [flow(true, 9, 1), flow(false, 9, 2), flow(true, 9, 3)];
    let batch: Vec<Vec<u8>> = (0..9).flat_map(|n| flows.iter().map(move |flow| flow[n].clone())).collect();
    deliver(&engine, &kernel, &batch);
    let written = kernel.packets();
    for flow in &flows {
        let port = flow[0][21];
        let of_flow: Vec<&Vec<u8>> = written.iter().filter(|packet| packet[21] == port).collect();
        assert_eq!(of_flow, flow.iter().collect::<Vec<_>>());
    }
    assert_eq!(written.len(), batch.len());
}

/// No memory, an interface that is down: nothing that says that the next burst fares the same.
#[test]
fn another_error_costs_no_packet_and_leaves_the_switch() {
    for (tcp, refused, _) in BOTH {
        for code in [libc::ENOMEM, libc::EIO, libc::EAGAIN] {
            let (engine, failing) = (engine(), RefCell::new(1));
            let kernel = Kernel::new(|header: &VnetHeader, _: &[u8]| {
                (header.gso_type != vnet::GSO_NONE && failing.replace(0) > 0).then_some(code)
            });
            let (first, second) = (flow(tcp, 20, 1), flow(tcp, 20, 2));
            deliver(&engine, &kernel, &first);
            assert_eq!(kernel.packets(), first, "{code}");
            assert_eq!(*kernel.bursts.borrow(), 0);
            assert!(status(&engine, refused).0, "{code}");
            deliver(&engine, &kernel, &second);
            assert_eq!(kernel.packets(), [first, second].concat(), "{code}");
            assert_eq!(*kernel.bursts.borrow(), 1);
        }
    }
}

#[test]
fn what_is_refused_alone_is_counted_and_costs_no_other() {
    for (tcp, ..) in BOTH {
        let engine = engine();
        let batch = flow(tcp, 20, 1);
        let kernel = Kernel::new(|header: &VnetHeader, packet: &[u8]| {
            (header.gso_type != vnet::GSO_NONE || packet == batch[7]).then_some(libc::EINVAL)
        });
        deliver(&engine, &kernel, &batch);
        let rest: Vec<Vec<u8>> = batch.iter().filter(|packet| **packet != batch[7]).cloned().collect();
        assert_eq!(kernel.packets(), rest);
        assert_eq!(engine.drops.get(Drop::TunWrite), 1);
        assert_eq!(engine.batches.tun_write.sizes().packets, 19);

        // A lone packet that is refused says nothing about bursts.
        engine.switch(offload_of_flow(tcp), true).unwrap();
        deliver(&engine, &kernel, &batch[7..8]);
        assert_eq!(engine.drops.get(Drop::TunWrite), 2);
        assert!(status(&engine, offload_of_flow(tcp)).0);
    }
}

fn offload_of_flow(tcp: bool) -> Offload {
    if tcp { Offload::TunTcpGro } else { Offload::TunUdpGro }
}
