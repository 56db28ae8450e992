//! Datagrams from addresses that are not the sender's.

use std::{
    io,
    net::{SocketAddrV4, UdpSocket},
};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

use crate::netns::Netns;

/// A raw socket, IPv4 only.
#[derive(Debug)]
pub struct Spoofer(UdpSocket);

impl Spoofer {
    /// Sends from `netns`.
    ///
    /// # Errors
    /// Without CAP_NET_RAW there.
    pub fn new(netns: &Netns) -> Result<Self> {
        // IPPROTO_RAW: the header is ours to write.
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
        let socket = netns.run(raw)?;
        // Only for `send_to` with a plain address.
        Ok(Self(socket.with_context(|| format!("a raw socket in {}", netns.name()))?.into()))
    }

    /// Sends one UDP datagram as if it came from `from`. It has no checksum, which IPv4 allows.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
        let length = u16::try_from(8 + payload.len()).map_err(io::Error::other)?;
        // Total length, identification and checksum are filled in by the kernel.
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(from.ip().octets().iter().chain(&to.ip().octets()));
        packet.extend(from.port().to_be_bytes().iter().chain(&to.port().to_be_bytes()));
        packet.extend(length.to_be_bytes().iter().chain(&[0, 0]).chain(payload));
        self.0.send_to(&packet, to)?;
        Ok(())
    }
}
