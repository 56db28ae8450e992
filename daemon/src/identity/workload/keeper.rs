//! The SVIDs of one stream: issued when they are needed, renewed at half life, gone when they expire.
//!
//! A key stays here, in memory that is wiped, for as long as its SVID is in use on this stream: each message is the complete state with
//! the key in it, so a change of bundles alone could otherwise not be told without a new certificate (decision 013).

use std::{mem, sync::Arc, time::SystemTime};

use bytes::Bytes;
use isthmus_pki::facts::utc;
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use tonic::Status;
use zeroize::Zeroizing;

use super::{
    Supply,
    feed::{shed, stopping},
    workshop::Workshop,
};
use crate::identity::{
    certificates::{CertificateInfo, Holder},
    issuing::{Error, Requester, Svid},
    registration::Identity,
    rotation::ReissueOrder,
    supplier::Supplier,
};

/// How long after an issuance failed it is tried again.
const RETRY: Duration = Duration::seconds(5);

/// An SVID in use.
pub(super) struct Held {
    identity: Identity,
    /// The CA that issued it.
    issuer: String,
    /// Hash of its key.
    ca: Arc<str>,
    /// Concatenated DER, leaf first.
    chain: Bytes,
    key: Zeroizing<Vec<u8>>,
    not_after: OffsetDateTime,
    renew_at: OffsetDateTime,
    info: Arc<CertificateInfo>,
}

impl Held {
    fn new(identity: Identity, issuer: &str, svid: Svid) -> Self {
        Self {
            identity,
            issuer: issuer.to_owned(),
            ca: svid.ca,
            chain: concatenated(&svid.chain),
            key: svid.key.to_pkcs8(),
            not_after: svid.not_after,
            renew_at: svid.renew_at,
            info: Arc::new(svid.info),
        }
    }

    /// Whose.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Concatenated DER, leaf first.
    pub(super) fn chain(&self) -> &Bytes {
        &self.chain
    }

    /// PKCS#8.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// From this CA, and nowhere near its end. A clock that was set back leaves it not valid yet, and so not fresh.
    fn is_fresh(&self, issuer: &str, now: OffsetDateTime) -> bool {
        self.issuer == issuer && self.info.not_before <= now.unix_timestamp() && now < self.renew_at
    }
}

/// In as much memory as it takes: there are as many as streams.
fn concatenated(chain: &[CertificateDer<'_>]) -> Bytes {
    chain.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>().concat().into()
}

/// How things stand after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// As before.
    Same,
    /// What is held is something else than before.
    Changed,
    /// The default SVID is of a CA that is tainted now, and there is no other yet. It is told to nobody; who has it hears of the next.
    Withheld,
}

/// Keeps SVIDs for the identities of one stream.
pub(super) struct Keeper {
    holder: Holder,
    held: Vec<Held>,
    retry_at: Option<OffsetDateTime>,
    /// The end of the longest SVID that went because its CA is tainted, until there is another.
    forsaken: Option<OffsetDateTime>,
    /// The last order to reissue that was followed.
    generation: u64,
}

/// What came of a round of issuing.
struct Made {
    svids: Vec<(Identity, Svid)>,
    error: Option<Error>,
}

impl Keeper {
    pub(super) fn new(holder: Holder) -> Self {
        Self { holder, held: Vec::new(), retry_at: None, forsaken: None, generation: 0 }
    }

    /// One valid SVID for each identity, in the order of the last [`refresh`](Self::refresh).
    pub(super) fn held(&self) -> &[Held] {
        &self.held
    }

    /// When something has to be done though nothing was changed.
    pub(super) fn due(&self) -> Option<OffsetDateTime> {
        let end = self.held.iter().map(|held| held.not_after).min();
        let renewal = self.held.iter().map(|held| held.renew_at).min();
        self.retry_at.or(renewal).into_iter().chain(end).min()
    }

    /// Brings what is held in line with these identities. What can't be issued now is tried again, and the old one serves as long as it is
    /// valid.
    ///
    /// # Errors
    /// When there is nothing valid for the default identity, which is the first: why it can't be issued.
    pub(super) async fn refresh(
        &mut self,
        supply: &Supply,
        identities: Vec<Identity>,
        requester: &Requester,
        wall: SystemTime,
        workshop: &Workshop,
    ) -> Result<Round, Status> {
        let now = OffsetDateTime::from(wall);
        let ca = supply.issuer.ca().to_owned();
        self.follow(supply.reissue, &ca, now);
        self.forsake(supply);
        let lacking = |identity: &&Identity| {
            !self.held.iter().any(|held| held.identity == **identity && held.is_fresh(&ca, now))
        };
        let wanted: Vec<Identity> = identities.iter().filter(lacking).cloned().collect();
        let made = if wanted.is_empty() {
            Made { svids: Vec::new(), error: None }
        } else {
            let (issuer, requester) = (supply.issuer.clone(), requester.clone());
            workshop.run(move || issue(&issuer, wanted, &requester, wall)).await?
        };
        self.take(identities, made, &ca, now)
    }

    /// What came from elsewhere goes as soon as its CA is tainted, whether there is another one to be had or not: nobody knows how long
    /// that takes. An issuer's own workloads get theirs within seconds, each in its turn.
    fn forsake(&mut self, supply: &Supply) {
        let Supplier::Remote(_) = supply.issuer else { return };
        let policy = supply.trust.store().policy();
        let gone = self.held.extract_if(.., |held| policy.is_tainted(&held.ca)).map(|held| held.not_after);
        self.forsaken = gone.max().max(self.forsaken);
    }

    /// A mass reissue reaches each stream at a moment of its own within the window.
    fn follow(&mut self, order: ReissueOrder, ca: &str, now: OffsetDateTime) {
        if order.generation <= self.generation {
            return;
        }
        self.generation = order.generation;
        let at = now + order.moment();
        for held in &mut self.held {
            ca.clone_into(&mut held.issuer);
            held.renew_at = held.renew_at.min(at);
        }
    }

    fn take(
        &mut self,
        identities: Vec<Identity>,
        mut made: Made,
        ca: &str,
        now: OffsetDateTime,
    ) -> Result<Round, Status> {
        let before: Vec<Bytes> = self.held.iter().map(|held| held.chain.clone()).collect();
        let mut old = mem::take(&mut self.held);
        let default = identities.first().cloned();
        // Exactly: there are as many of these as streams.
        self.held.reserve_exact(identities.len());
        for identity in identities {
            if let Some(at) = made.svids.iter().position(|(whose, _)| *whose == identity) {
                let (identity, svid) = made.svids.swap_remove(at);
                self.held.push(Held::new(identity, ca, svid));
            } else if let Some(at) =
                old.iter().position(|held| held.identity == identity && now < held.not_after)
            {
                self.held.push(old.swap_remove(at));
            }
        }
        self.retry_at = made.error.is_some().then(|| now + RETRY);
        if let Some(error) = &made.error {
            tracing::warn!(%error, "an SVID could not be issued; what is valid still serves");
        }
        if self.held.first().map(Held::identity) != default.as_ref() {
            return match self.forsaken {
                Some(end) if now < end => {
                    self.show();
                    Ok(Round::Withheld)
                }
                _ => Err(made.error.map_or_else(stopping, |error| shed(error.status()))),
            };
        }
        if self.held.iter().map(|held| &held.chain).eq(&before) && self.forsaken.take().is_none() {
            return Ok(Round::Same);
        }
        self.show();
        Ok(Round::Changed)
    }

    /// In the list of certificates.
    fn show(&self) {
        self.holder.hold(self.held.iter().map(|held| held.info.clone()).collect());
    }
}

/// Stops at the first failure: the next would fail as well, and each takes its time.
fn issue(issuer: &Supplier, identities: Vec<Identity>, requester: &Requester, now: SystemTime) -> Made {
    let mut svids = Vec::with_capacity(identities.len());
    for identity in identities {
        match issuer.issue(&identity, requester, now) {
            Ok(svid) => {
                tracing::info!(id = %svid.id, serial = svid.info.serial, not_after = utc(svid.info.not_after), "issued an X.509-SVID");
                svids.push((identity, svid));
            }
            Err(error) => return Made { svids, error: Some(error) },
        }
    }
    Made { svids, error: None }
}
