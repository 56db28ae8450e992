//! File descriptors that stand for a process: unlike its number they never come to mean another one.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UnixStream,
};

// <asm-generic/socket.h>, Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that connected, from the socket itself where the kernel knows how, else by its number. A kernel that knows how and says
/// no means that the process is gone: its number may be somebody else's by now.
pub(super) fn of_peer(stream: &UnixStream, pid: u32) -> io::Result<OwnedFd> {
    match from_socket(stream) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => open(pid),
        result => result,
    }
}

fn from_socket(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut length = libc::socklen_t::try_from(size_of::<RawFd>()).map_err(io::Error::other)?;
    // SAFETY: the pointers are to live variables of the size that `length` states, for the time of the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if result != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// pidfd_open(2).
pub(super) fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the system call takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, libc::PIDFD_NONBLOCK) };
    let fd = RawFd::try_from(result).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Hands a pidfd to the runtime, so that the end of its process can be awaited. Needs a runtime around it.
pub(super) fn watch(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open, is moved in here, and names the same file until it is dropped with the AsyncFd.
    unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }.map_err(io::Error::from)
}

/// A pidfd is readable once its process has ended. An error counts as ended.
pub(super) fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}
