//! `isthmusctl drain`: an order that takes the node out of service, or back.

use std::time::Duration;

use isthmus_proto::control as wire;
use isthmus_proto::control::{DrainOrder, DrainStage};
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;
use crate::watch::{Client, Question};

/// How often it is asked whether the drain is through.
const PAUSE: Duration = Duration::from_millis(200);

/// Gives the order; a drain is waited for, so that what a script does next may stop the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) wait: Duration,
    pub(crate) undo: bool,
}

impl Question for Order {
    type Answer = wire::DrainResponse;
    type Document = DrainDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        let order = if self.undo { DrainOrder::Undo } else { DrainOrder::Start };
        let wait = if self.undo { Duration::ZERO } else { self.wait };
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let mut answer = client.drain(wire::DrainRequest { order: order.into(), wait_ms }).await?;
        while answer.get_ref().stage() == DrainStage::Draining {
            tokio::time::sleep(PAUSE).await;
            answer = client.drain(wire::DrainRequest::default()).await?;
        }
        Ok(answer)
    }

    fn document(&self, answer: Self::Answer) -> Result<DrainDocument, Failure> {
        let stage = match answer.stage() {
            DrainStage::Drained => "drained",
            DrainStage::Serving if self.undo => "serving",
            DrainStage::Serving => return Err(Failure::failed("somebody has taken the drain back")),
            DrainStage::Draining | DrainStage::Unspecified => {
                return Err(Failure::failed("the daemon does not say how far the drain is"));
            }
        };
        Ok(DrainDocument { schema: "isthmus.v1/drain", stage })
    }
}

/// Schema `isthmus.v1/drain`.
#[derive(Debug, Serialize)]
pub(crate) struct DrainDocument {
    schema: &'static str,
    stage: &'static str,
}

impl Document for DrainDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        page.line(match self.stage {
            "drained" => "drained: nobody sends anything here, the node may be stopped",
            stage => stage,
        });
    }
}
