//! Keeps the node's own SVID fresh: joins when there is none, renews when it is time, tries again when that fails.
//!
//! A node with the site's CA asks itself, others ask the issuers they are told of, in random order. While nobody answers the old SVID
//! serves until its end; after that the node goes on without: tunnels and routes do not depend on it.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use isthmus_pki::{
    SpiffeId, TrustDomain,
    renewal::{self, Renewal, Standing as Progress},
};
use isthmus_proto::issuance::{EnrollRequest, RenewRequest};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    client::{self, As},
    fleet::TrustState,
    join::{self, Pending},
    pace::Pace,
    token::{NotAToken, Token},
};
use crate::identity::{
    config::Config,
    files::{self, FileError},
    handle::Handle,
    issuing::{self, Requester},
    own::Own,
    registration::Identity,
    standing::{Live, Standing},
};
use crate::secret_file::Rule;

/// Longest sleep, where nobody tells that the wall clock was set (`clock.rs`).
const MAX_SLEEP: Duration = Duration::from_secs(30);
/// Shortest, so that a clock that runs wild can't make this a busy loop.
const MIN_SLEEP: Duration = Duration::from_millis(50);
/// Longest wait between two attempts of a node without an SVID, in seconds.
const JOIN_WAIT: i64 = 60;

/// Why an attempt gave no SVID.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Join(#[from] join::Error),
    #[error("no issuer gave a certificate: {0}")]
    Issuers(String),
    #[error("this node's site CA: {0}")]
    Local(#[from] issuing::Error),
    #[error("{0}")]
    TokenFile(FileError),
    #[error("{path}: {reason}")]
    Token { path: String, reason: NotAToken },
    #[error(
        "{path}: the join token is {issuer}'s, and this node is to be of site {site:?} in {domain}: it was shown to nobody; make one there, or mend [node] site or trust_bundle"
    )]
    Elsewhere { path: String, issuer: SpiffeId, site: String, domain: TrustDomain },
    #[error("{issuer}, which made the join token, gave no certificate: {reasons}")]
    Enroll { issuer: SpiffeId, reasons: String },
    #[error(
        "this node has no SVID that is believed now ({0}), and no join token: make one with `isthmusctl token create` on an issuer and put it into [identity] join_token_file"
    )]
    NoToken(String),
}

/// How renewal goes, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::identity) struct View {
    /// Half the life is over, or all of it, and no attempt has succeeded.
    pub(in crate::identity) overdue: bool,
    /// Why the last attempt failed; empty: it did not.
    pub(in crate::identity) last_error: String,
    /// In a row.
    pub(in crate::identity) failures: u32,
}

/// Runs until `shutdown`.
pub(in crate::identity) async fn run(handle: Handle, view: watch::Sender<View>, shutdown: CancellationToken) {
    let (mut live, mut heard) = (handle.live(), handle.heard());
    let mut agent = Agent {
        handle,
        heard: heard.clone(),
        span: None,
        pace: Pace::default(),
        view,
        live: live.clone(),
        config: None,
        of: None,
        renewal: None,
        joining: Joining::default(),
    };
    loop {
        let standing = live.borrow_and_update().clone();
        heard.mark_unchanged();
        let sleep = match standing {
            Some(standing) => tokio::select! {
                sleep = agent.step(&standing) => sleep,
                () = shutdown.cancelled() => return,
            },
            None => MAX_SLEEP,
        };
        tokio::select! {
            changed = live.changed() => if changed.is_err() { return },
            changed = heard.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(sleep) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

struct Agent {
    handle: Handle,
    view: watch::Sender<View>,
    live: Live,
    /// What issuers say.
    heard: watch::Receiver<Option<Arc<TrustState>>>,
    /// Within how many seconds the SVID in use is to be renewed, since its CA was left: its moment was drawn.
    span: Option<u32>,
    /// How often an issuer's word is followed.
    pace: Pace,
    /// The configuration that was followed last: another one may have what was missing.
    config: Option<Arc<Config>>,
    /// Whose renewal `renewal` is.
    of: Option<Arc<Own>>,
    renewal: Option<Renewal>,
    joining: Joining,
}

/// Attempts of a node that has no SVID at all.
#[derive(Default)]
struct Joining {
    failures: u32,
    retry_at: Option<i64>,
}

impl Agent {
    /// Tries if it is time, and says how long to wait.
    async fn step(&mut self, standing: &Standing) -> Duration {
        self.follow(standing);
        self.obey(standing);
        let now = SystemTime::now();
        if standing.is_renewable() && self.is_due(standing, now) {
            match self.attempt(standing, now).await {
                Ok(own) => self.succeeded(own).await,
                Err(error) => self.failed(&error),
            }
        }
        self.show();
        self.sleep()
    }

    /// A new SVID, ours or from a reload, starts anew.
    fn follow(&mut self, standing: &Standing) {
        let same = match (&self.of, &standing.own) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.of = standing.own.clone();
            self.renewal = standing.own.as_ref().map(|own| own.renewal());
            self.joining = Joining::default();
            self.span = None;
            self.view.send_replace(View::default());
        }
        if !self.config.as_ref().is_some_and(|old| Arc::ptr_eq(old, &standing.config)) {
            self.config = Some(standing.config.clone());
            self.joining.retry_at = None;
            if let Some(renewal) = &mut self.renewal {
                renewal.again();
            }
        }
    }

    /// An issuer's word that the CA of our SVID was left: a moment is drawn for it within the span, and again if that gets shorter.
    fn obey(&mut self, standing: &Standing) {
        let heard = self.heard.borrow().clone();
        let order = heard.as_ref().and_then(|state| state.renew.as_ref());
        // The same for workloads: said when it came, and here again if it was too soon then.
        self.handle.obey(order);
        let (Some(order), Some(own), Some(renewal)) = (order, &standing.own, &mut self.renewal) else {
            return;
        };
        if own.ca_key().is_none_or(|ca| !order.concerns(&ca))
            || self.span.is_some_and(|span| span <= order.seconds)
            || !self.pace.allow(Instant::now())
        {
            return;
        }
        renewal.hasten(order.moment(seconds(SystemTime::now()), rand::random()));
        self.span = Some(order.seconds);
        tracing::info!(
            within_seconds = order.seconds,
            "another site CA issues now: this node's SVID is renewed soon"
        );
    }

    fn is_due(&self, standing: &Standing, now: SystemTime) -> bool {
        let clock = seconds(now);
        match (&self.renewal, &standing.own) {
            (Some(renewal), Some(own)) => {
                // A CA that is not believed any more takes its SVIDs with it, at once and not at their half life.
                let fallen = || renewal.failures() == 0 && own.believed(standing.trust.store(), now).is_err();
                // And one that issues no more is to be done with.
                let left_behind = || renewal.failures() == 0 && standing.is_of_another_ca(own);
                renewal.is_due(clock) || fallen() || left_behind()
            }
            _ => self.joining.retry_at.is_none_or(|at| clock >= at || clock + JOIN_WAIT < at),
        }
    }

    async fn attempt(&self, standing: &Standing, now: SystemTime) -> Result<Arc<Own>, Error> {
        if let Some(issuer) = &standing.issuer {
            return self.attempt_here(issuer.clone(), standing, now).await;
        }
        let believed = match &standing.own {
            Some(own) => own.believed(standing.trust.store(), now).map_err(|reason| reason.to_string()),
            None => Err("it never had one".into()),
        };
        match (believed, &standing.config.join_token_file) {
            (Ok(()), _) => self.renew(standing).await,
            (Err(_), Some(path)) if path.exists() => self.enroll(standing, path).await,
            (Err(reason), _) => Err(Error::NoToken(reason)),
        }
    }

    async fn attempt_here(
        &self,
        issuer: Arc<issuing::Issuer>,
        standing: &Standing,
        now: SystemTime,
    ) -> Result<Arc<Own>, Error> {
        let pending = Pending::new(standing)?;
        let (site, node) = &*standing.node;
        let id = isthmus_pki::id::node_id(issuer.trust_domain(), site, node).map_err(join::Error::Id)?;
        let ttl = standing.rules.ttl;
        let (dns_names, federates_with) = (Vec::new(), Vec::new());
        let identity = Identity { id, ttl, jwt_ttl: ttl, dns_names, hint: String::new(), federates_with };
        let certified =
            issuer.certify(&pending.csr, &identity, &Requester::Node(identity.id.clone()), now)?;
        let certificates = certified.chain.iter().map(|der| der.to_vec()).collect();
        Ok(accept(pending, certificates, standing).await?)
    }

    async fn renew(&self, standing: &Standing) -> Result<Arc<Own>, Error> {
        let mut reasons = Vec::new();
        for address in shuffled(&standing.config.issuers) {
            match self.renew_at(&address, standing).await {
                Ok(own) => return Ok(own),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Error::Issuers(reasons.join("; ")))
    }

    async fn renew_at(&self, address: &str, standing: &Standing) -> Result<Arc<Own>, Attempt> {
        let pending = Pending::new(standing)?;
        let mut client = client::connect(address, &self.live, standing, As::Node, None).await?;
        let answer = client.renew(RenewRequest { csr: pending.csr.clone() }).await;
        let answer = answer.map_err(|status| client::refused(address, status))?;
        Ok(accept(pending, answer.into_inner().certificates, standing).await?)
    }

    async fn enroll(&self, standing: &Standing, path: &Path) -> Result<Arc<Own>, Error> {
        let token = read_token(path)?;
        check_issuer(&token, standing, path)?;
        let mut reasons = Vec::new();
        for address in shuffled(&standing.config.issuers) {
            match self.enroll_at(&address, standing, &token).await {
                Ok(own) => {
                    forget(path);
                    return Ok(own);
                }
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Error::Enroll { issuer: token.issuer().clone(), reasons: reasons.join("; ") })
    }

    async fn enroll_at(
        &self,
        address: &str,
        standing: &Standing,
        token: &Token,
    ) -> Result<Arc<Own>, Attempt> {
        let pending = Pending::new(standing)?;
        let mut client =
            client::connect(address, &self.live, standing, As::Stranger(token.issuer()), None).await?;
        let (site, node) = (*standing.node).clone();
        let request =
            EnrollRequest { token: token.reveal().to_string(), site, node, csr: pending.csr.clone() };
        let answer = client.enroll(request).await.map_err(|status| client::refused(address, status))?;
        Ok(accept(pending, answer.into_inner().certificates, standing).await?)
    }

    async fn succeeded(&mut self, own: Arc<Own>) {
        metrics::counter!("isthmus_node_svid_renewals_total", "result" => "renewed").increment(1);
        self.handle.adopt(own).await;
    }

    fn failed(&mut self, error: &Error) {
        metrics::counter!("isthmus_node_svid_renewals_total", "result" => "failed").increment(1);
        let (now, jitter) = (seconds(SystemTime::now()), rand::random());
        match &mut self.renewal {
            Some(renewal) => renewal.failed(now, jitter),
            None => {
                self.joining.failures = self.joining.failures.saturating_add(1);
                self.joining.retry_at = Some(now + renewal::wait(self.joining.failures, JOIN_WAIT, jitter));
            }
        }
        let (overdue, failures) = (self.is_overdue(now), self.failures());
        self.view.send_replace(View { overdue, last_error: error.to_string(), failures });
        if overdue {
            tracing::warn!(%error, failures, "this node's SVID can't be renewed, and its time runs out");
        } else {
            tracing::info!(%error, failures, "this node's SVID could not be renewed yet; the old one serves, trying again");
        }
    }

    fn failures(&self) -> u32 {
        self.renewal.as_ref().map_or(self.joining.failures, Renewal::failures)
    }

    fn is_overdue(&self, now: i64) -> bool {
        let late = |renewal: &Renewal| matches!(renewal.standing(now), Progress::Overdue | Progress::Expired);
        self.renewal.as_ref().is_none_or(late)
    }

    /// A node that nobody renews is not overdue: it has what the ceremony gave it.
    fn show(&self) {
        let overdue = self.failures() > 0 && self.is_overdue(seconds(SystemTime::now()));
        self.view.send_if_modified(|view| std::mem::replace(&mut view.overdue, overdue) != overdue);
        metrics::gauge!("isthmus_node_svid_renewal_overdue").set(f64::from(u8::from(overdue)));
    }

    fn sleep(&self) -> Duration {
        let due = self.renewal.as_ref().map(Renewal::due_at).or(self.joining.retry_at);
        let left = due.map_or(i64::MAX, |due| due.saturating_sub(seconds(SystemTime::now())));
        Duration::from_secs(u64::try_from(left).unwrap_or(0)).clamp(MIN_SLEEP, MAX_SLEEP)
    }
}

/// Why one issuer gave no SVID.
#[derive(Debug, thiserror::Error)]
enum Attempt {
    #[error(transparent)]
    Call(#[from] client::Error),
    #[error(transparent)]
    Join(#[from] join::Error),
}

/// The disk may be slow; others are served meanwhile.
async fn accept(
    pending: Pending,
    certificates: Vec<Vec<u8>>,
    standing: &Standing,
) -> Result<Arc<Own>, join::Error> {
    let standing = standing.clone();
    let accept = move || pending.accept(certificates, &standing, SystemTime::now());
    tokio::task::spawn_blocking(accept).await.expect("looking at a certificate does not panic")
}

fn read_token(path: &Path) -> Result<Token, Error> {
    let bytes = files::secret(path, Rule::Private).map_err(Error::TokenFile)?;
    let token = std::str::from_utf8(&bytes).map_err(|_| NotAToken::Other).and_then(Token::parse);
    token.map_err(|reason| Error::Token { path: path.display().to_string(), reason })
}

/// A token that no issuer of this site made would only wander about.
fn check_issuer(token: &Token, standing: &Standing, path: &Path) -> Result<(), Error> {
    let (issuer, site, domain) = (token.issuer(), &standing.node.0, standing.trust.domain());
    if issuer.trust_domain() == domain && issuer.node().is_some_and(|(of, _)| of == site) {
        return Ok(());
    }
    Err(Error::Elsewhere {
        path: path.display().to_string(),
        issuer: issuer.clone(),
        site: site.clone(),
        domain: domain.clone(),
    })
}

/// It is worth nothing any more, but whoever finds it can't know that.
fn forget(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => tracing::info!(file = %path.display(), "the join token was used and its file removed"),
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "the join token was used; its file could not be removed");
        }
    }
}

/// Nodes that were started together do not all ask the same issuer first.
pub(super) fn shuffled(issuers: &[String]) -> Vec<String> {
    let mut all: Vec<(u32, &String)> = issuers.iter().map(|address| (rand::random(), address)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, address)| address.clone()).collect()
}

fn seconds(time: SystemTime) -> i64 {
    OffsetDateTime::from(time).unix_timestamp()
}
