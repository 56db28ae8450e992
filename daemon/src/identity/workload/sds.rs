//! Envoy's secret discovery service on the Workload API's socket. Envoy is attested as any workload is, and sends no header.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use arc_swap::ArcSwap;
use futures_util::stream;
use isthmus_pki::{Key, bundle};
use isthmus_proto::sds::envoy::service::{
    discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
    secret::v3::secret_discovery_service_server::SecretDiscoveryService,
};
use prost_types::Any;
use tonic::{Request, Response, Status, Streaming};

use super::{
    Settings,
    documents::Encoded,
    feed::{Entitled, Feed},
    frames::{self, Nothing},
    keeper::{Held, Keeper, Round},
    service::Service,
};
use crate::{
    identity::sds::{self, Anchors, Certificate, Item, Kind, Offer, Session, Step},
    log_limit::Limit,
};

/// Answers Envoys.
pub(super) struct Secrets {
    service: Service,
    settings: Arc<ArcSwap<Settings>>,
    refusals: Arc<Mutex<Limit>>,
}

impl Secrets {
    pub(super) fn new(service: Service, settings: Arc<ArcSwap<Settings>>) -> Self {
        Self { service, settings, refusals: Arc::default() }
    }

    fn talk<Q>(&self, request: &Request<Q>) -> Result<Talk, Status> {
        Ok(Talk {
            feed: self.service.feed(request)?,
            keeper: self.service.keeper(),
            session: Session::default(),
            settings: self.settings.clone(),
            refusals: self.refusals.clone(),
        })
    }
}

#[tonic::async_trait]
impl SecretDiscoveryService for Secrets {
    type DeltaSecretsStream = Nothing<DeltaDiscoveryResponse>;
    type StreamSecretsStream = Nothing<DiscoveryResponse>;

    async fn delta_secrets(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaSecretsStream>, Status> {
        Err(Status::unimplemented("secrets are served as the state of the world: use StreamSecrets"))
    }

    async fn stream_secrets(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamSecretsStream>, Status> {
        let state = Some((self.talk(&request)?, request.into_inner()));
        let messages = stream::unfold(state, |state| async move {
            let (mut talk, mut incoming) = state?;
            match talk.advance(&mut incoming).await {
                Ok(Some(message)) => Some((Ok(message), Some((talk, incoming)))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(frames::answer(messages))
    }

    async fn fetch_secrets(
        &self,
        request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        let mut talk = self.talk(&request)?;
        talk.hear(request.into_inner())?;
        let answer = talk.answer().await?;
        answer.map(Response::new).ok_or_else(|| Status::unavailable("there is no such secret now; try again"))
    }
}

/// A conversation with one Envoy.
struct Talk {
    feed: Feed,
    keeper: Keeper,
    session: Session,
    settings: Arc<ArcSwap<Settings>>,
    refusals: Arc<Mutex<Limit>>,
}

impl Talk {
    /// The next message; `None`: the client has said all and left.
    async fn advance(
        &mut self,
        incoming: &mut Streaming<DiscoveryRequest>,
    ) -> Result<Option<DiscoveryResponse>, Status> {
        loop {
            tokio::select! {
                request = incoming.message() => match request? {
                    Some(request) => self.hear(request)?,
                    None => return Ok(None),
                },
                changed = self.feed.changed(self.keeper.due()) => changed?,
            }
            if let Some(answer) = self.answer().await? {
                return Ok(Some(answer));
            }
        }
    }

    fn hear(&mut self, request: DiscoveryRequest) -> Result<(), Status> {
        let step =
            self.session.request(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
        match step {
            Step::Refused(reason) => self.log_refusal(&reason),
            step => tracing::trace!(node = self.session.node(), ?step, "secret discovery"),
        }
        Ok(())
    }

    fn log_refusal(&self, reason: &str) {
        metrics::counter!("isthmus_sds_refused_total").increment(1);
        // A limit that was left half-changed lets one line more or less through.
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(not_shown) = refusals.pass(Instant::now()) {
            let pid = self.feed.caller().map(|caller| caller.pid()).unwrap_or_default();
            tracing::warn!(node = self.session.node(), pid, reason, not_shown, "Envoy refused a secret");
        }
    }

    /// What is due to the client now, if anything is.
    async fn answer(&mut self) -> Result<Option<DiscoveryResponse>, Status> {
        if self.session.names().is_none() {
            return Ok(None);
        }
        let Entitled { supply, identities, requester } = self.feed.entitled().await?;
        let documents = self.feed.shared.library.of(&supply.trust);
        let bundles = [documents.own().clone()].into_iter().chain(documents.federated(&identities));
        // A domain that has withdrawn all its roots: no context at all, for one without anchors would let everybody in.
        let bundles: Vec<Encoded> = bundles.filter(|bundle| !bundle.der.is_empty()).collect();
        let offer = Offer {
            identities: identities.iter().map(|identity| identity.id.to_string()).collect(),
            bundles: bundles.iter().map(|bundle| bundle.id.to_string()).collect(),
        };
        let wanted = self.session.names().unwrap_or_default();
        let items = self.settings.load().names.plan(wanted, &offer);
        let items = items.map_err(|error| Status::invalid_argument(error.to_string()))?;
        // Only what is asked for is issued: Envoy opens a stream for each secret.
        let needed = identities
            .iter()
            .enumerate()
            .filter(|(at, _)| items.iter().any(|item| item.kind == Kind::Svid(*at)));
        let needed: Vec<_> = needed.map(|(_, identity)| identity.clone()).collect();
        let workshop = &self.feed.shared.workshop;
        let round = self.keeper.refresh(&supply, needed, &requester, SystemTime::now(), workshop).await?;
        if round == Round::Withheld {
            return Ok(None);
        }
        let build = |item: &Item| match item.kind {
            Kind::Svid(at) => {
                let held = self.keeper.held().iter().find(|held| *held.identity() == identities[at])?;
                Some(sds::certificate(&item.name, &certificate(held)?))
            }
            Kind::Bundle(at) => Some(sds::bundle(&item.name, &anchors(&bundles[at]))),
            Kind::AllBundles => {
                let all: Vec<Anchors> = bundles.iter().map(anchors).collect();
                Some(sds::all_bundles(&item.name, &all))
            }
        };
        let resources: Vec<Any> = items.iter().filter_map(build).collect();
        Ok(self.session.answer(resources, rand::random()))
    }
}

fn certificate(held: &Held) -> Option<Certificate> {
    // What this node issued a moment ago can be read.
    let chain = bundle::certificates(held.chain()).ok()?;
    let key = Key::from_pkcs8(held.key()).ok()?;
    Some(Certificate { chain: bundle::to_pem(&chain).into_bytes(), key: key.to_pem() })
}

fn anchors(bundle: &Encoded) -> Anchors {
    Anchors { trust_domain: bundle.name.to_string(), pem: bundle.pem.to_vec() }
}
