//! The ioctls that make a file descriptor a TUN device.

use std::{
    ffi::{CString, c_char, c_int, c_short, c_ulong},
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// How many descriptors will share the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tunnel) enum Queues {
    /// This one alone.
    One,
    /// Several: the kernel spreads flows over them.
    Several,
}

/// Attaches to the interface `name` (created if it is not there) in TUN mode, without packet information, with virtio headers.
pub(in crate::tunnel) fn attach(device: BorrowedFd<'_>, name: &str, queues: Queues) -> io::Result<()> {
    // SAFETY: `ifreq` is plain old data; all zeros is a valid value of its name and of its union.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.bytes().any(|b| b == 0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = c_char::from_ne_bytes([byte]);
    }
    let several = if queues == Queues::Several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    request.ifr_ifru.ifru_flags = c_short::try_from(flags).expect("the four flags are below 2^15");
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is and which outlives the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

/// Length in bytes of the virtio header before each packet.
pub(in crate::tunnel) fn set_vnet_header_size(device: BorrowedFd<'_>, size: c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int through the pointer, which is valid for the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) })
}

/// Which offloads the kernel may use towards us. The mask belongs to the device and outlives a process that attached before.
pub(in crate::tunnel) fn set_offload(device: BorrowedFd<'_>, mask: c_ulong) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, mask) })
}

/// The kernel's number for an interface name.
pub(in crate::tunnel) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
