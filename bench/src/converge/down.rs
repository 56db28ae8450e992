//! When a speaker says that its path is down: its first BFD packet with that state (RFC 5880 section 4.1), as it reaches the router, before
//! whatever drops it there. Every speaker sends one at once, so this is the moment from which its reaction counts.

use std::{
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::netns::Netns;
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
        },
        time::TimeVal,
    },
};

/// UDP port of single-hop BFD (RFC 5881 section 4).
const PORT: u16 = 3784;
const UDP: u8 = 17;
/// The state, in the upper two bits of the second octet.
const DOWN: u8 = 1;

/// Listens to all that arrives in one namespace.
pub(super) struct Watch {
    socket: OwnedFd,
    speaker: Ipv4Addr,
}

impl Watch {
    /// Begins to listen for packets of `speaker`.
    ///
    /// # Errors
    /// When no socket can be made.
    pub(super) fn start(netns: &Netns, speaker: Ipv4Addr) -> Result<Self> {
        let open = || -> nix::Result<OwnedFd> {
            let (kind, flags) = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
            let socket = socket(AddressFamily::Packet, kind, flags, SockProtocol::EthAll)?;
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000))?;
            Ok(socket)
        };
        Ok(Self { socket: netns.run(open)?.context("a packet socket")?, speaker })
    }

    /// When the speaker says "down".
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> Result<Instant> {
        let (began, mut buffer) = (Instant::now(), [0; 128]);
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) if state(&buffer[..length], self.speaker) == Some(DOWN) => {
                    return Ok(Instant::now());
                }
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error).context("listening for BFD"),
            }
            ensure!(began.elapsed() < limit, "BFD does not call the path down within {limit:?}");
        }
    }
}

/// The state in a BFD packet from `speaker`; `None`: it is something else.
fn state(packet: &[u8], speaker: Ipv4Addr) -> Option<u8> {
    let (first, header) = (packet.first()?, packet.get(..20)?);
    if first >> 4 != 4 || header[9] != UDP || header[12..16] != speaker.octets() {
        return None;
    }
    let datagram = packet.get(usize::from(first & 15) * 4..)?;
    (datagram.get(2..4)? == PORT.to_be_bytes()).then_some(datagram.get(9)? >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_speakers_bfd_packets_have_a_state() {
        let speaker = Ipv4Addr::new(10, 0, 1, 1);
        let mut packet = vec![0x45, 0, 0, 52, 0, 0, 0, 0, 255, UDP, 0, 0, 10, 0, 1, 1, 10, 0, 1, 2];
        packet.extend([0xc0, 0, 0x0e, 0xc8, 0, 32, 0, 0]); // UDP to port 3784
        packet.extend([0x20, 0x40, 3, 24]); // version 1, Down
        assert_eq!(state(&packet, speaker), Some(DOWN));
        assert_eq!(state(&packet, Ipv4Addr::new(10, 0, 1, 9)), None);
        packet[29] = 0xc8;
        assert_eq!(state(&packet, speaker), Some(3));
        for end in 0..30 {
            assert_eq!(state(&packet[..end], speaker), None);
        }
        packet[23] = 0xc9;
        assert_eq!(state(&packet, speaker), None);
    }
}
