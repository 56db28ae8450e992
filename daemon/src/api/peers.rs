//! Tunnel peers.

use isthmus_proto::control::{ListPeersResponse, Peer, PeerState};

use crate::tunnel::{PeerStatus, State};

use super::{Parts, milliseconds};

/// Every peer, in configuration order.
pub(super) fn peers(parts: &Parts) -> ListPeersResponse {
    let peers = parts.tunnel.iter().flat_map(crate::tunnel::Handle::peers);
    ListPeersResponse { peers: peers.map(peer).collect() }
}

fn peer(status: PeerStatus) -> Peer {
    Peer {
        name: status.name,
        public_key: status.public_key,
        endpoint: status.endpoint.map(|endpoint| endpoint.to_string()).unwrap_or_default(),
        allowed_ips: status.allowed_ips.iter().map(ToString::to_string).collect(),
        state: match status.state {
            State::Up => PeerState::Up,
            State::Idle => PeerState::Idle,
            State::Down => PeerState::Down,
        }
        .into(),
        state_reason: status.state_reason,
        last_handshake_at: status.last_handshake_at,
        rx_bytes: status.rx_bytes,
        tx_bytes: status.tx_bytes,
        rx_packets: status.rx_packets,
        tx_packets: status.tx_packets,
        drops: status.drops.into_iter().map(|(reason, packets)| (reason.to_owned(), packets)).collect(),
        persistent_keepalive_ms: status.persistent_keepalive.map_or(0, milliseconds),
        has_preshared_key: status.has_preshared_key,
        mtu: status.mtu.into(),
    }
}
