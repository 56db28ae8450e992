//! BGP sessions.

use isthmus_proto::control::{BgpNeighbor, ListBgpNeighborsResponse};

use super::Parts;

/// Every configured neighbor.
pub(super) async fn neighbors(parts: &Parts) -> ListBgpNeighborsResponse {
    ListBgpNeighborsResponse::default()
}
