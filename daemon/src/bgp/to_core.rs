//! The configuration in the words of the speaker.

use isthmus_bgp::{Families, PeerConfig, fsm::RestartOffer};
use nix::net::if_::if_nametoindex;

use super::{Config, GracefulRestart, NeighborConfig};

/// No interface has this index, so nothing is there.
const NO_INTERFACE: u32 = 0;

/// What the speaker is told; the interfaces of link-local neighbors as they are now.
pub(super) fn to_core(config: &Config) -> isthmus_bgp::Config {
    isthmus_bgp::Config {
        asn: config.asn,
        router_id: config.router_id,
        cluster_id: config.cluster_id,
        announce: config.announce.clone(),
        multipath: config.multipath,
        peers: config.neighbors.iter().map(|neighbor| peer(config, neighbor)).collect(),
    }
}

fn peer(config: &Config, neighbor: &NeighborConfig) -> PeerConfig {
    let mut peer = neighbor.peer.clone();
    let index = |interface: &String| if_nametoindex(interface.as_str()).unwrap_or(NO_INTERFACE);
    peer.scope = neighbor.place.interface.as_ref().map(index);
    peer.offer.restart = match neighbor.graceful_restart {
        GracefulRestart::Off => None,
        GracefulRestart::Helper => Some(restart(0)),
        GracefulRestart::Full => {
            Some(restart(u16::try_from(config.graceful_restart.as_secs()).unwrap_or(RESTART_LIMIT)))
        }
    };
    peer
}

/// The longest time that fits into the capability, in seconds (RFC 4724 section 3).
const RESTART_LIMIT: u16 = 4095;

/// Whether this is a restart, and what was forwarded meanwhile, is not known here: the peer is promised nothing.
fn restart(time: u16) -> RestartOffer {
    RestartOffer { time, restarting: false, forwarding: Families::NONE }
}
