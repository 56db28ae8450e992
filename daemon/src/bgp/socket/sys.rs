//! Options that no library has: TCP MD5 signatures, the lowest TTL, and the SYN of an accepted connection.

use std::{
    io,
    mem::size_of,
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd},
};

use ipnet::IpNet;
use libc::{c_int, c_void, socklen_t};
use zeroize::Zeroize;

/// `tcpm_prefixlen` says which addresses the key is for (linux/tcp.h).
const FLAG_PREFIX: u8 = 1;
const ADDRESS_SIZE: usize = 128;
const LONGEST_KEY: usize = 80;
/// An IPv6 header is 40 bytes, an IPv4 one at most 60; of what follows we need nothing.
const HEADER: usize = 60;

/// `struct tcp_md5sig` of linux/tcp.h: the address as `struct sockaddr_storage`, then what is said about it.
#[repr(C, align(8))]
struct Signature {
    address: [u8; ADDRESS_SIZE],
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: c_int,
    key: [u8; LONGEST_KEY],
}

const _: () = assert!(size_of::<Signature>() == 216, "as the kernel has it");

/// Segments to and from these addresses are signed with this key (RFC 2385); an empty one ends that, if there was any. Of several keys
/// for an address that of the longest prefix counts. `v6_socket`: the socket is an IPv6 one, which knows IPv4 addresses in IPv6's clothes.
pub(super) fn set_signature(
    socket: &impl AsFd,
    v6_socket: bool,
    addresses: IpNet,
    key: &[u8],
) -> io::Result<()> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the password is too long");
    let key_length = u16::try_from(key.len()).map_err(|_| too_long())?;
    let mut signature = Signature {
        address: socket_address(addresses.network(), v6_socket),
        flags: FLAG_PREFIX,
        // Of IPv4 addresses counted as such in IPv6 sockets too.
        prefix_length: addresses.prefix_len(),
        key_length,
        interface: 0,
        key: [0; LONGEST_KEY],
    };
    signature.key.get_mut(..key.len()).ok_or_else(too_long)?.copy_from_slice(key);
    let set = set(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG_EXT, &signature);
    signature.key.zeroize();
    match set {
        Err(error) if key.is_empty() && error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        set => set,
    }
}

/// `struct sockaddr_in` or `sockaddr_in6`, port and the rest zero.
fn socket_address(address: IpAddr, v6_socket: bool) -> [u8; ADDRESS_SIZE] {
    let mut bytes = [0; ADDRESS_SIZE];
    let family = |v6| if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let write = |bytes: &mut [u8; ADDRESS_SIZE], v6: bool, at: usize, octets: &[u8]| {
        // Families are small numbers.
        let family = u16::try_from(family(v6)).unwrap_or_default();
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        bytes[at..at + octets.len()].copy_from_slice(octets);
    };
    let v6 = |address: Ipv6Addr| address.octets();
    match address {
        IpAddr::V4(v4) if v6_socket => write(&mut bytes, true, 8, &v6(v4.to_ipv6_mapped())),
        IpAddr::V4(v4) => write(&mut bytes, false, 4, &v4.octets()),
        IpAddr::V6(address) => write(&mut bytes, true, 8, &v6(address)),
    }
    bytes
}

/// Packets that arrive with a lower TTL are dropped by the kernel (RFC 5082).
pub(super) fn set_lowest_ttl(socket: &impl AsFd, v6: bool, lowest: u8) -> io::Result<()> {
    let (level, option) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT) } else { (libc::IPPROTO_IP, libc::IP_MINTTL) };
    set(socket, level, option, &c_int::from(lowest))
}

/// What is accepted from now on remembers the packet that it began with.
pub(super) fn save_syns(listener: &impl AsFd) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, &1_i32)
}

/// TTL of the packet that an accepted connection began with. `None`: the kernel did not keep it, as under a flood of SYNs.
pub(super) fn first_ttl(socket: &impl AsFd) -> io::Result<Option<u8>> {
    // The kernel refuses a buffer that is too small for all headers.
    let mut bytes = [0_u8; HEADER + HEADER];
    let mut length = socklen_t::try_from(bytes.len()).unwrap_or_default();
    // SAFETY: `bytes` is writable for `length` bytes, the kernel writes no more and corrects `length`; both live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            bytes.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ttl_of(bytes.get(..usize::try_from(length).unwrap_or_default()).unwrap_or_default()))
}

/// From an IPv4 or IPv6 header.
fn ttl_of(packet: &[u8]) -> Option<u8> {
    match packet.first()? >> 4 {
        4 => packet.get(8).copied(),
        6 => packet.get(7).copied(),
        _ => None,
    }
}

/// `value` is plain data, of the type that the option has.
fn set<T>(socket: &impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: `value` is readable for its own size and lives through the call; the kernel copies it and keeps no pointer. The callers
    // above give integers and a `repr(C)` struct without padding.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast::<c_void>(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_the_kernel_reads_them() {
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(socket_address(v4, false)[..8], [2, 0, 0, 0, 192, 0, 2, 1]);
        let mapped = socket_address(v4, true);
        assert_eq!((mapped[0], &mapped[18..24]), (10, &[255, 255, 192, 0, 2, 1][..]));
        let v6 = socket_address("2001:db8::1".parse().unwrap(), true);
        assert_eq!((v6[0], &v6[8..12], v6[23]), (10, &[0x20, 1, 0x0d, 0xb8][..], 1));
    }

    #[test]
    fn ttl_of_both_headers() {
        let (mut v4, mut v6) = ([0x45, 0, 0, 60, 0, 0, 0, 0, 255, 6], [0x60, 0, 0, 0, 0, 40, 6, 254]);
        assert_eq!((ttl_of(&v4), ttl_of(&v6)), (Some(255), Some(254)));
        (v4[0], v6[0]) = (0, 0x10);
        assert_eq!((ttl_of(&v4), ttl_of(&v6), ttl_of(&[]), ttl_of(&[0x45])), (None, None, None, None));
    }
}
