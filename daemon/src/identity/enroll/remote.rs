//! SVIDs for the workloads of a node without a site CA: keys made here, certificates from the issuers of the site.
//!
//! What came is kept in [`Reserve`] until its end, key and all, for every caller with the same entitlement: an issuer that dies is noticed
//! by nobody before the last SVID ends. Where a site CA was left, an issuer says so ([`Remote::follow`]), and what is of that CA is fetched
//! anew within the span that it gives, whether somebody asks for it or not: the reserve is for the hour when nobody can be asked.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Instant, SystemTime},
};

use isthmus_pki::{
    Curve, Facts, Key, SpiffeId, TrustDomain, authority, csr,
    renewal::RenewWithin,
    verify::{self, Policy, Purpose},
};
use isthmus_proto::issuance::{
    CertificateChain, IssueJwtRequest, IssueJwtResponse, IssueX509Request, issuance_client::IssuanceClient,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use tokio::{sync::Mutex as AsyncMutex, task::AbortHandle};
use tonic::{Status, transport::Channel};
use zeroize::Zeroizing;

use super::{
    agent::shuffled,
    client::{self, As},
    pace::Pace,
    reserve::{Held, RETRY, Reserve, Wanted},
};
use crate::identity::{
    certificates::{CertificateInfo, Kind},
    issuing::{Error, JwtSvid, Svid},
    own::Own,
    registration::Identity,
    rotation::ReissueOrder,
    standing::{Live, Standing},
};

/// After all issuers failed nobody is asked for so long: callers with something in reserve are not kept waiting.
const QUIET: std::time::Duration = std::time::Duration::from_secs(5);
/// Longest sleep: the wall clock may jump, and certificates live by the wall clock.
const MAX_SLEEP: std::time::Duration = std::time::Duration::from_secs(30);

/// A connection to an issuer, for as long as we are who we were when it was made.
struct Session {
    own: Arc<Own>,
    address: String,
    client: IssuanceClient<Channel>,
}

/// What an issuer said last of CAs that were left.
#[derive(Default)]
struct Followed {
    order: Option<RenewWithin>,
    /// Counts the words that were new.
    generation: u64,
    pace: Pace,
    task: Option<AbortHandle>,
}

/// Asks the issuers of the site. [`Remote::issue`] blocks, and so must be called where that is allowed.
pub struct Remote {
    live: Live,
    trust_domain: TrustDomain,
    runtime: tokio::runtime::Handle,
    reserve: Mutex<Reserve>,
    followed: Mutex<Followed>,
    session: AsyncMutex<Option<Session>>,
    quiet_until: Mutex<Option<Instant>>,
}

impl Remote {
    /// For the runtime that it is called in.
    pub(in crate::identity) fn new(live: Live, trust_domain: TrustDomain) -> Arc<Self> {
        Arc::new(Self {
            live,
            trust_domain,
            runtime: tokio::runtime::Handle::current(),
            reserve: Mutex::default(),
            followed: Mutex::default(),
            session: AsyncMutex::default(),
            quiet_until: Mutex::default(),
        })
    }

    /// The trust domain of what it gives.
    pub(in crate::identity) fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// An SVID of this identity: from the reserve while it is fresh, else from an issuer, and if none answers from the reserve as long as
    /// that is valid. Never one of a CA that is tainted now.
    pub(in crate::identity) fn issue(&self, identity: &Identity, wall: SystemTime) -> Result<Svid, Error> {
        let now = OffsetDateTime::from(wall);
        let wanted = (identity.id.clone(), identity.dns_names.clone(), identity.ttl);
        if let Some(svid) = self.take(&wanted, Reserve::fresh, now)? {
            return Ok(svid);
        }
        match self.fetch(&wanted, wall) {
            Ok(held) => {
                let svid = held.svid(&wanted.0, held.renew_at)?;
                lock(&self.reserve).keep(wanted, held, now);
                Ok(svid)
            }
            Err(reason) => {
                let old = self.take(&wanted, Reserve::valid, now)?;
                old.ok_or(Error::Remote { id: wanted.0, reason })
            }
        }
    }

    /// Takes an issuer's word; false: it is the one that is followed, or too soon after others. Called in the runtime.
    pub(in crate::identity) fn follow(
        self: &Arc<Self>,
        order: Option<&RenewWithin>,
        wall: SystemTime,
    ) -> bool {
        let Some(order) = order else { return false };
        let mut followed = lock(&self.followed);
        let known = |known: &RenewWithin| known.says_all_of(order);
        if followed.order.as_ref().is_some_and(known) || !followed.pace.allow(Instant::now()) {
            return false;
        }
        followed.generation += 1;
        followed.order = Some(order.clone());
        lock(&self.reserve).hasten(order, wall.into(), rand::random);
        let task = self.runtime.spawn(renew_the_left(Arc::downgrade(self))).abort_handle();
        if let Some(before) = followed.task.replace(task) {
            before.abort();
        }
        true
    }

    /// The same for the streams of workloads: each asks again within the span.
    pub(in crate::identity) fn reissue(&self) -> ReissueOrder {
        let followed = lock(&self.followed);
        let seconds = followed.order.as_ref().map_or(0, |order| order.seconds);
        ReissueOrder {
            generation: followed.generation,
            window: std::time::Duration::from_secs(seconds.into()),
        }
    }

    /// A JWT-SVID. Tokens live for minutes: none is kept.
    pub(in crate::identity) fn mint(
        &self,
        identity: &Identity,
        audience: &[String],
        wall: SystemTime,
    ) -> Result<JwtSvid, Error> {
        let id = identity.id.clone();
        let request = IssueJwtRequest {
            path: id.path().to_owned(),
            audience: audience.to_vec(),
            ttl_seconds: u32::try_from(identity.jwt_ttl.as_secs()).unwrap_or(u32::MAX),
        };
        let answer = self.ask(async |mut client| Ok(client.issue_jwt(request.clone()).await?.into_inner()));
        let svid = answer.and_then(|answer| token(answer, id.clone(), wall));
        svid.map_err(|reason| Error::Remote { id, reason })
    }

    fn take(
        &self,
        wanted: &Wanted,
        find: for<'a> fn(&'a Reserve, &Wanted, &Policy, OffsetDateTime) -> Option<&'a Held>,
        now: OffsetDateTime,
    ) -> Result<Option<Svid>, Error> {
        let Some(standing) = self.live.borrow().clone() else { return Ok(None) };
        let reserve = lock(&self.reserve);
        let found = find(&reserve, wanted, standing.trust.store().policy(), now);
        let svid = found.map(|held| held.svid(&wanted.0, held.renew_at.max(now + RETRY).min(held.not_after)));
        svid.transpose()
    }

    /// Fetches one anew that is of a CA that was left. Blocks.
    fn renew(&self, wanted: Wanted, wall: SystemTime) {
        let now = OffsetDateTime::from(wall);
        match self.fetch(&wanted, wall) {
            Ok(held) => {
                let (id, serial) = (&wanted.0, &held.info.serial);
                tracing::info!(%id, serial, "an X.509-SVID in reserve is of the CA that issues now");
                lock(&self.reserve).keep(wanted, held, now);
            }
            Err(reason) => {
                let id = &wanted.0;
                tracing::debug!(%id, reason, "an X.509-SVID in reserve can't be fetched anew yet");
                lock(&self.reserve).put_off(&wanted, now + RETRY);
            }
        }
    }

    fn fetch(&self, wanted: &Wanted, wall: SystemTime) -> Result<Held, String> {
        let standing = self.live.borrow().clone().ok_or("this node has no identity now")?;
        let key = Key::generate(Curve::P256).map_err(|error| error.to_string())?;
        let request = csr::create(&key, "workload", &wanted.0).and_then(|pem| csr::to_der(&pem));
        let request = request.map_err(|error| error.to_string())?.to_vec();
        let request = IssueX509Request {
            csr: request,
            path: wanted.0.path().to_owned(),
            dns_names: wanted.1.clone(),
            ttl_seconds: u32::try_from(wanted.2.as_secs()).unwrap_or(u32::MAX),
        };
        let answer =
            self.ask(async |mut client| Ok(client.issue_x509(request.clone()).await?.into_inner()))?;
        accept(answer, key, wanted, &standing, wall)
    }

    /// The connection that is there first, then each issuer. A refusal is an answer: the others have the same rules. Blocks.
    fn ask<T>(&self, call: impl AsyncFn(IssuanceClient<Channel>) -> Result<T, Status>) -> Result<T, String> {
        if lock(&self.quiet_until).is_some_and(|until| Instant::now() < until) {
            return Err("no issuer answered a moment ago".into());
        }
        let standing = self.live.borrow().clone().ok_or("this node has no identity now")?;
        let own = standing.own.clone().ok_or("this node has not joined yet")?;
        self.runtime.block_on(self.ask_each(&standing, &own, call))
    }

    async fn ask_each<T>(
        &self,
        standing: &Standing,
        own: &Arc<Own>,
        call: impl AsyncFn(IssuanceClient<Channel>) -> Result<T, Status>,
    ) -> Result<T, String> {
        let mut reasons = Vec::new();
        for address in [None].into_iter().chain(shuffled(&standing.config.issuers).into_iter().map(Some)) {
            let Some((address, client)) = self.client(standing, own, address, &mut reasons).await else {
                continue;
            };
            match call(client).await {
                Ok(answer) => return Ok(answer),
                Err(status) => match client::refused(&address, status) {
                    refused @ client::Error::Refused { .. } => return Err(refused.to_string()),
                    broken => {
                        reasons.push(broken.to_string());
                        *self.session.lock().await = None;
                    }
                },
            }
        }
        *lock(&self.quiet_until) = Some(Instant::now() + QUIET);
        Err(reasons.join("; "))
    }

    /// `None` for the address: only if a connection is there.
    async fn client(
        &self,
        standing: &Standing,
        own: &Arc<Own>,
        address: Option<String>,
        reasons: &mut Vec<String>,
    ) -> Option<(String, IssuanceClient<Channel>)> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|open| Arc::ptr_eq(&open.own, own)) {
            return Some((open.address.clone(), open.client.clone()));
        }
        let address = address?;
        match client::connect(&address, &self.live, standing, As::Node, None).await {
            Ok(client) => {
                *session =
                    Some(Session { own: own.clone(), address: address.clone(), client: client.clone() });
                Some((address, client))
            }
            Err(error) => {
                reasons.push(error.to_string());
                None
            }
        }
    }
}

/// Fetches what is of a CA that was left, each at its moment, until nothing is left of it.
async fn renew_the_left(remote: Weak<Remote>) {
    while let Some((this, now)) = remote.upgrade().map(|this| (this, SystemTime::now())) {
        let Some((wanted, at)) = lock(&this.reserve).next_left(now.into()) else { return };
        let left = std::time::Duration::try_from(at - OffsetDateTime::from(now)).unwrap_or_default();
        if left.is_zero() {
            // One at a time: a node is one of many that the issuer serves now.
            let renew = move || this.renew(wanted, now);
            let _ = tokio::task::spawn_blocking(renew).await;
        } else {
            drop(this);
            tokio::time::sleep(left.min(MAX_SLEEP)).await;
        }
    }
}

/// What an issuer sent is believed as little as what a peer shows.
fn accept(
    answer: CertificateChain,
    key: Key,
    wanted: &Wanted,
    standing: &Standing,
    wall: SystemTime,
) -> Result<Held, String> {
    let chain: Vec<_> = answer.certificates.into_iter().map(CertificateDer::from).collect();
    let chain = <[CertificateDer<'static>; 2]>::try_from(chain);
    let chain = chain.map_err(|chain| format!("an issuer sent {} certificates instead of 2", chain.len()))?;
    let verified = verify::verify(&chain, standing.trust.store(), Purpose::Server, wall.into());
    let verified =
        verified.map_err(|reason| format!("an issuer sent a certificate that is refused: {reason}"))?;
    if verified.id != wanted.0 {
        return Err(format!("an issuer sent the certificate of {}", verified.id));
    }
    authority::check_key(&verified.leaf, &key).map_err(|error| error.to_string())?;
    held(chain, &key, &verified.leaf, wall)
        .ok_or_else(|| "an issuer sent a certificate without an end".into())
}

fn token(answer: IssueJwtResponse, id: SpiffeId, wall: SystemTime) -> Result<JwtSvid, String> {
    let expires_at = OffsetDateTime::from_unix_timestamp(answer.expires_at);
    let expires_at = expires_at.map_err(|error| format!("an issuer sent a token without an end: {error}"))?;
    Ok(JwtSvid { id, token: Zeroizing::new(answer.token), issued_at: wall.into(), expires_at })
}

fn held(chain: [CertificateDer<'static>; 2], key: &Key, leaf: &Facts, wall: SystemTime) -> Option<Held> {
    let now = OffsetDateTime::from(wall);
    let not_after = OffsetDateTime::from_unix_timestamp(leaf.not_after).ok()?;
    let ca = Facts::parse(&chain[1]).ok()?.key_sha256.into();
    // Half of what is left, give or take 5 %: what was issued together is not renewed together.
    let half: f64 = rand::random_range(0.45..0.55);
    let renew_at = now + (not_after - now) * half;
    let info = CertificateInfo {
        renew_at: Some(renew_at.unix_timestamp()),
        ..CertificateInfo::new(Kind::WorkloadSvid, leaf, None)
    };
    Some(Held { chain, key: key.to_pkcs8(), ca, info, not_after, renew_at })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Remote {
    /// The CA of what is in reserve for this identity.
    pub(super) fn ca_in_reserve(&self, identity: &Identity) -> Option<String> {
        let wanted = (identity.id.clone(), identity.dns_names.clone(), identity.ttl);
        let now = OffsetDateTime::from(SystemTime::now());
        lock(&self.reserve).valid(&wanted, &Policy::default(), now).map(|held| held.ca.to_string())
    }
}
