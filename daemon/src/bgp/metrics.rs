//! Metrics of BGP.

use isthmus_bgp::{PeerStatus, fsm::State, wire::Notification};
use metrics::{counter, describe_counter, describe_gauge, gauge};

const SESSION_UP: &str = "isthmus_bgp_session_up";
const PREFIXES: &str = "isthmus_bgp_prefixes";
const NOTIFICATIONS: &str = "isthmus_bgp_notifications_total";
const REFUSED: &str = "isthmus_bgp_connections_refused_total";

/// Says what each metric is.
pub(super) fn describe() {
    describe_gauge!(SESSION_UP, "1 while the session with the neighbor is Established");
    describe_gauge!(PREFIXES, "Prefixes received from the neighbor, accepted of these, and sent to it");
    describe_counter!(NOTIFICATIONS, "NOTIFICATION messages, by direction, code and subcode");
    describe_counter!(
        REFUSED,
        "Incoming connections closed unheard: from an unknown address, from too far away, or unwanted now"
    );
}

/// Copies a neighbor's figures.
#[expect(clippy::cast_precision_loss, reason = "a table of 2^53 prefixes does not fit this planet")]
pub(super) fn update(status: &PeerStatus) {
    let name = status.name.to_string();
    gauge!(SESSION_UP, "neighbor" => name.clone()).set(f64::from(status.state == State::Established));
    let prefixes = [
        ("received", f64::from(status.prefixes_received)),
        ("accepted", f64::from(status.prefixes_accepted)),
        ("sent", status.prefixes_sent as f64),
    ];
    for (direction, value) in prefixes {
        gauge!(PREFIXES, "neighbor" => name.clone(), "direction" => direction).set(value);
    }
}

/// A neighbor that was removed has no session and no prefixes.
pub(super) fn remove(name: &str) {
    gauge!(SESSION_UP, "neighbor" => name.to_string()).set(0);
    for direction in ["received", "accepted", "sent"] {
        gauge!(PREFIXES, "neighbor" => name.to_string(), "direction" => direction).set(0);
    }
}

/// Counts a NOTIFICATION.
pub(super) fn notified(neighbor: &str, sent: bool, notification: &Notification) {
    let direction = if sent { "sent" } else { "received" };
    counter!(
        NOTIFICATIONS,
        "neighbor" => neighbor.to_string(),
        "direction" => direction,
        "code" => known(notification.code, 8),
        "subcode" => known(notification.subcode, 11)
    )
    .increment(1);
}

/// A number from the wire as a label: those that no RFC has are one label, so that a neighbor cannot make series without end.
fn known(number: u8, last: u8) -> String {
    if number <= last { number.to_string() } else { "other".into() }
}

/// Counts an incoming connection that was closed unheard.
pub(super) fn refused(reason: &'static str) {
    counter!(REFUSED, "reason" => reason).increment(1);
}
