//! `isthmusctl bgp clear`: an order to sessions.

use isthmus_proto::bgp as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::cli::Soft;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;
use crate::text;
use crate::watch::{Client, Question};

/// The word that stands for every neighbor.
const ALL: &str = "all";

/// Gives the order.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) neighbor: String,
    pub(crate) soft: Option<Soft>,
}

impl Question for Order {
    type Answer = wire::ClearBgpResponse;
    type Document = ClearedDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        let kind = match self.soft {
            None => wire::ClearBgpKind::Hard,
            Some(Soft::In) => wire::ClearBgpKind::SoftIn,
            Some(Soft::Out) => wire::ClearBgpKind::SoftOut,
            Some(Soft::Both) => wire::ClearBgpKind::SoftBoth,
        };
        let neighbor = if self.neighbor == ALL { String::new() } else { self.neighbor.clone() };
        client.bgp.clear(wire::ClearBgpRequest { neighbor, kind: kind.into() }).await
    }

    fn document(&self, answer: Self::Answer) -> Result<ClearedDocument, Failure> {
        let done = match self.soft {
            None => "session ended, and starts again",
            Some(Soft::In) => "routes judged again",
            Some(Soft::Out) => "routes sent again",
            Some(Soft::Both) => "routes judged and sent again",
        };
        Ok(ClearedDocument { schema: "isthmus.v1/bgp-clear", done, neighbors: answer.neighbors })
    }
}

/// Schema `isthmus.v1/bgp-clear`.
#[derive(Debug, Serialize)]
pub(crate) struct ClearedDocument {
    schema: &'static str,
    done: &'static str,
    neighbors: Vec<String>,
}

impl Document for ClearedDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        page.line(format!("{}: {}", text::or_dash(&self.neighbors.join(", ")), self.done));
    }
}
