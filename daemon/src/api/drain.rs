//! Orders that take the node out of service, or back.

use std::time::{Duration, Instant};

use isthmus_proto::control::{DrainOrder, DrainRequest, DrainResponse, DrainStage};
use tonic::{Request, Status};

use super::{Parts, operator, orders};
use crate::lifecycle::{Service, Stage};

/// Whoever wants to wait longer has forgotten the order by then.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Writes the order down, gives it, and says how far the node is.
pub(super) async fn drain(parts: &Parts, request: Request<DrainRequest>) -> Result<DrainResponse, Status> {
    let wait = Duration::from_millis(request.get_ref().wait_ms.into());
    let what = match request.get_ref().order() {
        DrainOrder::Unspecified => return Ok(answer(parts.service.stage())),
        DrainOrder::Start if wait > LONGEST_WAIT => {
            return Err(Status::invalid_argument("a drain waits for an hour at most"));
        }
        DrainOrder::Start => format!("drain --wait {wait:?}"),
        DrainOrder::Undo => "drain --undo".to_owned(),
    };
    let by = operator::of(&request)?;
    let noted = orders::note(parts.identity.as_ref(), &by, &what).await?;
    tracing::info!(%by, what, "an operator's order");
    give(&parts.service, request.get_ref().order(), wait);
    noted.end("done").await;
    Ok(answer(parts.service.stage()))
}

fn give(service: &Service, order: DrainOrder, wait: Duration) {
    match order {
        DrainOrder::Start => service.drain(Instant::now() + wait),
        DrainOrder::Undo => service.undo(),
        DrainOrder::Unspecified => {}
    }
}

fn answer(stage: Stage) -> DrainResponse {
    let (word, left) = match stage {
        // A node that stops answers nobody for long.
        Stage::Serving | Stage::Suspended => (DrainStage::Serving, Duration::ZERO),
        Stage::Draining { until } => (DrainStage::Draining, until.saturating_duration_since(Instant::now())),
        Stage::Drained => (DrainStage::Drained, Duration::ZERO),
    };
    let remaining_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
    DrainResponse { stage: word.into(), remaining_ms }
}
