//! `isthmus.v1.Fabric`: JWT keys that are believed here, and the issuers that are asked for more.

use isthmus_pki::{Facts, jwt};
use isthmus_proto::fabric::{
    FabricPeer, JwtKey, ShowFabricRequest, ShowFabricResponse, fabric_server::Fabric,
};
use tonic::{Request, Response, Status};

use super::Parts;
use crate::identity::enroll::Peer;

pub(super) struct Service {
    pub(super) parts: Parts,
}

#[tonic::async_trait]
impl Fabric for Service {
    async fn show(&self, _: Request<ShowFabricRequest>) -> Result<Response<ShowFabricResponse>, Status> {
        let handle = self.parts.identity.as_ref();
        let handle = handle.filter(|handle| handle.rotation().is_some()).ok_or_else(|| {
            Status::failed_precondition("this node has no [identity], so it believes no keys of the fabric")
        })?;
        Ok(Response::new(ShowFabricResponse {
            jwt_keys: handle.jwt_keys().into_iter().map(key).collect(),
            peers: handle.peers().into_iter().map(peer).collect(),
        }))
    }
}

fn key((key, own): (jwt::Authority, bool)) -> JwtKey {
    let ca = key.endorser();
    JwtKey {
        site: ca.and_then(Facts::site).unwrap_or_default().into(),
        ca_key_sha256: ca.map(|ca| ca.key_sha256.clone()).unwrap_or_default(),
        expires_at: key.expires_at.map_or(0, time::OffsetDateTime::unix_timestamp),
        key_id: key.key_id,
        own,
    }
}

fn peer(peer: Peer) -> FabricPeer {
    FabricPeer {
        address: peer.address,
        spiffe_id: peer.id.map(|id| id.to_string()).unwrap_or_default(),
        heard_at: peer.heard_at,
        endorsements: u32::try_from(peer.endorsements).unwrap_or(u32::MAX),
        failures: peer.failures,
        last_error: peer.last_error,
    }
}
