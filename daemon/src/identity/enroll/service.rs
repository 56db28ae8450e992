//! The calls of the issuance service: who may make which, and in what order things are checked.
//!
//! A stranger's call is checked from the cheapest to the dearest: rate, then one hash, and only for a token that is good the request's
//! signature. The use of a token is on disk before the certificate is made.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use isthmus_pki::{
    SpiffeId,
    audit::{Entry, Kind},
    csr, id,
};
use isthmus_proto::issuance::{
    CertificateChain, EnrollRequest, IssueJwtRequest, IssueJwtResponse, IssueX509Request, RenewRequest,
    SyncRequest, SyncResponse, issuance_server::Issuance,
};
use time::OffsetDateTime;
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use zeroize::Zeroize as _;

use super::{
    accept::Peer,
    fleet::{Fleet, NodeReport, View},
    rate::Rate,
    register::Refusal,
    token::Token,
    tokens::{self, Tokens},
};
use crate::{
    identity::{
        issuing::{Issuer, Requester},
        registration::Identity,
        standing::{Live, Standing},
    },
    log_limit::Limit,
};

/// Calls without a certificate that one source may make: so many a second, and so many at once after a rest.
const STRANGERS: (u32, u32) = (5, 100);
/// Calls with one.
const NODES: (u32, u32) = (500, 5000);
/// The same of nodes of other sites: they ask for keys twice a second at most, and each answer is large.
const OTHERS: (u32, u32) = (10, 100);
/// How often a caller is told of keys at most; what is to be believed less is told at once.
const KEYS_PAUSE: Duration = Duration::from_secs(1);
/// How long a Sync waits for a change.
const SYNC_WAIT: Duration = Duration::from_secs(30);
/// Lifetime of what a node may ask for on behalf of a workload.
const WORKLOAD_TTL: (u64, u64) = (60, 86_400);
/// The same of a token.
const JWT_TTL: (u64, u64) = (30, 3600);

/// One for all connections.
pub(super) struct Service {
    live: Live,
    tokens: Tokens,
    fleet: Fleet,
    stop: CancellationToken,
    strangers: Mutex<Rate>,
    nodes: Mutex<Rate>,
    others: Mutex<Rate>,
    log: Mutex<Limit>,
}

/// A caller that showed a certificate which holds now.
struct Caller {
    id: SpiffeId,
    standing: Standing,
    issuer: Arc<Issuer>,
}

impl Service {
    pub(super) fn new(live: Live, tokens: Tokens, fleet: Fleet, stop: CancellationToken) -> Self {
        let rate = |(per_second, burst)| Mutex::new(Rate::new(per_second, burst, Instant::now()));
        let log = Mutex::default();
        let (strangers, nodes, others) = (rate(STRANGERS), rate(NODES), rate(OTHERS));
        Self { live, tokens, fleet, stop, strangers, nodes, others, log }
    }

    fn standing(&self) -> Result<(Standing, Arc<Issuer>), Status> {
        let standing = self.live.borrow().clone();
        let standing = standing.ok_or_else(|| Status::unavailable("this node has no identity now"))?;
        let issuer = standing.issuer.clone();
        let issuer = issuer.ok_or_else(|| Status::unavailable("this node holds no site CA now"))?;
        Ok((standing, issuer))
    }

    /// A node of this site.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = self.node(request)?;
        if caller.is_of_this_site() {
            return Ok(caller);
        }
        refuse("other_site");
        let Caller { id, standing, .. } = caller;
        Err(Status::permission_denied(format!("{id} is no node of site {}", standing.node.0)))
    }

    /// A node of any site. The certificate of the connection is looked at again for each call: a connection may be older than a ban.
    fn node<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let peer = peer(request)?;
        spend(&self.nodes, &peer)?;
        let check =
            peer.check.ok_or_else(|| Status::unauthenticated("this call needs the node's certificate"))?;
        let id = check.now().map_err(|reason| {
            refuse("not_believed");
            tracing::info!(peer = %peer.address, reason, "a call was refused: its connection's certificate does not hold");
            Status::permission_denied("the certificate of this connection is not accepted any more")
        })?;
        let (standing, issuer) = self.standing()?;
        if id.node().is_none() {
            refuse("no_node");
            return Err(Status::permission_denied(format!("{id} is no node")));
        }
        Ok(Caller { id, standing, issuer })
    }

    /// What a stranger is told of a token is always the same; the log has the reason.
    fn log_refused(&self, peer: &Peer, issuer: &Issuer, request: &EnrollRequest, refusal: &Refusal) {
        issuer.audit().refuse(&Entry {
            time: OffsetDateTime::now_utc(),
            kind: Kind::Refused,
            // Only what can be a node's ID is written down: a stranger chose it.
            id: &id::node_id(issuer.trust_domain(), &request.site, &request.node)
                .map(|id| id.to_string())
                .unwrap_or_default(),
            serial: "",
            not_after: None,
            requester: &format!("join token from {}", peer.address.ip()),
            reason: &refusal.to_string(),
        });
        refuse(refusal.reason());
        metrics::counter!("isthmus_enroll_total", "result" => refusal.reason()).increment(1);
        // A limit that was left half-changed lets one line more or less through.
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(not_shown) = log.pass(Instant::now()) {
            tracing::warn!(peer = %peer.address, reason = %refusal, not_shown, "a join token was refused");
        }
    }

    /// What differs from what the caller knows, as soon as something does; over time the same again, so that it reports again.
    async fn news(&self, ours: bool, known_version: &[u8]) -> Arc<View> {
        let (mut told, pause) = (self.fleet.state(), tokio::time::Instant::now() + KEYS_PAUSE);
        let before = told.borrow().view(ours).clone();
        if !before.is_known_as(known_version) {
            return before;
        }
        drop(timeout(SYNC_WAIT, told.wait_for(|told| !told.view(ours).is_known_as(known_version))).await);
        let more = told.wait_for(|told| !told.view(ours).differs_by_keys_at_most(&before));
        drop(timeout_at(pause, more).await);
        told.borrow().view(ours).clone()
    }

    async fn redeem(&self, token: &Token, site: &str, node: &str) -> Result<(), tokens::Error> {
        let (tokens, hash) = (self.tokens.clone(), token.hash());
        let (site, node) = (site.to_owned(), node.to_owned());
        // The disk may be slow; others are served meanwhile.
        let redeem = move || tokens.redeem(&hash, (&site, &node), now());
        tokio::task::spawn_blocking(redeem).await.expect("the register does not panic")
    }

    /// Uses the token up and says who asks.
    async fn admit(
        &self,
        peer: &Peer,
        issuer: &Issuer,
        request: &EnrollRequest,
        (site, name): (&str, &str),
    ) -> Result<Requester, Status> {
        let denied =
            || Status::permission_denied("this join token is not accepted; the issuer's log says why");
        let told = |error: tokens::Error| match error {
            tokens::Error::Refused(refusal) => {
                self.log_refused(peer, issuer, request, &refusal);
                denied()
            }
            other => {
                tracing::error!(error = %other, "a join token could not be used");
                Status::unavailable("the issuer can't keep the use of a token now; its log says why")
            }
        };
        let token = Token::parse(&request.token).map_err(|_| told(Refusal::Unknown.into()))?;
        let (id, made_by) = (token.hash().id().to_owned(), token.issuer());
        if made_by.trust_domain() != issuer.trust_domain() || made_by.node() != Some((site, name)) {
            return Err(told(Refusal::Elsewhere { id, issuer: made_by.clone() }.into()));
        }
        if request.site != site {
            return Err(told(Refusal::Other { id, site: site.into(), node: String::new() }.into()));
        }
        self.tokens.check(&token.hash(), (site, &request.node), now()).map_err(told)?;
        csr::parse(&request.csr).map_err(bad_request)?;
        self.redeem(&token, site, &request.node).await.map_err(told)?;
        Ok(Requester::Token(token.hash().id().to_owned()))
    }
}

#[tonic::async_trait]
impl Issuance for Service {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<CertificateChain>, Status> {
        let peer = peer(&request)?;
        spend(&self.strangers, &peer)?;
        let (standing, issuer) = self.standing()?;
        let ((site, name), mut request) = ((*standing.node).clone(), request.into_inner());
        let requester = self.admit(&peer, &issuer, &request, (&site, &name)).await;
        request.token.zeroize();
        let requester = requester?;
        let id = id::node_id(issuer.trust_domain(), &site, &request.node)
            .map_err(|_| Status::internal("a token was made for a node that can't be"))?;
        let chain = certify(&issuer, request.csr, node_identity(id.clone(), &standing), requester).await?;
        metrics::counter!("isthmus_enroll_total", "result" => "joined").increment(1);
        tracing::info!(%id, peer = %peer.address, "a node has joined with a token");
        Ok(Response::new(chain))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<CertificateChain>, Status> {
        let Caller { id, standing, issuer } = self.caller(&request)?;
        let identity = node_identity(id.clone(), &standing);
        let requester = Requester::Node(id.clone());
        let chain = certify(&issuer, request.into_inner().csr, identity, requester).await?;
        tracing::info!(%id, "renewed a node's SVID");
        Ok(Response::new(chain))
    }

    async fn issue_x509(
        &self,
        request: Request<IssueX509Request>,
    ) -> Result<Response<CertificateChain>, Status> {
        let caller = self.caller(&request)?;
        let IssueX509Request { csr, path, dns_names, ttl_seconds } = request.into_inner();
        let identity = caller.workload(&path, dns_names, ttl_seconds, WORKLOAD_TTL)?;
        let (requester, id) = (Requester::Node(caller.id.clone()), identity.id.clone());
        let chain = certify(&caller.issuer, csr, identity, requester).await?;
        tracing::info!(%id, node = %caller.id, "issued an X.509-SVID to a workload of a node");
        Ok(Response::new(chain))
    }

    async fn issue_jwt(
        &self,
        request: Request<IssueJwtRequest>,
    ) -> Result<Response<IssueJwtResponse>, Status> {
        let caller = self.caller(&request)?;
        let IssueJwtRequest { path, audience, ttl_seconds } = request.into_inner();
        let identity = caller.workload(&path, Vec::new(), ttl_seconds, JWT_TTL)?;
        mint(caller, identity, audience).await.map(Response::new)
    }

    async fn sync(&self, request: Request<SyncRequest>) -> Result<Response<SyncResponse>, Status> {
        let (caller, peer) = (self.node(&request)?, peer(&request)?);
        let SyncRequest { report, known_version } = request.into_inner();
        let ours = caller.is_of_this_site();
        if !ours {
            spend(&self.others, &peer)?;
        }
        // The fleet is this site's: nodes of others are waited for there.
        if let Some(report) = report.filter(|_| ours) {
            self.fleet.report(caller.id, NodeReport::from(report), now());
        }
        tokio::select! {
            view = self.news(ours, &known_version) => Ok(Response::new(view.answer())),
            () = self.stop.cancelled() => Err(Status::unavailable("isthmusd is stopping; try again")),
        }
    }
}

impl Caller {
    fn is_of_this_site(&self) -> bool {
        self.id.node().is_some_and(|(site, _)| site == self.standing.node.0)
    }

    /// The rules of the site hold for whoever asks, whatever it says that its workloads are.
    fn workload(
        &self,
        path: &str,
        dns_names: Vec<String>,
        ttl: u32,
        range: (u64, u64),
    ) -> Result<Identity, Status> {
        let id = self.issuer.trust_domain().member(path);
        let id = id.map_err(|error| Status::invalid_argument(format!("path: {error}")))?;
        if !self.standing.rules.allow_workload(&id, &dns_names) {
            refuse("not_allowed");
            tracing::info!(%id, node = %self.id, "a node asked for an identity that [issuer] node_paths and node_dns_names don't allow");
            return Err(Status::permission_denied(format!(
                "nodes of this site may not ask for {id} with these DNS names; see [issuer] node_paths and node_dns_names"
            )));
        }
        let ttl = Duration::from_secs(u64::from(ttl).clamp(range.0, range.1));
        Ok(Identity { dns_names, ..identity(id, ttl) })
    }
}

fn identity(id: SpiffeId, ttl: Duration) -> Identity {
    let (dns_names, federates_with) = (Vec::new(), Vec::new());
    Identity { id, ttl, jwt_ttl: ttl, dns_names, hint: String::new(), federates_with }
}

fn node_identity(id: SpiffeId, standing: &Standing) -> Identity {
    identity(id, standing.rules.ttl)
}

/// Signing takes a core for a moment, and the audit log its disk: not one of those that answer.
async fn certify(
    issuer: &Arc<Issuer>,
    csr: Vec<u8>,
    identity: Identity,
    requester: Requester,
) -> Result<CertificateChain, Status> {
    let issuer = issuer.clone();
    let certify = move || issuer.certify(&csr, &identity, &requester, SystemTime::now());
    let certified = tokio::task::spawn_blocking(certify).await.expect("the issuer does not panic");
    let certified = certified.map_err(|error| {
        tracing::info!(%error, "a certificate was not issued");
        error.status()
    })?;
    Ok(CertificateChain { certificates: certified.chain.iter().map(|der| der.to_vec()).collect() })
}

async fn mint(caller: Caller, identity: Identity, audience: Vec<String>) -> Result<IssueJwtResponse, Status> {
    let requester = Requester::Node(caller.id);
    let mint = move || caller.issuer.mint(&identity, &audience, &requester, SystemTime::now());
    let minted = tokio::task::spawn_blocking(mint).await.expect("the issuer does not panic");
    let minted = minted.map_err(|error| {
        tracing::info!(%error, "a JWT-SVID was not issued");
        error.status()
    })?;
    Ok(IssueJwtResponse { token: minted.token.to_string(), expires_at: minted.expires_at.unix_timestamp() })
}

fn bad_request(reason: csr::Error) -> Status {
    refuse("bad_request");
    Status::invalid_argument(format!("csr: {reason}"))
}

fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    request.extensions().get::<Peer>().cloned().ok_or_else(|| Status::internal("a call without a connection"))
}

fn spend(rate: &Mutex<Rate>, peer: &Peer) -> Result<(), Status> {
    let mut rate = rate.lock().unwrap_or_else(PoisonError::into_inner);
    if rate.allow(peer.address.ip(), Instant::now()) {
        return Ok(());
    }
    refuse("rate");
    Err(Status::resource_exhausted("too many calls from this address; wait a second"))
}

fn refuse(reason: &'static str) {
    metrics::counter!("isthmus_issuance_refused_total", "reason" => reason).increment(1);
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}
