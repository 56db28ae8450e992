//! The calls of the Workload API: who may call, and what answers.

use std::sync::Arc;

use isthmus_proto::workload::{
    JwtBundlesRequest, JwtBundlesResponse, JwtsvidRequest, JwtsvidResponse, ValidateJwtsvidRequest,
    ValidateJwtsvidResponse, X509BundlesRequest, X509BundlesResponse, X509svidRequest, X509svidResponse,
    spiffe_workload_api_server::SpiffeWorkloadApi,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::{
    Supply,
    connection::Peer,
    feed::{Feed, Shared, Source, supply, unattested},
    frames::{self, Nothing},
    jwt::{self, JwtBundles},
    keeper::Keeper,
    x509::{Bundles, Svids},
};

/// Metadata key that keeps requests forged through another service out (Workload Endpoint section 6).
const HEADER: &str = "workload.spiffe.io";

/// Answers calls. Clones share everything.
#[derive(Clone)]
pub(super) struct Service {
    supply: watch::Receiver<Option<Supply>>,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
}

impl Service {
    pub(super) fn new(
        supply: watch::Receiver<Option<Supply>>,
        shared: Arc<Shared>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { supply, shared, shutdown }
    }

    /// Of a caller that was attested; the header is another matter.
    pub(super) fn feed<Q>(&self, request: &Request<Q>) -> Result<Feed, Status> {
        let peer = attested(request)?;
        let (supply, shutdown, shared) = (self.supply.clone(), self.shutdown.clone(), self.shared.clone());
        Ok(Feed { peer, supply, shutdown, shared })
    }

    /// SVIDs for one stream.
    pub(super) fn keeper(&self) -> Keeper {
        Keeper::new(self.shared.ledger.holder())
    }

    /// Header first, then attestation.
    fn admit<Q>(&self, request: &Request<Q>) -> Result<Feed, Status> {
        check_header(request.metadata())?;
        self.feed(request)
    }

    fn stream<Q, S: Source>(
        &self,
        request: &Request<Q>,
        source: S,
    ) -> Result<Response<Nothing<S::Message>>, Status> {
        Ok(frames::answer(supply(self.admit(request)?, source)))
    }
}

fn attested<Q>(request: &Request<Q>) -> Result<Peer, Status> {
    let peer = request
        .extensions()
        .get::<Peer>()
        .ok_or_else(|| Status::internal("the connection was not attested"))?;
    match peer.as_ref() {
        Ok(_) => Ok(peer.clone()),
        Err(refusal) if refusal.is_passing() => Err(unattested()),
        Err(refusal) => Err(Status::permission_denied(format!("no identity issued: {refusal}"))),
    }
}

fn check_header(metadata: &MetadataMap) -> Result<(), Status> {
    let mut values = metadata.get_all(HEADER).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if value.as_bytes() == b"true" => Ok(()),
        _ => Err(Status::invalid_argument(format!(
            "security header missing from request: send {HEADER}: true, once"
        ))),
    }
}

#[tonic::async_trait]
impl SpiffeWorkloadApi for Service {
    type FetchX509SVIDStream = Nothing<X509svidResponse>;
    type FetchX509BundlesStream = Nothing<X509BundlesResponse>;
    type FetchJWTBundlesStream = Nothing<JwtBundlesResponse>;

    async fn fetch_x509svid(
        &self,
        request: Request<X509svidRequest>,
    ) -> Result<Response<Self::FetchX509SVIDStream>, Status> {
        self.stream(&request, Svids::new(self.keeper()))
    }

    async fn fetch_x509_bundles(
        &self,
        request: Request<X509BundlesRequest>,
    ) -> Result<Response<Self::FetchX509BundlesStream>, Status> {
        self.stream(&request, Bundles::default())
    }

    async fn fetch_jwtsvid(
        &self,
        request: Request<JwtsvidRequest>,
    ) -> Result<Response<JwtsvidResponse>, Status> {
        let feed = self.admit(&request)?;
        jwt::fetch(feed, request.into_inner()).await.map(Response::new)
    }

    async fn fetch_jwt_bundles(
        &self,
        request: Request<JwtBundlesRequest>,
    ) -> Result<Response<Self::FetchJWTBundlesStream>, Status> {
        self.stream(&request, JwtBundles::default())
    }

    async fn validate_jwtsvid(
        &self,
        request: Request<ValidateJwtsvidRequest>,
    ) -> Result<Response<ValidateJwtsvidResponse>, Status> {
        let feed = self.admit(&request)?;
        jwt::validate(feed, request.into_inner()).await.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_must_be_there_exactly_and_once() {
        for (values, good) in [
            (&["true"][..], true),
            (&[], false),
            (&["True"], false),
            (&["false"], false),
            (&["true "], false),
            (&["true", "true"], false),
            (&["true", "x"], false),
        ] {
            let mut metadata = MetadataMap::new();
            for value in values {
                metadata.append(HEADER, value.parse().unwrap());
            }
            assert_eq!(check_header(&metadata).is_ok(), good, "{values:?}");
        }
    }
}
