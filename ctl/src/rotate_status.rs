//! `isthmusctl rotate status`: where every rotation stands.

use isthmus_proto::rotation as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::watch::{Client, Question};

/// Asks for the progress of rotations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query;

impl Question for Query {
    type Answer = wire::ShowRotationResponse;
    type Document = RotationDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.rotation.show(wire::ShowRotationRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<RotationDocument, Failure> {
        let lines = answer.lines.into_iter().map(Line::from).collect();
        Ok(RotationDocument {
            schema: "isthmus.v1/rotation",
            charter_sequence: answer.charter_sequence,
            bundle_sequence: answer.bundle_sequence,
            lines,
        })
    }
}

/// Schema `isthmus.v1/rotation`.
#[derive(Debug, Serialize)]
pub(crate) struct RotationDocument {
    schema: &'static str,
    charter_sequence: u64,
    bundle_sequence: u64,
    lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    track: String,
    step: String,
    status: String,
    detail: String,
}

impl From<wire::RotationLine> for Line {
    fn from(line: wire::RotationLine) -> Self {
        Self { track: line.track, step: line.step, status: line.status, detail: line.detail }
    }
}

impl Document for RotationDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        let charter = match self.charter_sequence {
            0 => "no charter: the trust bundle alone".to_owned(),
            sequence => format!("charter {sequence}"),
        };
        page.line(format!("{charter}, bundle sequence {}", self.bundle_sequence));
        let rows = self.lines.iter().map(|line| {
            [
                line.track.as_str().into(),
                line.step.as_str().into(),
                status(&line.status),
                line.detail.as_str().into(),
            ]
        });
        page.table(["TRACK", "STEP", "STATUS", "DETAIL"], rows, "nothing to rotate");
    }
}

fn status(status: &str) -> Cell {
    match status {
        "done" | "ready" => Cell::new(status, Tone::Good),
        "alarm" => Cell::new(status, Tone::Bad),
        _ => Cell::new(status, Tone::Warning),
    }
}
