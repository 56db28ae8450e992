//! `struct virtio_net_hdr`, which precedes each packet of a TUN device opened with `IFF_VNET_HDR` (virtio 1.2 section 5.1.6, in its
//! legacy form: ten bytes, multi-byte fields in the byte order of this machine unless `TUNSETVNETLE` or `TUNSETVNETBE` was set).

/// Length of the header in bytes.
pub const LENGTH: usize = 10;

/// Flag: the transport checksum is partial; sum from `csum_start` to the end of the packet belongs at `csum_offset` behind it.
pub const NEEDS_CSUM: u8 = 1;
/// Flag: the kernel vouches for the checksum.
pub const DATA_VALID: u8 = 2;

/// A packet, not a burst.
pub const GSO_NONE: u8 = 0;
/// A burst of TCP segments over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// A UDP datagram to be cut into IP fragments (UFO, which nobody should offer).
pub const GSO_UDP: u8 = 3;
/// A burst of TCP segments over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// A burst of UDP datagrams over either.
pub const GSO_UDP_L4: u8 = 5;
/// Bit beside a TCP type: the first segment has CWR set.
pub const GSO_ECN: u8 = 0x80;

/// The fields of the header; lengths and offsets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` kinds.
    pub gso_type: u8,
    /// Length of all headers; a hint that is not always right.
    pub hdr_len: u16,
    /// Payload of each segment but the last.
    pub gso_size: u16,
    /// Where the transport header begins.
    pub csum_start: u16,
    /// Where its checksum is, from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads the bytes; every pattern is a header, and [`split`](super::split::split) judges it.
    pub fn parse(bytes: [u8; LENGTH]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        }
    }

    /// The bytes to write in front of a packet.
    pub fn encode(self) -> [u8; LENGTH] {
        let [a, b] = self.hdr_len.to_ne_bytes();
        let [c, d] = self.gso_size.to_ne_bytes();
        let [e, f] = self.csum_start.to_ne_bytes();
        let [g, h] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn fields_are_where_the_kernel_has_them() {
        let header = VnetHeader::parse([1, 5, 0x1c, 0, 0x64, 0x05, 20, 0, 6, 0]);
        let expected = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type: GSO_UDP_L4,
            hdr_len: 28,
            gso_size: 0x0564,
            csum_start: 20,
            csum_offset: 6,
        };
        assert_eq!(header, expected);
    }

    proptest! {
        #[test]
        fn encode_undoes_parse(bytes: [u8; LENGTH]) {
            prop_assert_eq!(VnetHeader::parse(bytes).encode(), bytes);
        }
    }

    #[test]
    fn nothing_to_say_is_all_zero() {
        assert_eq!(VnetHeader::default().encode(), [0; LENGTH]);
    }
}
