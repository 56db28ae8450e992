//! Is the peer's OPEN acceptable, and what follows from it (RFC 4271 section 6.2).

use std::{net::Ipv4Addr, time::Duration};

use super::{AddPath, Negotiated, SessionConfig};
use crate::wire::{Capability, Notification, Open, Peering, code};

/// What both sides can do together.
///
/// # Errors
/// The NOTIFICATION for the peer, and the reason in words.
pub(super) fn negotiate(config: &SessionConfig, open: &Open) -> Result<Negotiated, (Notification, String)> {
    check_asn(config, open)?;
    check_identifier(config, open)?;
    if matches!(open.hold_time, 1 | 2) {
        return Err(refuse(
            code::open::HOLD_TIME,
            format!("peer offers a hold time of {} s", open.hold_time),
        ));
    }
    let families = open.families().intersection(config.families);
    if families.is_empty() {
        return Err(no_common_family(config));
    }
    let hold_time = Duration::from_secs(open.hold_time.min(config.hold_time).into());
    let internal = config.local_asn == config.remote_asn;
    Ok(Negotiated {
        remote_router_id: open.router_id,
        hold_time,
        keepalive: hold_time / 3,
        families,
        four_octet: open.four_octet_asn().is_some(),
        peering: if internal { Peering::Internal } else { Peering::External { asn: config.remote_asn } },
        add_path: AddPath::default(),
        extended_next_hop: false,
        route_refresh: open.capabilities.contains(&Capability::RouteRefresh),
        enhanced_refresh: open.capabilities.contains(&Capability::EnhancedRouteRefresh),
        restart: None,
        role: config.offer.role,
        capabilities: open.capabilities.clone(),
    })
}

fn refuse(subcode: u8, why: String) -> (Notification, String) {
    (Notification::new(code::OPEN, subcode), why)
}

fn check_asn(config: &SessionConfig, open: &Open) -> Result<(), (Notification, String)> {
    // RFC 7607: zero is nobody's number, whichever field it stands in.
    if open.asn() == config.remote_asn && open.my_as != 0 {
        return Ok(());
    }
    let why = format!("peer says it is AS {}, configured is {}", open.asn(), config.remote_asn);
    Err(refuse(code::open::BAD_PEER_AS, why))
}

/// RFC 6286 section 2.2: not zero, and not ours inside our AS.
fn check_identifier(config: &SessionConfig, open: &Open) -> Result<(), (Notification, String)> {
    let internal = config.local_asn == config.remote_asn;
    if open.router_id == Ipv4Addr::UNSPECIFIED || (internal && open.router_id == config.router_id) {
        let why = format!("peer's BGP identifier {} is not acceptable", open.router_id);
        return Err(refuse(code::open::BAD_IDENTIFIER, why));
    }
    Ok(())
}

/// RFC 5492 section 5: the data names the capabilities that were missed.
fn no_common_family(config: &SessionConfig) -> (Notification, String) {
    let wanted = config.families.iter().map(Capability::family);
    let data = wanted.filter_map(|capability| capability.encode().ok()).flatten().collect();
    let notification = Notification::with_data(code::OPEN, code::open::CAPABILITY, data);
    (notification, "peer carries none of our address families".into())
}
