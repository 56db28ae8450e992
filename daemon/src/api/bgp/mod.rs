//! BGP: the sessions in a line each, and the service that knows more.

mod detail;
mod mrt;
mod rib;
mod service;

use isthmus_proto::control::{BgpNeighbor, ListBgpNeighborsResponse};

use crate::bgp::NeighborStatus;

pub(super) use service::Service;

use super::{Parts, epoch, milliseconds};

/// Every configured neighbor.
pub(super) async fn neighbors(parts: &Parts) -> ListBgpNeighborsResponse {
    let Some((handle, speaker)) = parts.bgp.as_ref().zip(parts.speaker) else {
        return ListBgpNeighborsResponse::default();
    };
    ListBgpNeighborsResponse {
        local_asn: speaker.asn,
        router_id: speaker.router_id.to_string(),
        neighbors: handle.neighbors().await.into_iter().map(neighbor).collect(),
    }
}

fn neighbor(status: NeighborStatus) -> BgpNeighbor {
    BgpNeighbor {
        name: status.name,
        address: status.address.to_string(),
        remote_asn: status.remote_asn,
        state: status.state.to_string(),
        state_reason: status.state_reason,
        state_since: epoch(status.state_since),
        hold_time_ms: milliseconds(status.hold_time),
        keepalive_ms: milliseconds(status.keepalive),
        remote_router_id: status.remote_router_id.map(|id| id.to_string()).unwrap_or_default(),
        families: status.families,
        prefixes_received: status.prefixes_received,
        prefixes_accepted: status.prefixes_accepted,
        prefixes_sent: status.prefixes_sent,
        last_error: status.last_error.unwrap_or_default(),
        established_count: status.established_count,
        local_address: status.local_address.map(|address| address.to_string()).unwrap_or_default(),
        messages_received: status.messages_received,
        messages_sent: status.messages_sent,
    }
}
