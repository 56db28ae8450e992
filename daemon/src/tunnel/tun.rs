//! The TUN device: open, and say what is wrong when that fails; read and write packets.

use std::{
    ffi::c_ulong,
    fs::{File, OpenOptions},
    io::{self, IoSlice, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use isthmus_tunnel::offload::vnet;

use super::{
    Error,
    offload::{Offload, Offloads},
    sys::{self, Queues},
};

const DEVICE: &str = "/dev/net/tun";
/// There when the kernel has the TUN driver, whether or not we were given the device node.
const DRIVER: &str = "/sys/class/misc/tun";

/// `TUN_F_*` of linux/if_tun.h.
const CHECKSUM: c_ulong = 0x01;
const TSO: c_ulong = 0x02 | 0x04;
const USO: c_ulong = 0x20 | 0x40;

/// An attached TUN device. The interface exists as long as this does.
pub(super) struct Tun {
    queues: Vec<Queue>,
}

/// One of the device's queues: packets of one flow come out of one of them.
pub(super) struct Queue {
    device: File,
}

/// Takes inner packets: a TUN queue, or a stand-in that refuses what some kernel refuses.
pub(super) trait Sink {
    /// Writes one packet or burst that lies in pieces, the virtio header first.
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<()>;

    /// Writes one whole packet.
    fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        self.write(&[IoSlice::new(&[0; vnet::LENGTH]), IoSlice::new(packet)])
    }
}

/// Where opening failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    Attach,
}

impl Tun {
    /// Opens the device and attaches it to the interface `name`, which has no address and is down. `queues` is at least 1.
    pub(super) fn open(name: &str, queues: usize, offloads: &Offloads) -> Result<Self, Error> {
        let kind = if queues > 1 { Queues::Several } else { Queues::One };
        let opened: Result<Vec<Queue>, Error> = (0..queues.max(1)).map(|_| Queue::open(name, kind)).collect();
        let tun = Self { queues: opened? };
        tun.set_offloads(offloads).map_err(|error| failure(name, Step::Attach, &error))?;
        Ok(tun)
    }

    pub(super) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Tells the kernel which bursts it may hand us. The mask belongs to the device, so one queue speaks for all.
    pub(super) fn set_offloads(&self, offloads: &Offloads) -> io::Result<()> {
        let Some(queue) = self.queues.first() else { return Ok(()) };
        let set = |mask| sys::set_offload(queue.device.as_fd(), mask);
        if let Err(error) = set(mask(offloads)) {
            let why = format!("this kernel (before 6.2?) refuses it: {error}");
            if !offloads.refuse(Offload::TunUso, why) {
                return Err(error);
            }
            set(mask(offloads))?;
        }
        Ok(())
    }
}

fn mask(offloads: &Offloads) -> c_ulong {
    let of = |offload, bits| if offloads.is_on(offload) { CHECKSUM | bits } else { 0 };
    of(Offload::TunTso, TSO) | of(Offload::TunUso, USO)
}

impl Queue {
    fn open(name: &str, queues: Queues) -> Result<Self, Error> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)
            .map_err(|error| failure(name, Step::Open, &error))?;
        let fail = |error: io::Error| failure(name, Step::Attach, &error);
        sys::attach(device.as_fd(), name, queues).map_err(fail)?;
        sys::set_vnet_header_size(device.as_fd(), 10).map_err(fail)?;
        Ok(Self { device })
    }

    /// Reads one packet or burst with its virtio header; `None`: there is none now. No bytes: there was one that the kernel could not
    /// describe with a virtio header, and it is gone.
    ///
    /// # Errors
    /// When the device is gone.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.device, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(nix::Error::EINVAL) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Sink for Queue {
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.device).write_vectored(pieces).map(|_| ())
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn failure(interface: &str, step: Step, error: &io::Error) -> Error {
    explain(interface, step, error, Path::new(DRIVER).exists())
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
pub(super) mod tests {
    use std::os::fd::OwnedFd;

    use nix::sys::eventfd::EfdFlags;

    use super::*;

    /// A device without queues.
    pub(in crate::tunnel) fn none() -> Tun {
        Tun { queues: vec![] }
    }

    #[test]
    fn one_strange_packet_does_not_end_the_queue() {
        // An eventfd says EINVAL to a short buffer, as the device does about a packet that it cannot describe.
        let strange = nix::sys::eventfd::EventFd::from_value_and_flags(1, EfdFlags::EFD_NONBLOCK).unwrap();
        let queue = Queue { device: File::from(OwnedFd::from(strange)) };
        assert_eq!(queue.read(&mut [0; 4]).unwrap(), Some(0));
        assert_eq!(queue.read(&mut [0; 8]).unwrap(), Some(8));
        assert_eq!(queue.read(&mut [0; 8]).unwrap(), None);
        let gone = Queue { device: File::open("/").unwrap() };
        assert_eq!(gone.read(&mut [0; 8]).unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

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
