//! The TUN device: open, and say what is wrong when that fails; read and write packets.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use super::{Error, sys};

/// `struct virtio_net_hdr`: the kernel puts it before each packet and wants it before each of ours. Zeros: nothing is offloaded.
pub(super) const VNET_HEADER: usize = 10;

const DEVICE: &str = "/dev/net/tun";
/// There when the kernel has the TUN driver, whether or not we were given the device node.
const DRIVER: &str = "/sys/class/misc/tun";

/// An attached TUN device. The interface exists as long as this does.
pub(super) struct Tun {
    device: File,
}

/// Where opening failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    Attach,
}

impl Tun {
    /// Opens the device and attaches it to the interface `name`, which has no address and is down.
    pub(super) fn open(name: &str) -> Result<Self, Error> {
        let fail = |step, error: io::Error| explain(name, step, &error, Path::new(DRIVER).exists());
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)
            .map_err(|error| fail(Step::Open, error))?;
        sys::set_interface(device.as_fd(), name).map_err(|error| fail(Step::Attach, error))?;
        sys::set_vnet_header_size(device.as_fd(), 10).map_err(|error| fail(Step::Attach, error))?;
        sys::set_offload(device.as_fd(), 0).map_err(|error| fail(Step::Attach, error))?;
        Ok(Self { device })
    }

    /// Reads one packet with its virtio header; `None`: there is none now.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.device, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes one packet.
    pub(super) fn write(&self, packet: &[u8]) -> io::Result<()> {
        let header = [0; VNET_HEADER];
        (&self.device).write_vectored(&[IoSlice::new(&header), IoSlice::new(packet)]).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn explain(interface: &str, step: Step, error: &io::Error, driver: bool) -> Error {
    let (problem, remedy) = match (step, error.raw_os_error().unwrap_or(0)) {
        (Step::Open, libc::ENOENT) if driver => (
            format!("{DEVICE} is not there, though the kernel has the driver"),
            "Pass the device to the container (--device /dev/net/tun), or `mknod /dev/net/tun c 10 200`",
        ),
        (Step::Open, libc::ENOENT | libc::ENODEV | libc::ENXIO) => (
            "the kernel module is not loaded".into(),
            "Run `modprobe tun` on the host, and list it in /etc/modules-load.d",
        ),
        (Step::Open, libc::EPERM) => (
            format!("the device cgroup forbids {DEVICE}"),
            "Allow it: --device /dev/net/tun for a container, DeviceAllow=/dev/net/tun rw for a systemd unit",
        ),
        (Step::Open, libc::EACCES) => {
            (format!("no permission to open {DEVICE}"), "Run as root, or give isthmusd access to the file")
        }
        (Step::Attach, libc::EPERM | libc::EACCES) => (
            "CAP_NET_ADMIN is missing".into(),
            "Add the capability: AmbientCapabilities=CAP_NET_ADMIN, or securityContext.capabilities.add: [NET_ADMIN]",
        ),
        (Step::Attach, libc::EBUSY) => (
            "another process holds it, perhaps a second isthmusd".into(),
            "Stop that process, or set another `interface` in [tunnel]",
        ),
        (Step::Attach, libc::EINVAL) => (
            "the name is taken by an interface that is not a TUN device of our kind".into(),
            "Remove that interface (`ip link del`), or set another `interface` in [tunnel]",
        ),
        _ => (error.to_string(), "See the kernel log (dmesg)"),
    };
    Error::Tun { interface: interface.to_owned(), problem, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_names_its_remedy() {
        let table = [
            (Step::Open, libc::ENOENT, false, "modprobe tun"),
            (Step::Open, libc::ENODEV, false, "modprobe tun"),
            (Step::Open, libc::ENOENT, true, "--device /dev/net/tun"),
            (Step::Open, libc::EPERM, true, "DeviceAllow"),
            (Step::Open, libc::EACCES, true, "as root"),
            (Step::Attach, libc::EPERM, true, "CAP_NET_ADMIN"),
            (Step::Attach, libc::EBUSY, true, "second isthmusd"),
            (Step::Attach, libc::EINVAL, true, "ip link del"),
            (Step::Attach, libc::EIO, true, "dmesg"),
        ];
        for (step, code, driver, expected) in table {
            let text = explain("isthmus0", step, &io::Error::from_raw_os_error(code), driver).to_string();
            assert!(text.contains(expected) && text.contains("isthmus0"), "{text}");
        }
    }
}
