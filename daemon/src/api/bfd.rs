//! Paths that BFD watches.

use std::time::Duration;

use isthmus_bfd::Remote;
use isthmus_proto::control::{BfdRemote, BfdSession, ListBfdSessionsResponse};

use crate::bfd::{Route, SessionStatus};

use super::{Parts, epoch};

/// Every session.
pub(super) async fn sessions(parts: &Parts) -> ListBfdSessionsResponse {
    let Some(handle) = &parts.bfd else { return ListBfdSessionsResponse::default() };
    ListBfdSessionsResponse { sessions: handle.sessions().await.into_iter().map(session).collect() }
}

fn session(session: SessionStatus) -> BfdSession {
    let (config, status) = (&session.config, &session.status);
    BfdSession {
        name: config.name.to_string(),
        address: config.route.remote().to_string(),
        path: path(&config.route).into(),
        tunnel_peer: config.route.tunnel_peer().map(|peer| peer.to_string()).unwrap_or_default(),
        local_address: config.local.map(|local| local.to_string()).unwrap_or_default(),
        state: status.state.to_string(),
        state_reason: session.reason(),
        state_since: epoch(session.since),
        diagnostic: status.diagnostic.to_string(),
        interval_us: microseconds(config.timing.interval),
        multiplier: config.timing.multiplier.get().into(),
        transmit_interval_us: status.transmit_interval.map(microseconds),
        detection_time_us: status.detection_time.map(microseconds),
        local_discriminator: status.discriminator.get(),
        remote: status.remote.map(remote),
        packets_sent: session.packets_sent,
        packets_received: session.packets_received,
        failures: session.failures,
        neighbors: config.neighbors.iter().map(|name| name.to_string()).collect(),
    }
}

fn path(route: &Route) -> &'static str {
    match route {
        Route::Tunnel { .. } => "tunnel",
        Route::Direct { .. } => "direct",
        Route::Multihop { .. } => "multihop",
    }
}

fn remote(remote: Remote) -> BfdRemote {
    BfdRemote {
        discriminator: remote.discriminator.get(),
        state: remote.state.to_string(),
        diagnostic: remote.diagnostic.to_string(),
        multiplier: remote.multiplier.get().into(),
        desired_min_tx_us: microseconds(remote.desired_min_tx.duration()),
        required_min_rx_us: microseconds(remote.required_min_rx.duration()),
    }
}

pub(super) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
