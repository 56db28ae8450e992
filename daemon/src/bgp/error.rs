//! What can go wrong with BGP as a whole; a single session's troubles are its state's reason.

use std::{io, net::SocketAddr};

use ipnet::IpNet;

/// Why BGP could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address of `[bgp] listen` cannot be used.
    #[error("BGP cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// The address, as configured.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: String,
    },
    /// The listeners are bound once.
    #[error(
        "[bgp] listen changed: that needs a restart of isthmusd; nothing else of the new [bgp] was applied"
    )]
    ListenChanged,
    /// The kernel does not take a neighbor's password.
    #[error(
        "the kernel does not take the password of neighbor {neighbor}: {source}; it needs CONFIG_TCP_MD5SIG, and where that is \
         there, more of the sysctl net.core.optmem_max; nothing of the new [bgp] was applied"
    )]
    Password {
        /// The neighbor's address, or its template's prefix.
        neighbor: IpNet,
        /// What the kernel said.
        source: io::Error,
    },
    /// The task is gone.
    #[error("BGP is stopped")]
    Stopped,
}

impl Error {
    /// With the remedy that goes with what the kernel said.
    pub(super) fn listen(address: SocketAddr, source: io::Error) -> Self {
        let port = address.port();
        let remedy = match source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program (bird, frr, a second isthmusd?) has the port: `ss -ltnp sport = :{port}` shows which; \
                 stop it, or change [bgp] listen"
            ),
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need CAP_NET_BIND_SERVICE: grant it, or change [bgp] listen".into()
            }
            io::ErrorKind::AddrNotAvailable => {
                "no interface of this host has the address: add it, or change [bgp] listen".into()
            }
            _ => "check [bgp] listen".into(),
        };
        Self::Listen { address, source, remedy }
    }
}
