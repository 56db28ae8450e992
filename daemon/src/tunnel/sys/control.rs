//! Control messages: what travels beside a datagram between the kernel and us.

use std::{
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use isthmus_tunnel::ecn::Ecn;
use libc::{c_int, cmsghdr, in_pktinfo, in6_pktinfo};

/// Room for the three messages that we send or ask for; each takes 24 to 40 bytes.
const ROOM: usize = 128;

/// Memory for the control messages of one datagram.
pub(super) struct Control {
    bytes: [u8; ROOM],
    used: usize,
}

/// What the kernel says about a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Size of the datagrams that the message was merged from; `None`: it is one datagram.
    pub(super) segment: Option<usize>,
    pub(super) ecn: Ecn,
    /// Our address that it was sent to.
    pub(super) local: Option<IpAddr>,
}

impl Control {
    pub(super) fn new() -> Self {
        Self { bytes: [0; ROOM], used: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Bytes in use.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Bytes there are.
    pub(super) fn room() -> usize {
        ROOM
    }

    /// `UDP_SEGMENT`: the kernel is to cut the message into datagrams of this size.
    pub(super) fn segment(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
    }

    /// The ECN bits of the outer header; its DSCP is 0.
    pub(super) fn ecn(&mut self, v6: bool, ecn: Ecn) {
        let (level, kind) =
            if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
        self.push(level, kind, c_int::from(ecn.bits()));
    }

    /// Our address to send from.
    pub(super) fn source(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                let spec_dst = libc::in_addr { s_addr: u32::from(address).to_be() };
                let info = in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: spec_dst,
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(address) => {
                let address = libc::in6_addr { s6_addr: address.octets() };
                self.push(
                    libc::IPPROTO_IPV6,
                    libc::IPV6_PKTINFO,
                    in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 },
                );
            }
        }
    }

    fn push<T: Copy>(&mut self, level: c_int, kind: c_int, data: T) {
        let start = self.used;
        let end = start + space_of::<T>();
        assert!(end <= ROOM, "three messages fit");
        // SAFETY: `cmsghdr` is plain old data, zeros included.
        let mut header: cmsghdr = unsafe { std::mem::zeroed() };
        (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (length_of::<T>(), level, kind);
        self.bytes[start..end].fill(0);
        // SAFETY: `start..end` is in bounds (asserted) and holds a header, padding and a `T` (CMSG_SPACE). Unaligned writes need no
        // alignment; `T` is plain data of the kernel's interface.
        unsafe {
            let at = self.bytes.as_mut_ptr().add(start);
            at.cast::<cmsghdr>().write_unaligned(header);
            at.add(data_offset()).cast::<T>().write_unaligned(data);
        }
        self.used = end;
    }

    /// Reads what the kernel wrote into the first `length` bytes.
    pub(super) fn parse(&self, length: usize) -> Received {
        let mut received = Received::default();
        let mut rest = &self.bytes[..length.min(ROOM)];
        while let Some((header, data, after)) = next(rest) {
            received.take(&header, data);
            rest = after;
        }
        received
    }
}

impl Received {
    fn take(&mut self, header: &cmsghdr, data: &[u8]) {
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => self.segment = int(data).filter(|size| *size > 0),
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.ecn = Ecn::from_bits(data.first().copied().unwrap_or(0));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.ecn = int(data)
                    .map_or(Ecn::NotEct, |class| Ecn::from_bits(u8::try_from(class & 3).unwrap_or(0)));
            }
            // ipi_spec_dst, not ipi_addr: the former is an address of ours even if the datagram was sent to a broadcast address.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let address = data.get(4..8).and_then(|bytes| bytes.first_chunk::<4>());
                self.local = address.map(|address| Ipv4Addr::from(*address).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.local = data.first_chunk::<16>().map(|address| Ipv6Addr::from(*address).into());
            }
            _ => {}
        }
    }
}

fn int(data: &[u8]) -> Option<usize> {
    usize::try_from(c_int::from_ne_bytes(*data.first_chunk()?)).ok()
}

/// The first control message, its data, and what follows.
fn next(bytes: &[u8]) -> Option<(cmsghdr, &[u8], &[u8])> {
    let head = bytes.get(..size_of::<cmsghdr>())?;
    // SAFETY: `head` has the size of a `cmsghdr`, of which any bytes are a value; the read needs no alignment.
    let header = unsafe { head.as_ptr().cast::<cmsghdr>().read_unaligned() };
    let length = header.cmsg_len;
    let data = bytes.get(data_offset()..length)?;
    let after = bytes.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Some((header, data, after))
}

fn data_offset() -> usize {
    // SAFETY: CMSG_LEN only computes.
    usize::try_from(unsafe { libc::CMSG_LEN(0) }).expect("a small number")
}

fn length_of<T>() -> usize {
    data_offset() + size_of::<T>()
}

fn space_of<T>() -> usize {
    let size = u32::try_from(size_of::<T>()).expect("control data is short");
    // SAFETY: CMSG_SPACE only computes.
    usize::try_from(unsafe { libc::CMSG_SPACE(size) }).expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for (v6, local) in [(false, "192.0.2.7"), (true, "2001:db8::7")] {
            let mut control = Control::new();
            control.push(libc::SOL_UDP, libc::UDP_GRO, 1452 as c_int);
            control.ecn(v6, Ecn::Ce);
            control.source(local.parse().unwrap());
            let parsed = control.parse(control.len());
            assert_eq!(
                parsed,
                Received { segment: Some(1452), ecn: Ecn::Ce, local: Some(local.parse().unwrap()) }
            );
            for cut in 0..control.len() {
                control.parse(cut);
            }
        }
    }

    #[test]
    fn lengths_that_lie_end_the_reading() {
        let mut control = Control::new();
        control.segment(7);
        for lie in [0, 1, 15, 4096, usize::MAX] {
            control.bytes[..8].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(control.parse(ROOM), Received::default());
        }
    }
}
