//! `isthmus.v1.Rotation`: orders in, outcomes out; the machine is `identity`'s.

use std::time::SystemTime;

use isthmus_proto::rotation::{
    RotationLine, RotationObstacle, RotationOrder, RotationOutcome, ShowRotationRequest,
    ShowRotationResponse, rotation_order::Command, rotation_server::Rotation,
};
use tonic::{Request, Response, Status};

use super::{Parts, operator};
use crate::identity::{
    self,
    rotation::{self, Outcome, Verb},
};

/// Largest order: a charter.
pub(super) const MAX_ORDER_BYTES: usize = 2 << 20;
/// Longest text of an operator, in bytes.
const MAX_TEXT: usize = 4096;

pub(super) struct Service {
    pub(super) parts: Parts,
}

#[tonic::async_trait]
impl Rotation for Service {
    async fn show(&self, _: Request<ShowRotationRequest>) -> Result<Response<ShowRotationResponse>, Status> {
        let handle = self.identity()?;
        let rotation = handle.rotation().ok_or_else(no_identity)?;
        let line = |line: isthmus_pki::rotation::Line| RotationLine {
            track: line.track.into(),
            step: line.step,
            status: line.status.as_str().into(),
            detail: line.detail,
        };
        let state = rotation.state();
        Ok(Response::new(ShowRotationResponse {
            lines: rotation.progress(SystemTime::now()).into_iter().map(line).collect(),
            charter_sequence: state.charter_sequence(),
            bundle_sequence: state.bundle_sequence,
        }))
    }

    async fn plan(&self, order: Request<RotationOrder>) -> Result<Response<RotationOutcome>, Status> {
        self.order(order, true).await
    }

    async fn apply(&self, order: Request<RotationOrder>) -> Result<Response<RotationOutcome>, Status> {
        self.order(order, false).await
    }
}

impl Service {
    fn identity(&self) -> Result<&identity::Handle, Status> {
        self.parts.identity.as_ref().ok_or_else(no_identity)
    }

    async fn order(
        &self,
        order: Request<RotationOrder>,
        dry_run: bool,
    ) -> Result<Response<RotationOutcome>, Status> {
        let (handle, by) = (self.identity()?, operator::of(&order)?);
        let request = read(order.into_inner(), by.to_string())?;
        let outcome = handle.rotate(&request, dry_run).await;
        outcome.map(|outcome| Response::new(write(outcome))).map_err(|error| failed(&error))
    }
}

fn no_identity() -> Status {
    Status::failed_precondition("this node has no [identity], so there is nothing to rotate")
}

fn failed(error: &identity::Error) -> Status {
    match error {
        identity::Error::Rotation(rotation::Error::Io { .. }) => Status::internal(error.to_string()),
        identity::Error::Rotation(rotation::Error::Sealed(_) | rotation::Error::NoPassphrase) => {
            Status::failed_precondition(error.to_string())
        }
        identity::Error::Rotation(_) => Status::invalid_argument(error.to_string()),
        _ => Status::failed_precondition(error.to_string()),
    }
}

fn read(order: RotationOrder, by: String) -> Result<rotation::Request, Status> {
    let verb = match order.command.ok_or_else(|| Status::invalid_argument("no command"))? {
        Command::Leaf(_) => Verb::Leaf,
        Command::Prepare(_) => Verb::Prepare,
        Command::Install(certificate) => Verb::Install(certificate),
        Command::Activate(_) => Verb::Activate,
        Command::Retire(_) => Verb::Retire,
        Command::Publish(charter) => Verb::Publish(charter),
        Command::ActivateRoot(_) => Verb::ActivateRoot,
        Command::RetireRoot(charter) => Verb::RetireRoot(charter),
        Command::Taint(taint) => Verb::Taint(text(taint.ca)?, text(taint.reason)?),
        Command::Revoke(revoke) => Verb::Revoke(text(revoke.ca)?, revoke.crl),
        Command::Forget(node) => Verb::Forget(text(node)?),
    };
    let said = |word: String| text(word).map(|word| Some(word).filter(|word| !word.trim().is_empty()));
    Ok(rotation::Request {
        verb,
        override_reason: said(order.override_reason)?,
        istio_checked: said(order.istio_checked)?,
        by,
    })
}

fn text(text: String) -> Result<String, Status> {
    if text.len() > MAX_TEXT {
        return Err(Status::invalid_argument(format!("a text is longer than {MAX_TEXT} bytes")));
    }
    Ok(text)
}

fn write(outcome: Outcome) -> RotationOutcome {
    let obstacle = |obstacle: isthmus_pki::rotation::Obstacle| RotationObstacle {
        what: obstacle.to_string(),
        can_be_overridden: obstacle.can_be_overridden(),
    };
    let obstacles = outcome.refusal.map(|refusal| refusal.obstacles).unwrap_or_default();
    RotationOutcome {
        effects: outcome.effects,
        obstacles: obstacles.into_iter().map(obstacle).collect(),
        notes: outcome.notes,
        request: outcome.request.unwrap_or_default(),
        applied: outcome.applied,
    }
}
