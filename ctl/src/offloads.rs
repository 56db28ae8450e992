//! `isthmusctl tunnel offload`: the switches of the packet path, to see and to turn.

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::cli::{OffloadName, Switch};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::watch::{Client, Question};

/// Asks for all switches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query;

impl Question for Query {
    type Answer = wire::GetTunnelResponse;
    type Document = OffloadsDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.get_tunnel(wire::GetTunnelRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<OffloadsDocument, Failure> {
        Ok(OffloadsDocument::new(answer.offloads))
    }
}

/// Turns one switch and shows its new state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) name: OffloadName,
    pub(crate) to: Switch,
}

impl Question for Turn {
    type Answer = wire::SetOffloadResponse;
    type Document = OffloadsDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        let request =
            wire::SetOffloadRequest { name: self.name.as_str().to_owned(), on: self.to == Switch::On };
        client.set_offload(request).await
    }

    fn document(&self, answer: Self::Answer) -> Result<OffloadsDocument, Failure> {
        Ok(OffloadsDocument::new(answer.offload.into_iter().collect()))
    }
}

/// Schema `isthmus.v1/offloads`.
#[derive(Debug, Serialize)]
pub(crate) struct OffloadsDocument {
    schema: &'static str,
    offloads: Vec<Offload>,
}

/// A switch.
#[derive(Debug, Serialize)]
pub(crate) struct Offload {
    name: String,
    description: String,
    /// In use.
    active: bool,
    /// The operator's word; wanted and not active: the kernel refuses it.
    wanted: bool,
    state_reason: String,
}

impl From<wire::Offload> for Offload {
    fn from(offload: wire::Offload) -> Self {
        Self {
            name: offload.name,
            description: offload.description,
            active: offload.active,
            wanted: offload.wanted,
            state_reason: offload.state_reason,
        }
    }
}

impl OffloadsDocument {
    fn new(offloads: Vec<wire::Offload>) -> Self {
        let offloads = offloads.into_iter().map(Offload::from).collect();
        Self { schema: "isthmus.v1/offloads", offloads }
    }
}

impl Document for OffloadsDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        table(&self.offloads, page);
    }
}

/// The switches, one a line.
pub(crate) fn table(offloads: &[Offload], page: &mut Page) {
    let header = ["NAME", "STATE", "WANTED", "WHAT", "REASON"];
    page.table(header, offloads.iter().map(Offload::row), "no tunnel is configured");
}

impl Offload {
    fn row(&self) -> [Cell; 5] {
        let tone = match (self.active, self.wanted) {
            (true, _) => Tone::Good,
            (false, true) => Tone::Bad,
            (false, false) => Tone::Plain,
        };
        [
            self.name.as_str().into(),
            Cell::new(if self.active { "on" } else { "off" }, tone),
            if self.wanted { "yes" } else { "no" }.into(),
            self.description.as_str().into(),
            self.state_reason.as_str().into(),
        ]
    }
}
