//! Socket options of UDP and IP that have no safe wrapper elsewhere.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, BorrowedFd},
};

use libc::{c_int, socklen_t};

/// `UDP_GRO`: whether the kernel may hand over several datagrams of one sender as one message.
pub(in crate::tunnel) fn accept_merged(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, on.into())
}

/// Asks for the ECN bits of each message and for the address that it was sent to.
pub(in crate::tunnel) fn report_packet_info(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    }
}

/// Lets datagrams be fragmented on their way, and over IPv4 ignores what ICMP says about their size: anybody can forge that, and
/// who believes it sends fragments of 552 bytes. Over IPv6 routers cannot fragment, so the kernel goes on listening to them; there
/// no path is narrower than 1280 bytes (RFC 8200 section 5).
pub(in crate::tunnel) fn keep_fragments_possible(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
    }
}

/// Forbids fragments, here and on the way (DF), and says `EMSGSIZE` for what does not fit the link: how a probe is sent.
pub(in crate::tunnel) fn discover_mtu(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    }
}

fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let length = socklen_t::try_from(size_of::<c_int>()).expect("four bytes");
    // SAFETY: setsockopt reads one int through the pointer, which is valid for the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
