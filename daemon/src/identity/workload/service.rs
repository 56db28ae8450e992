//! The calls of the Workload API: who may call, and which stream answers.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
};

use isthmus_proto::workload::{
    JwtBundlesRequest, JwtBundlesResponse, JwtsvidRequest, JwtsvidResponse, ValidateJwtsvidRequest,
    ValidateJwtsvidResponse, X509BundlesRequest, X509BundlesResponse, X509svidRequest, X509svidResponse,
    spiffe_workload_api_server::SpiffeWorkloadApi,
};
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::{
    Supply,
    connection::Peer,
    stream::{Bundles, Feed, Svids},
};
use crate::{identity::certificates::Ledger, log_limit::Limit};

/// Metadata key that keeps requests forged through another service out (Workload Endpoint section 6).
const HEADER: &str = "workload.spiffe.io";

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers calls; each stream lives in a task of its own.
pub(super) struct Service {
    supply: watch::Receiver<Option<Supply>>,
    ledger: Ledger,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    log: Arc<Mutex<Limit>>,
}

impl Service {
    pub(super) fn new(
        supply: watch::Receiver<Option<Supply>>,
        ledger: Ledger,
        shutdown: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self { supply, ledger, shutdown, tasks, log: Arc::default() }
    }

    fn feed<Q>(&self, request: &Request<Q>) -> Result<Feed, Status> {
        let peer = admit(request)?;
        let (supply, shutdown, log) = (self.supply.clone(), self.shutdown.clone(), self.log.clone());
        Ok(Feed { peer, supply, shutdown, log })
    }
}

/// Header first, then attestation.
fn admit<Q>(request: &Request<Q>) -> Result<Peer, Status> {
    check_header(request.metadata())?;
    let peer = request
        .extensions()
        .get::<Peer>()
        .ok_or_else(|| Status::internal("the connection was not attested"))?;
    match peer.as_ref() {
        Ok(_) => Ok(peer.clone()),
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

fn no_jwt<Q, R>(request: &Request<Q>) -> Result<R, Status> {
    admit(request)?;
    Err(Status::unimplemented("this node issues X.509-SVIDs only, no JWT-SVIDs"))
}

#[tonic::async_trait]
impl SpiffeWorkloadApi for Service {
    type FetchX509SVIDStream = Messages<X509svidResponse>;
    type FetchX509BundlesStream = Messages<X509BundlesResponse>;
    type FetchJWTBundlesStream = Messages<JwtBundlesResponse>;

    async fn fetch_x509svid(
        &self,
        request: Request<X509svidRequest>,
    ) -> Result<Response<Self::FetchX509SVIDStream>, Status> {
        let feed = self.feed(&request)?;
        Ok(Response::new(Box::pin(feed.spawn(&self.tasks, Svids::new(self.ledger.holder())))))
    }

    async fn fetch_x509_bundles(
        &self,
        request: Request<X509BundlesRequest>,
    ) -> Result<Response<Self::FetchX509BundlesStream>, Status> {
        let feed = self.feed(&request)?;
        Ok(Response::new(Box::pin(feed.spawn(&self.tasks, Bundles::default()))))
    }

    async fn fetch_jwtsvid(
        &self,
        request: Request<JwtsvidRequest>,
    ) -> Result<Response<JwtsvidResponse>, Status> {
        no_jwt(&request)
    }

    async fn fetch_jwt_bundles(
        &self,
        request: Request<JwtBundlesRequest>,
    ) -> Result<Response<Self::FetchJWTBundlesStream>, Status> {
        no_jwt(&request)
    }

    async fn validate_jwtsvid(
        &self,
        request: Request<ValidateJwtsvidRequest>,
    ) -> Result<Response<ValidateJwtsvidResponse>, Status> {
        no_jwt(&request)
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
