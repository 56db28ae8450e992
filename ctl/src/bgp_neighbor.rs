//! `isthmusctl bgp neighbors NAME`: one session with everything that is known about it.

use isthmus_proto::bgp as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::bgp::state_cell;
use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::Page;
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
    timers: Vec<Timer>,
    families: Vec<Family>,
    capabilities: Vec<Capability>,
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
        let wire::BgpFamily { family, agreed, end_of_rib, received, limit } = family;
        Self { family, agreed, end_of_rib, received, limit }
    }
}

impl From<wire::BgpCapability> for Capability {
    fn from(capability: wire::BgpCapability) -> Self {
        let wire::BgpCapability { name, sent, received } = capability;
        Self { name, sent, received }
    }
}

impl Document for NeighborDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        self.lay_out_facts(now, page);
        page.line("");
        self.lay_out_timers(page);
        page.line("");
        self.lay_out_families(page);
        page.line("");
        self.lay_out_capabilities(page);
    }
}

impl NeighborDocument {
    fn lay_out_facts(&self, now: Moment, page: &mut Page) {
        let prefixes = format!(
            "{} received, {} filtered, {} accepted, {} best, {} stale, {} sent",
            self.prefixes_received,
            self.prefixes_filtered,
            self.prefixes_accepted,
            self.prefixes_best,
            self.prefixes_stale,
            self.prefixes_sent
        );
        page.facts([
            ("Name", self.name.as_str().into()),
            ("Address", self.address.as_str().into()),
            ("Local address", self.local_address.as_deref().unwrap_or("").into()),
            ("Local AS", u64::from(self.local_asn).into()),
            ("Remote AS", u64::from(self.remote_asn).into()),
            ("Remote router ID", self.remote_router_id.as_deref().unwrap_or("").into()),
            ("State", state_cell(&self.state)),
            ("Reason", self.state_reason.as_str().into()),
            ("Since", age(self.state_since, now).into()),
            ("Times established", self.established_count.into()),
            ("Last error", self.last_error.as_ref().map(|error| error.words(now)).unwrap_or_default().into()),
            ("NOTIFICATION", self.last_notification().map(Notification::words).unwrap_or_default().into()),
            ("Import policy", self.import_policy.as_str().into()),
            ("Export policy", self.export_policy.as_str().into()),
            ("Prefixes", prefixes.into()),
            ("Messages", format!("{} received, {} sent", self.messages_received, self.messages_sent).into()),
        ]);
    }

    fn last_notification(&self) -> Option<&Notification> {
        self.last_error.as_ref()?.notification.as_ref()
    }

    fn lay_out_timers(&self, page: &mut Page) {
        let duration = |of: Option<u64>| of.map(text::milliseconds).unwrap_or_default();
        let rows = self.timers.iter().map(|timer| {
            [
                timer.name.as_str().into(),
                duration(timer.configured_ms).into(),
                duration(timer.agreed_ms).into(),
                duration(timer.remaining_ms).into(),
            ]
        });
        page.table(["TIMER", "CONFIGURED", "AGREED", "REMAINING"], rows, "no timers");
    }

    fn lay_out_families(&self, page: &mut Page) {
        let rows = self.families.iter().map(|family| {
            [
                family.family.as_str().into(),
                yes(family.agreed).into(),
                yes(family.end_of_rib).into(),
                family.received.into(),
                family.limit.into(),
            ]
        });
        page.table(["FAMILY", "AGREED", "COMPLETE", "RECEIVED", "LIMIT"], rows, "no families");
    }

    fn lay_out_capabilities(&self, page: &mut Page) {
        let rows = self.capabilities.iter().map(|capability| {
            [yes(capability.sent).into(), yes(capability.received).into(), capability.name.as_str().into()]
        });
        page.table(["SENT", "RECEIVED", "CAPABILITY"], rows, "no capabilities");
    }
}

impl LastError {
    fn words(&self, now: Moment) -> String {
        format!("{}; {} ago; up to {}", self.text, age(self.at, now), self.fault)
    }
}

impl Notification {
    fn words(&self) -> String {
        let by = if self.sent { "sent" } else { "received" };
        let data = if self.data.is_empty() { String::new() } else { format!(", data {}", self.data) };
        let decoded = self.decoded.as_ref().map(|decoded| format!(": {decoded}")).unwrap_or_default();
        format!("{by} {} ({}/{}){data}{decoded}", self.name, self.code, self.subcode)
    }
}

fn yes(so: bool) -> &'static str {
    if so { "yes" } else { "no" }
}
