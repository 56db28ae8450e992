//! Is the peer's OPEN acceptable, and what follows from it (RFC 4271 section 6.2).

use std::{net::Ipv4Addr, time::Duration};

use super::{Negotiated, SessionConfig, common::Exchange};
use crate::{
    AS_TRANS,
    wire::{Capability, Notification, Open, Peering, Role, code},
};

/// The NOTIFICATION for the peer, and the reason in words.
type Refusal = (Notification, String);

/// What both sides can do together, by the two OPENs of a connection.
///
/// # Errors
/// What to tell the peer, and why.
pub(super) fn negotiate(
    config: &SessionConfig,
    ours: &Open,
    theirs: &Open,
) -> Result<Negotiated, Box<Refusal>> {
    check_asn(config, theirs)?;
    check_identifier(config, theirs)?;
    check_hold_time(theirs)?;
    let internal = theirs.asn() == config.local_asn;
    let role = config.offer.role.filter(|_| !internal);
    role.map_or(Ok(()), |role| check_role(role, config.offer.strict_role, theirs))?;
    let exchange = Exchange { ours, theirs };
    let families = exchange.families();
    if families.is_empty() {
        return Err(no_common_family(config));
    }
    let hold_time = Duration::from_secs(theirs.hold_time.min(ours.hold_time).into());
    Ok(Negotiated {
        remote_asn: theirs.asn(),
        remote_router_id: theirs.router_id,
        hold_time,
        keepalive: hold_time / 3,
        families,
        four_octet: theirs.four_octet_asn().is_some(),
        peering: if internal { Peering::Internal } else { Peering::External { asn: theirs.asn() } },
        add_path: exchange.add_path(),
        extended_next_hop: exchange.extended_next_hop(),
        route_refresh: exchange.both(&Capability::RouteRefresh),
        enhanced_refresh: exchange.both(&Capability::EnhancedRouteRefresh),
        restart: exchange.restart(),
        role,
        offered: ours.capabilities.clone(),
        capabilities: theirs.capabilities.clone(),
    })
}

fn refuse(subcode: u8, why: String) -> Box<Refusal> {
    Box::new((Notification::new(code::OPEN, subcode), why))
}

/// RFC 6793 section 4.2.1, RFC 7607: zero is nobody's number, whichever field it stands in; AS_TRANS only stands in for another number,
/// and where that number is given, the short field has nothing but it or AS_TRANS.
fn check_asn(config: &SessionConfig, open: &Open) -> Result<(), Box<Refusal>> {
    let asn = open.asn();
    let short = u32::from(open.my_as);
    let agree = open.capabilities.iter().all(|capability| match capability {
        Capability::FourOctetAsn(number) => *number == asn,
        _ => true,
    });
    let why = if short == 0 || asn == 0 {
        "peer says it is AS 0, which nobody is".into()
    } else if asn == AS_TRANS {
        format!("peer says it is AS {AS_TRANS}, which only stands in for another number")
    } else if !agree || (short != asn && short != AS_TRANS) {
        format!("peer's OPEN contradicts itself: AS {short} in one field, AS {asn} in the other")
    } else if !config.remote_asn.contains(asn) {
        format!("peer says it is AS {asn}, configured is {}", config.remote_asn)
    } else {
        return Ok(());
    };
    Err(refuse(code::open::BAD_PEER_AS, why))
}

/// RFC 6286 section 2.2: not zero, and not ours inside our AS.
fn check_identifier(config: &SessionConfig, open: &Open) -> Result<(), Box<Refusal>> {
    let internal = open.asn() == config.local_asn;
    if open.router_id == Ipv4Addr::UNSPECIFIED || (internal && open.router_id == config.router_id) {
        let why = format!("peer's BGP identifier {} is not acceptable", open.router_id);
        return Err(refuse(code::open::BAD_IDENTIFIER, why));
    }
    Ok(())
}

fn check_hold_time(open: &Open) -> Result<(), Box<Refusal>> {
    match open.hold_time {
        1 | 2 => {
            let why = format!("peer offers a hold time of {} s", open.hold_time);
            Err(refuse(code::open::HOLD_TIME, why))
        }
        _ => Ok(()),
    }
}

/// RFC 9234 section 4.2: one role, and the counterpart of ours; none at all only if we do not insist.
fn check_role(ours: Role, strict: bool, open: &Open) -> Result<(), Box<Refusal>> {
    let said = open.capabilities.iter().filter_map(|capability| match capability {
        Capability::Role(code) => Some(*code),
        _ => None,
    });
    let said: Vec<u8> = said.collect();
    if said.iter().any(|code| Role::from_code(*code) != Some(ours.counterpart())) {
        let shown =
            said.iter().map(|code| Role::from_code(*code).map_or(code.to_string(), |r| r.to_string()));
        let shown = shown.collect::<Vec<_>>().join(" and ");
        let why =
            format!("peer says its role is {shown}, ours is {ours}, so it must be {}", ours.counterpart());
        return Err(refuse(code::open::ROLE_MISMATCH, why));
    }
    if said.is_empty() && strict {
        return Err(refuse(
            code::open::ROLE_MISMATCH,
            format!("peer does not say its role, which must be {}", ours.counterpart()),
        ));
    }
    Ok(())
}

/// RFC 5492 section 5: the data names the capabilities that were missed.
fn no_common_family(config: &SessionConfig) -> Box<Refusal> {
    let wanted = config.families.iter().map(Capability::family);
    let data = wanted.filter_map(|capability| capability.encode().ok()).flatten().collect();
    let notification = Notification::with_data(code::OPEN, code::open::CAPABILITY, data);
    Box::new((notification, "peer carries none of our address families".into()))
}

#[cfg(test)]
mod tests;
