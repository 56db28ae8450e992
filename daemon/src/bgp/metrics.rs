//! Metrics of BGP.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use isthmus_bgp::{PeerStatus, fsm::State, wire::Notification};
use metrics::{counter, describe_counter, describe_gauge, gauge};

use super::Config;

const SESSION_UP: &str = "isthmus_bgp_session_up";
const PREFIXES: &str = "isthmus_bgp_prefixes";
const NOTIFICATIONS: &str = "isthmus_bgp_notifications_total";
const REFUSED: &str = "isthmus_bgp_connections_refused_total";

/// Says what each metric is.
pub(super) fn describe() {
    describe_gauge!(
        SESSION_UP,
        "1 while the session with the neighbor is Established; of neighbors by prefix, how many are"
    );
    describe_gauge!(PREFIXES, "Prefixes received from the neighbor, accepted of these, and sent to it");
    describe_counter!(NOTIFICATIONS, "NOTIFICATION messages, by direction, code and subcode");
    describe_counter!(
        REFUSED,
        "Incoming connections closed unheard: from an unknown address, from too far away, or unwanted now"
    );
}

/// What is shown under one name: of a configured neighbor, or of all together that came by one template.
///
/// A registry forgets no series, and over time any number of neighbors may come by a template.
#[derive(Clone, Copy, Default)]
struct Figures {
    sessions: u32,
    received: u64,
    accepted: u64,
    sent: u64,
}

impl Figures {
    fn add(&mut self, status: &PeerStatus) {
        self.sessions += u32::from(status.state == State::Established);
        self.received += u64::from(status.prefixes_received);
        self.accepted += u64::from(status.prefixes_accepted);
        self.sent += u64::try_from(status.prefixes_sent).unwrap_or(u64::MAX);
    }

    #[expect(clippy::cast_precision_loss, reason = "a table of 2^53 prefixes does not fit this planet")]
    fn show(self, name: &str) {
        gauge!(SESSION_UP, "neighbor" => name.to_string()).set(self.sessions);
        let prefixes = [("received", self.received), ("accepted", self.accepted), ("sent", self.sent)];
        for (direction, value) in prefixes {
            gauge!(PREFIXES, "neighbor" => name.to_string(), "direction" => direction).set(value as f64);
        }
    }
}

/// Copies the neighbors' figures.
pub(super) fn update(config: &Config, neighbors: &[PeerStatus]) {
    // A template that nobody comes by any more has figures, too.
    let nobody = config.counted().map(|name| (Arc::clone(name), Figures::default()));
    let mut all: HashMap<_, _> = nobody.collect();
    for status in neighbors {
        all.entry(config.counted_under(&status.name)).or_default().add(status);
    }
    all.iter().for_each(|(name, figures)| figures.show(name));
}

/// What the new configuration does not have has no session and no prefixes.
pub(super) fn remove(old: &Config, new: &Config) {
    let kept: HashSet<_> = new.counted().collect();
    old.counted().filter(|name| !kept.contains(name)).for_each(|gone| Figures::default().show(gone));
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
