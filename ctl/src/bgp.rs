//! `isthmusctl bgp neighbors`: sessions with their state and the reason for it.

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Asks for all neighbors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query;

impl Question for Query {
    type Answer = wire::ListBgpNeighborsResponse;
    type Document = NeighborsDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.list_bgp_neighbors(wire::ListBgpNeighborsRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<NeighborsDocument, Failure> {
        Ok(NeighborsDocument {
            schema: "isthmus.v1/bgp-neighbors",
            local_asn: (answer.local_asn != 0).then_some(answer.local_asn),
            router_id: text::known(answer.router_id),
            neighbors: answer.neighbors.into_iter().map(Neighbor::from).collect(),
        })
    }
}

/// Schema `isthmus.v1/bgp-neighbors`.
#[derive(Debug, Serialize)]
pub(crate) struct NeighborsDocument {
    schema: &'static str,
    /// Nothing where no BGP speaker is configured.
    local_asn: Option<u32>,
    router_id: Option<String>,
    neighbors: Vec<Neighbor>,
}

#[derive(Debug, Serialize)]
struct Neighbor {
    name: String,
    address: String,
    local_address: Option<String>,
    remote_asn: u32,
    remote_router_id: Option<String>,
    state: String,
    state_reason: String,
    state_since: Option<Moment>,
    established_count: u64,
    last_error: Option<String>,
    families: Vec<String>,
    hold_time_ms: u64,
    keepalive_ms: u64,
    prefixes_received: u64,
    prefixes_accepted: u64,
    prefixes_sent: u64,
    messages_received: u64,
    messages_sent: u64,
}

impl From<wire::BgpNeighbor> for Neighbor {
    fn from(neighbor: wire::BgpNeighbor) -> Self {
        Self {
            name: neighbor.name,
            address: neighbor.address,
            local_address: text::known(neighbor.local_address),
            remote_asn: neighbor.remote_asn,
            remote_router_id: text::known(neighbor.remote_router_id),
            state: neighbor.state,
            state_reason: neighbor.state_reason,
            state_since: Moment::from_unix(neighbor.state_since),
            established_count: neighbor.established_count,
            last_error: text::known(neighbor.last_error),
            families: neighbor.families,
            hold_time_ms: neighbor.hold_time_ms,
            keepalive_ms: neighbor.keepalive_ms,
            prefixes_received: neighbor.prefixes_received,
            prefixes_accepted: neighbor.prefixes_accepted,
            prefixes_sent: neighbor.prefixes_sent,
            messages_received: neighbor.messages_received,
            messages_sent: neighbor.messages_sent,
        }
    }
}

impl Document for NeighborsDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let Some(asn) = self.local_asn else { return page.line("no BGP speaker is configured") };
        page.line(format!("local AS {asn}, router ID {}", self.router_id.as_deref().unwrap_or("-")));
        page.line("");
        let header = ["NAME", "ADDRESS", "ASN", "STATE", "SINCE", "RECEIVED", "ACCEPTED", "SENT", "REASON"];
        page.table(header, self.neighbors.iter().map(|neighbor| neighbor.row(now)), "no BGP neighbors");
    }
}

impl Neighbor {
    fn row(&self, now: Moment) -> [Cell; 9] {
        [
            self.name.as_str().into(),
            self.address.as_str().into(),
            u64::from(self.remote_asn).into(),
            state_cell(&self.state),
            age(self.state_since, now).into(),
            self.prefixes_received.into(),
            self.prefixes_accepted.into(),
            self.prefixes_sent.into(),
            self.reason().into(),
        ]
    }

    /// Why it is in this state; of a session that is not up, else what last went wrong.
    fn reason(&self) -> &str {
        if self.state_reason.is_empty() && self.state != "Established" {
            return self.last_error.as_deref().unwrap_or("");
        }
        &self.state_reason
    }
}

pub(crate) fn state_cell(state: &str) -> Cell {
    let tone = if state == "Established" { Tone::Good } else { Tone::Bad };
    Cell::new(state, tone)
}
