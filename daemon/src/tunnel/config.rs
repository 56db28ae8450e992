//! `[tunnel]`: from the file's words to a configuration that cannot be wrong.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

use crate::secret::Secret32;

/// A validated `[tunnel]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the TUN device, 1..=15 bytes.
    pub interface: String,
    /// UDP port of the tunnel sockets (v4 and v6).
    pub listen: u16,
    /// Where the private key lives; made at first start if it is not there.
    pub private_key_file: PathBuf,
    /// The key read from `private_key_file`; `None` while the file does not exist yet.
    pub private_key: Option<Secret32>,
    /// Overlay addresses of this node, with the prefix length of the overlay.
    pub addresses: Vec<IpNet>,
    /// Inner MTU in bytes, 1280..=65475.
    pub mtu: u16,
    /// Static peers, unique by name and by public key.
    pub peers: Vec<PeerConfig>,
}

/// A validated `[[tunnel.peer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Unique name; appears in commands, metrics and logs.
    pub name: String,
    /// X25519 public key.
    pub public_key: [u8; 32],
    /// Optional symmetric key mixed into the handshake.
    pub preshared_key: Option<Secret32>,
    /// Where to dial; `None`: wait for the peer.
    pub endpoint: Option<Endpoint>,
    /// Prefixes that are this peer's own: sent to it, accepted from it, and next hops resolve through them.
    pub allowed_ips: Vec<IpNet>,
    /// Interval of unconditional keepalives.
    pub persistent_keepalive: Option<Duration>,
}

/// A peer's outer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Literal address and port.
    Address(SocketAddr),
    /// DNS name and port, resolved in the background.
    Name(String, u16),
}
