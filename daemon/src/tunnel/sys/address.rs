//! Socket addresses in the form of the kernel.

use std::{
    mem::size_of,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use libc::{c_int, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// No address.
pub(super) fn zeroed() -> sockaddr_storage {
    // SAFETY: `sockaddr_storage` is plain old data; zeros are the family AF_UNSPEC.
    unsafe { std::mem::zeroed() }
}

/// Bytes of room that any address fits in.
pub(super) fn room() -> socklen_t {
    length_of::<sockaddr_storage>()
}

/// Writes an address; the length of its form.
pub(super) fn encode(address: SocketAddr, storage: &mut sockaddr_storage) -> socklen_t {
    let at: *mut sockaddr_storage = storage;
    match address {
        SocketAddr::V4(v4) => {
            let name = sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` is at least as large and as strictly aligned as every socket address; we hold it mutably.
            unsafe { at.cast::<sockaddr_in>().write(name) };
            length_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<sockaddr_in6>().write(name) };
            length_of::<sockaddr_in6>()
        }
    }
}

/// Reads an address; `None`: of no family that we know.
pub(super) fn decode(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let at: *const sockaddr_storage = storage;
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is large and aligned enough for every address, and any bytes are a valid `sockaddr_in`.
            let name = unsafe { at.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for `sockaddr_in6`.
            let name = unsafe { at.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn length_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).expect("socket addresses are short")
}

fn family(number: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("address families are small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernel_form() {
        for text in ["192.0.2.7:51820", "[2001:db8::7]:1", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut storage = zeroed();
            encode(address, &mut storage);
            assert_eq!(decode(&storage), Some(address));
        }
        assert_eq!(decode(&zeroed()), None);
    }
}
