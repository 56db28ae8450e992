//! `isthmusctl bgp neighbors NAME`: one session with everything that is known about it. How it looks is in `layout`.

mod layout;

use isthmus_proto::bgp as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::Moment;
use crate::text;
use crate::watch::{Client, Question};

/// Asks for the neighbor of this name or address.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) name: String,
}

impl Question for Query {
    type Answer = wire::BgpNeighborDetail;
    type Document = NeighborDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.bgp.show_neighbor(wire::ShowBgpNeighborRequest { neighbor: self.name.clone() }).await
    }

    fn document(&self, answer: Self::Answer) -> Result<NeighborDocument, Failure> {
        Ok(answer.into())
    }
}

/// Schema `isthmus.v1/bgp-neighbor`.
#[derive(Debug, Serialize)]
pub(crate) struct NeighborDocument {
    schema: &'static str,
    name: String,
    address: String,
    local_address: Option<String>,
    local_asn: u32,
    remote_asn: u32,
    remote_router_id: Option<String>,
    state: String,
    state_reason: String,
    state_since: Option<Moment>,
    established_count: u64,
    last_error: Option<LastError>,
    import_policy: String,
    export_policy: String,
    prefixes_received: u64,
    prefixes_accepted: u64,
    prefixes_filtered: u64,
    prefixes_stale: u64,
    prefixes_best: u64,
    prefixes_sent: u64,
    messages_received: u64,
    messages_sent: u64,
    /// How often an established session ended.
    flaps: u64,
    /// UPDATEs with a fault that did not end the session.
    update_faults: u64,
    /// Made from a template when it connected.
    dynamic: bool,
    /// Ours, while it is in force.
    role: Option<String>,
    /// A family in which prefixes are held back from it.
    held_back: Option<String>,
    /// Settings that fight what is known of its kind of router.
    warnings: Vec<String>,
    bfd: Option<Bfd>,
    graceful_restart: Option<GracefulRestart>,
    timers: Vec<Timer>,
    families: Vec<Family>,
    messages: Vec<Messages>,
    capabilities: Vec<Capability>,
}

/// What watches the path.
#[derive(Debug, Serialize)]
struct Bfd {
    /// As `isthmusctl bfd` shows it.
    name: String,
    state: String,
    reason: String,
    detection_time_us: Option<u64>,
}

/// As agreed in the session that stands.
#[derive(Debug, Serialize)]
struct GracefulRestart {
    agreed: bool,
    /// How long the neighbor asks us to keep its routes.
    time_ms: u64,
    /// Of which its routes are kept.
    families: Vec<String>,
    /// That it had gone on forwarding when the session came up.
    forwarding: Vec<String>,
    /// Routes are kept through a NOTIFICATION that is no Hard Reset, too.
    notification: bool,
    /// The session is its first after a restart of its own.
    restarting: bool,
    /// This node has restarted and waits for what the neighbor has to tell.
    waiting: bool,
}

/// Since the neighbor was configured.
#[derive(Debug, Serialize)]
struct Messages {
    #[serde(rename = "type")]
    kind: String,
    received: u64,
    sent: u64,
}

#[derive(Debug, Serialize)]
struct LastError {
    at: Option<Moment>,
    text: String,
    /// Who has to do something about it.
    fault: String,
    notification: Option<Notification>,
}

#[derive(Debug, Serialize)]
struct Notification {
    sent: bool,
    code: u32,
    subcode: u32,
    name: String,
    /// Lower-case hex.
    data: String,
    /// What the data says.
    decoded: Option<String>,
}

#[derive(Debug, Serialize)]
struct Timer {
    name: String,
    configured_ms: Option<u64>,
    /// While Established; 0: none.
    agreed_ms: Option<u64>,
    remaining_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Family {
    family: String,
    agreed: bool,
    end_of_rib: bool,
    received: u64,
    limit: u64,
    accepted: u64,
    best: u64,
    stale: u64,
    sent: u64,
    /// The neighbor sends several paths to a prefix.
    several_in: bool,
    /// It is sent several.
    several_out: bool,
    /// Until kept routes go at the latest.
    stale_remaining_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Capability {
    name: String,
    sent: bool,
    received: bool,
}

impl From<wire::BgpNeighborDetail> for NeighborDocument {
    fn from(detail: wire::BgpNeighborDetail) -> Self {
        Self {
            schema: "isthmus.v1/bgp-neighbor",
            name: detail.name,
            address: detail.address,
            local_address: text::known(detail.local_address),
            local_asn: detail.local_asn,
            remote_asn: detail.remote_asn,
            remote_router_id: text::known(detail.remote_router_id),
            state: detail.state,
            state_reason: detail.state_reason,
            state_since: Moment::from_unix_milliseconds(detail.state_since_ms),
            established_count: detail.established_count,
            last_error: detail.error.map(LastError::from),
            import_policy: detail.import_policy,
            export_policy: detail.export_policy,
            prefixes_received: detail.prefixes_received,
            prefixes_accepted: detail.prefixes_accepted,
            prefixes_filtered: detail.prefixes_filtered,
            prefixes_stale: detail.prefixes_stale,
            prefixes_best: detail.prefixes_best,
            prefixes_sent: detail.prefixes_sent,
            messages_received: detail.messages_received,
            messages_sent: detail.messages_sent,
            flaps: detail.flaps,
            update_faults: detail.update_faults,
            dynamic: detail.dynamic,
            role: text::known(detail.role),
            held_back: text::known(detail.held_back),
            warnings: detail.warnings,
            bfd: detail.bfd.map(Bfd::from),
            graceful_restart: detail.restart.map(GracefulRestart::from),
            messages: detail.messages.into_iter().map(Messages::from).collect(),
            timers: detail.timers.into_iter().map(Timer::from).collect(),
            families: detail.families.into_iter().map(Family::from).collect(),
            capabilities: detail.capabilities.into_iter().map(Capability::from).collect(),
        }
    }
}

impl From<wire::BgpLastError> for LastError {
    fn from(error: wire::BgpLastError) -> Self {
        Self {
            at: Moment::from_unix_milliseconds(error.at_ms),
            text: error.text,
            fault: error.fault,
            notification: error.notification.map(Notification::from),
        }
    }
}

impl From<wire::BgpNotification> for Notification {
    fn from(notification: wire::BgpNotification) -> Self {
        Self {
            sent: notification.sent,
            code: notification.code,
            subcode: notification.subcode,
            name: notification.name,
            data: text::hex(&notification.data),
            decoded: text::known(notification.decoded),
        }
    }
}

impl From<wire::BgpTimer> for Timer {
    fn from(timer: wire::BgpTimer) -> Self {
        let wire::BgpTimer { name, configured_ms, agreed_ms, remaining_ms } = timer;
        Self { name, configured_ms, agreed_ms, remaining_ms }
    }
}

impl From<wire::BgpFamily> for Family {
    fn from(family: wire::BgpFamily) -> Self {
        Self {
            family: family.family,
            agreed: family.agreed,
            end_of_rib: family.end_of_rib,
            received: family.received,
            limit: family.limit,
            accepted: family.accepted,
            best: family.best,
            stale: family.stale,
            sent: family.sent,
            several_in: family.several_in,
            several_out: family.several_out,
            stale_remaining_ms: family.stale_remaining_ms,
        }
    }
}

impl From<wire::BgpMessages> for Messages {
    fn from(messages: wire::BgpMessages) -> Self {
        Self { kind: messages.r#type, received: messages.received, sent: messages.sent }
    }
}

impl From<wire::BgpBfd> for Bfd {
    fn from(bfd: wire::BgpBfd) -> Self {
        let wire::BgpBfd { name, state, reason, detection_time_us } = bfd;
        Self { name, state, reason, detection_time_us }
    }
}

impl From<wire::BgpRestart> for GracefulRestart {
    fn from(restart: wire::BgpRestart) -> Self {
        Self {
            agreed: restart.agreed,
            time_ms: restart.time_ms,
            families: restart.families,
            forwarding: restart.forwarding,
            notification: restart.notification,
            restarting: restart.restarting,
            waiting: restart.waiting,
        }
    }
}

impl From<wire::BgpCapability> for Capability {
    fn from(capability: wire::BgpCapability) -> Self {
        let wire::BgpCapability { name, sent, received } = capability;
        Self { name, sent, received }
    }
}
