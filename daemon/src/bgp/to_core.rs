//! The configuration in the words of the speaker.

use isthmus_bgp::{DynamicPeers, Families, PeerConfig, RestartConfig, RestartMode, fsm::RestartOffer};
use nix::net::if_::if_nametoindex;

use super::{Config, GracefulRestart, NeighborConfig, TemplateConfig};

/// No interface has this index, so nothing is there.
const NO_INTERFACE: u32 = 0;

/// What the speaker is told; the interfaces of link-local neighbors as they are now. `forwarding`: families that the kernel forwarded all along.
pub(super) fn to_core(config: &Config, forwarding: Families) -> isthmus_bgp::Config {
    isthmus_bgp::Config {
        asn: config.asn,
        router_id: config.router_id,
        cluster_id: config.cluster_id,
        announce: config.announce.clone(),
        multipath: config.multipath,
        restart: RestartConfig {
            time: u16::try_from(config.graceful_restart.as_secs()).unwrap_or(RestartOffer::LONGEST),
            deferral: config.graceful_restart,
            forwarding,
            ..RestartConfig::default()
        },
        peers: config.neighbors.iter().map(peer).collect(),
        dynamic: config.templates.iter().map(dynamic).collect(),
    }
}

/// An interface's index, as it is now.
pub fn index(interface: &str) -> u32 {
    if_nametoindex(interface).unwrap_or(NO_INTERFACE)
}

fn dynamic(template: &TemplateConfig) -> DynamicPeers {
    DynamicPeers { template: template.template.clone(), peer: peer(&template.settings) }
}

fn peer(neighbor: &NeighborConfig) -> PeerConfig {
    let mut peer = neighbor.peer.clone();
    peer.scope = neighbor.place.interface.as_deref().map(index);
    peer.restart = match neighbor.graceful_restart {
        GracefulRestart::Off => RestartMode::Off,
        GracefulRestart::Helper => RestartMode::Helper,
        GracefulRestart::Full => RestartMode::Full,
    };
    peer
}
