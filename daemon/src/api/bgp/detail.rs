//! One neighbor's session as a message.

use std::time::{Duration, Instant, SystemTime};

use isthmus_bgp::{
    Families,
    fsm::{LastError, State, send_hold_time},
    speaker::{FamilyDetail, Messages, PeerDetail, RestartDetail},
    wire::{Capability, Notification},
};
use isthmus_proto::bgp::{
    BgpBfd, BgpCapability, BgpFamily, BgpLastError, BgpMessages, BgpNeighborDetail, BgpNotification,
    BgpRestart, BgpTimer,
};

use crate::{
    api::{bfd::microseconds, epoch_milliseconds, milliseconds},
    bfd::SessionStatus,
    bgp::NeighborStatus,
};

/// What the shell around the speaker knows of the neighbor, where it still has one; and what watches the path.
pub(super) fn message(
    detail: PeerDetail,
    shell: Option<NeighborStatus>,
    local_asn: u32,
    bfd: Option<&SessionStatus>,
) -> BgpNeighborDetail {
    let now = Instant::now();
    let timers = timers(&detail, now);
    let (local_address, warnings) =
        shell.map(|shell| (shell.local_address, shell.warnings)).unwrap_or_default();
    let status = detail.status;
    let since = SystemTime::now().checked_sub(status.since.elapsed());
    BgpNeighborDetail {
        name: status.name.to_string(),
        address: status.address.to_string(),
        remote_asn: status.asn,
        local_asn,
        state: status.state.to_string(),
        state_reason: status.reason,
        state_since_ms: since.map_or(0, epoch_milliseconds),
        local_address: local_address.map(|address| address.to_string()).unwrap_or_default(),
        remote_router_id: status.remote_router_id.map(|id| id.to_string()).unwrap_or_default(),
        established_count: status.established_count,
        timers,
        capabilities: capabilities(&detail.sent, &detail.received),
        families: detail.families.iter().map(|family| self::family(family, now)).collect(),
        prefixes_received: status.prefixes_received.into(),
        prefixes_accepted: status.prefixes_accepted.into(),
        prefixes_filtered: status.prefixes_filtered.into(),
        prefixes_stale: status.prefixes_stale.into(),
        prefixes_best: status.prefixes_best.into(),
        prefixes_sent: u64::try_from(status.prefixes_sent).unwrap_or(u64::MAX),
        messages_received: status.messages_received,
        messages_sent: status.messages_sent,
        last_error: status.last_error.unwrap_or_default(),
        error: detail.last_error.as_ref().map(last_error),
        import_policy: detail.import.name().to_string(),
        export_policy: detail.export.name().to_string(),
        messages: messages(&detail.messages_in, &detail.messages_out),
        restart: Some(restart(&detail.restart)),
        role: detail.role.map(|role| role.to_string()).unwrap_or_default(),
        warnings,
        dynamic: status.dynamic,
        held_back: detail.held_back.map(|family| family.to_string()).unwrap_or_default(),
        bfd: bfd.map(self::bfd),
        flaps: status.flaps,
        update_faults: status.update_faults,
    }
}

fn messages(received: &Messages, sent: &Messages) -> Vec<BgpMessages> {
    let each = |kind: &str, of: fn(&Messages) -> u64| BgpMessages {
        r#type: kind.to_owned(),
        received: of(received),
        sent: of(sent),
    };
    vec![
        each("OPEN", |messages| messages.open),
        each("UPDATE", |messages| messages.update),
        each("NOTIFICATION", |messages| messages.notification),
        each("KEEPALIVE", |messages| messages.keepalive),
        each("ROUTE-REFRESH", |messages| messages.route_refresh),
    ]
}

fn restart(detail: &RestartDetail) -> BgpRestart {
    let names = |families: Families| families.iter().map(|family| family.to_string()).collect();
    BgpRestart {
        agreed: detail.agreed,
        time_ms: milliseconds(detail.time),
        families: names(detail.families),
        forwarding: names(detail.forwarding),
        notification: detail.notification,
        restarting: detail.restarting,
        waiting: detail.waiting,
    }
}

fn bfd(session: &SessionStatus) -> BgpBfd {
    BgpBfd {
        name: session.config.name.to_string(),
        state: session.status.state.to_string(),
        reason: session.reason(),
        detection_time_us: session.status.detection_time.map(microseconds),
    }
}

fn last_error(error: &LastError) -> BgpLastError {
    let at = SystemTime::now().checked_sub(error.at.elapsed());
    BgpLastError {
        at_ms: at.map_or(0, epoch_milliseconds),
        text: error.text.clone(),
        fault: error.fault().to_string(),
        notification: error
            .notification
            .as_ref()
            .map(|notification| self::notification(error.sent, notification)),
    }
}

fn notification(sent: bool, notification: &Notification) -> BgpNotification {
    let (code, subcode) = (notification.code_name(), notification.subcode_name());
    BgpNotification {
        sent,
        code: notification.code.into(),
        subcode: notification.subcode.into(),
        name: subcode.map_or_else(|| code.to_owned(), |subcode| format!("{code}/{subcode}")),
        data: notification.data.clone(),
        decoded: notification.explanation().unwrap_or_default(),
    }
}

/// Those of every session always, others while they run.
fn timers(detail: &PeerDetail, now: Instant) -> Vec<BgpTimer> {
    let up = detail.status.state == State::Established;
    let timer = |name: &str, configured: Option<Duration>, agreed: Duration| BgpTimer {
        name: name.to_owned(),
        configured_ms: configured.map(milliseconds),
        agreed_ms: up.then(|| milliseconds(agreed)),
        remaining_ms: None,
    };
    let mut timers = vec![
        timer("hold timer", Some(detail.hold_time_offered), detail.status.hold_time),
        timer("keepalive", None, detail.status.keepalive),
        timer("send hold timer", None, send_hold(detail.status.hold_time)),
    ];
    if detail.restart.agreed {
        timers.push(timer("stale routes", None, detail.restart.time));
    }
    for (at, name) in &detail.timers {
        let remaining = Some(milliseconds(at.saturating_duration_since(now)));
        match timers.iter_mut().find(|timer| timer.name == *name) {
            Some(timer) => timer.remaining_ms = remaining,
            None => timers.push(BgpTimer {
                name: (*name).to_owned(),
                remaining_ms: remaining,
                ..BgpTimer::default()
            }),
        }
    }
    timers
}

/// Without a hold time there is neither (RFC 9687 section 3.2).
fn send_hold(hold_time: Duration) -> Duration {
    if hold_time.is_zero() { Duration::ZERO } else { send_hold_time(hold_time) }
}

/// Each one once: by whom it was said.
fn capabilities(sent: &[Capability], received: &[Capability]) -> Vec<BgpCapability> {
    let mut all: Vec<BgpCapability> = Vec::new();
    for (capability, ours) in
        sent.iter().map(|one| (one, true)).chain(received.iter().map(|one| (one, false)))
    {
        let name = capability.to_string();
        let known = all.iter().position(|known| known.name == name);
        let index = known.unwrap_or_else(|| {
            all.push(BgpCapability { name, ..BgpCapability::default() });
            all.len() - 1
        });
        let entry = &mut all[index];
        (entry.sent, entry.received) = (entry.sent || ours, entry.received || !ours);
    }
    all
}

fn family(detail: &FamilyDetail, now: Instant) -> BgpFamily {
    BgpFamily {
        family: detail.family.to_string(),
        agreed: detail.agreed,
        end_of_rib: detail.end_of_rib,
        received: detail.received.into(),
        limit: detail.limit.into(),
        accepted: detail.accepted.into(),
        best: detail.best.into(),
        stale: detail.stale.into(),
        sent: u64::try_from(detail.sent).unwrap_or(u64::MAX),
        several_in: detail.several_in,
        several_out: detail.several_out,
        stale_remaining_ms: detail
            .stale_until
            .map(|until| milliseconds(until.saturating_duration_since(now))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_says_who_has_it() {
        let four = |asn| Capability::FourOctetAsn(asn);
        let sent = [Capability::RouteRefresh, four(65_001)];
        let received = [Capability::RouteRefresh, Capability::EnhancedRouteRefresh, four(65_002)];
        let told: Vec<_> = capabilities(&sent, &received)
            .into_iter()
            .map(|one| (one.name, one.sent, one.received))
            .collect();
        let expected = [
            ("route refresh", true, true),
            ("4-octet AS number 65001", true, false),
            ("enhanced route refresh", false, true),
            ("4-octet AS number 65002", false, true),
        ];
        assert_eq!(told, expected.map(|(name, sent, received)| (name.to_owned(), sent, received)));
    }
}
