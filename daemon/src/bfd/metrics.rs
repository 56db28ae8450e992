//! Metrics of BFD.

use std::time::Duration;

use isthmus_bfd::{Change, State};
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

const UP: &str = "isthmus_bfd_session_up";
const CHANGES: &str = "isthmus_bfd_state_changes_total";
const FAILURES: &str = "isthmus_bfd_failures_total";
const PACKETS: &str = "isthmus_bfd_packets_total";
const DETECTION: &str = "isthmus_bfd_detection_time_seconds";
const DISCARDED: &str = "isthmus_bfd_packets_discarded_total";

pub(super) fn describe() {
    describe_gauge!(UP, "1 while the session is Up");
    describe_counter!(CHANGES, "Changes of state of the session");
    describe_counter!(
        FAILURES,
        "Times that the path failed: the session was Up and went Down, and no administrator asked for it"
    );
    describe_counter!(PACKETS, "Control packets, by direction");
    describe_gauge!(DETECTION, "After this silence the path is down; 0 while the peer has not been heard");
    describe_counter!(DISCARDED, "Packets to the BFD ports that belong to no session, or are malformed");
}

/// The metrics of a session, found once: the thread does not look for them at each packet.
pub(super) struct SessionMetrics {
    up: Gauge,
    detection: Gauge,
    changes: Counter,
    failures: Counter,
    pub(super) sent: Counter,
    pub(super) received: Counter,
}

impl SessionMetrics {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            up: gauge!(UP, "session" => name.clone()),
            detection: gauge!(DETECTION, "session" => name.clone()),
            changes: counter!(CHANGES, "session" => name.clone()),
            failures: counter!(FAILURES, "session" => name.clone()),
            sent: counter!(PACKETS, "session" => name.clone(), "direction" => "sent"),
            received: counter!(PACKETS, "session" => name, "direction" => "received"),
        }
    }

    pub(super) fn changed(&self, change: &Change, detection: Option<Duration>) {
        self.up.set(f64::from(u8::from(change.to == State::Up)));
        self.detects(detection);
        self.changes.increment(u64::from(change.from != change.to));
        self.failures.increment(u64::from(change.is_failure()));
    }

    pub(super) fn detects(&self, detection: Option<Duration>) {
        self.detection.set(detection.unwrap_or_default().as_secs_f64());
    }
}

impl Drop for SessionMetrics {
    /// A session that is gone is not up.
    fn drop(&mut self) {
        self.up.set(0);
        self.detection.set(0);
    }
}

pub(super) fn discarded() -> Counter {
    counter!(DISCARDED)
}
