//! Orders that are no matter of identity, written down where the node keeps an audit log.

use tonic::Status;

use crate::identity::{Handle, Noted, Requester};

/// An order that may be carried out now.
pub(super) struct Pending(Option<Noted>);

/// Writes the order down before it is carried out; a node without an audit log goes on without.
pub(super) async fn note(identity: Option<&Handle>, by: &Requester, what: &str) -> Result<Pending, Status> {
    let Some(handle) = identity.cloned() else { return Ok(Pending(None)) };
    let (by, what) = (by.to_string(), what.to_owned());
    let noted = blocking(move || handle.note_if_logged(what, by)).await?;
    noted.map(Pending).map_err(|error| Status::failed_precondition(error.to_string()))
}

impl Pending {
    /// What came of it.
    pub(super) async fn end(self, outcome: &'static str) {
        let Some(noted) = self.0 else { return };
        // What can't be written is in the log with its reason.
        let _ = blocking(move || noted.end(outcome)).await;
    }
}

/// The disk may be slow; others are served meanwhile.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}
