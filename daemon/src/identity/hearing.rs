//! What other nodes say: which charter, taints and revocations there are, and which JWT keys. Each part proves itself, or is left out
//! until it does (`again`).

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::renewal::RenewWithin;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    again::Source,
    changing::blocking,
    enroll::{Taken, TrustState},
    error::Error,
    handle::Handle,
    rotation,
    supplier::Supplier,
};

impl Handle {
    /// Takes what another node says the fabric trusts, as far as it proves itself. True if it took all of it.
    pub(super) async fn hear(&self, heard: rotation::Heard) -> Result<bool, Error> {
        let _servers = self.0.servers.lock().await;
        let rotation = self.0.rotation.clone().ok_or(Error::NoIdentity)?;
        let hear = move || rotation.hear(&heard, SystemTime::now());
        let taken = blocking("taking over what another node said", hear).await?;
        self.load_if(taken.news)?;
        Ok(!taken.refused)
    }

    /// Takes the JWT keys that a live site CA vouches for. The taints that came with them are to be heard first. True if it took all.
    async fn hear_keys(&self, endorsements: Vec<Vec<u8>>, again: bool) -> bool {
        let _servers = self.0.servers.lock().await;
        let (trust, issuer) = {
            let loaded = self.loaded();
            (loaded.base.clone(), loaded.issuer.clone())
        };
        let Some(trust) = trust else { return false };
        let own = issuer.map(|issuer| issuer.key_ids()).unwrap_or_default();
        let keeper = self.0.keeper.clone();
        let hear = move || keeper.hear(&endorsements, &own, &trust, SystemTime::now(), again);
        let taken = blocking("taking over JWT keys", hear).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what another node said of JWT keys is not taken");
            Taken { news: false, refused: true }
        });
        if taken.news {
            self.tell_keys();
        }
        !taken.refused
    }

    /// Takes an issuer's word that site CAs were left: what is held for workloads is renewed. One that can't be followed yet is followed
    /// when it is said again here.
    pub(super) fn obey(&self, order: Option<&RenewWithin>) {
        let mut loaded = self.loaded();
        let Some(remote) = loaded.remote.clone().filter(|remote| remote.follow(order, SystemTime::now()))
        else {
            return;
        };
        if let Some(supply) = &mut loaded.supply
            && matches!(supply.issuer, Supplier::Remote(_))
        {
            supply.reissue = remote.reissue().capped(self.0.ledger.size());
            self.hand_out(&loaded);
        }
    }

    /// Everything that a node of the own site says.
    async fn hear_issuer(&self, state: &Arc<TrustState>) {
        self.obey(state.renew.as_ref());
        self.hear_from(Source::Issuer, state).await;
    }

    /// What a node of another site says of keys: which there are, and which CAs are not to be believed any more. Both are signed by the CA
    /// that they are about.
    pub(super) async fn hear_peer(&self, address: &str, state: &Arc<TrustState>) {
        let (handle, source, state) = (self.clone(), Source::Peer(address.to_owned()), state.clone());
        let hear = async move { handle.hear_from(source, &state).await };
        // A peer is let go in the middle of a word when the configuration names it no more, or our certificate is another one.
        if let Err(error) = self.to_its_end("taking over what a node of another site said", hear).await {
            tracing::warn!(%error, "a node of another site was not heard");
        }
    }

    async fn hear_from(&self, source: Source, state: &Arc<TrustState>) {
        let whole = self.take(&source, state, false).await;
        self.0.again.heard(source, state, whole);
    }

    /// Takes what holds of it; true if that was all.
    pub(super) async fn take(&self, source: &Source, state: &TrustState, again: bool) -> bool {
        let heard = match source {
            Source::Issuer => {
                rotation::Heard { charter: state.charter.clone(), crls: state.crls.clone(), ..taints(state) }
            }
            // Charters and revocations are for our own site to bring.
            Source::Peer(_) => taints(state),
        };
        let taken = self.hear(rotation::Heard { again, ..heard }).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what another node said could not be put in force; it is tried again within a minute");
            false
        });
        self.hear_keys(state.jwt_endorsements.clone(), again).await && taken
    }

    /// Forgets the keys of others whose time is over.
    pub(super) async fn review_keys(&self, now: SystemTime) {
        let _servers = self.0.servers.lock().await;
        if self.0.keeper.is_due(now) {
            self.tell_keys();
        }
    }

    /// Hands the keys of others out to all who go by them here, and to nodes that ask.
    fn tell_keys(&self) {
        self.hand_out(&self.loaded());
        self.publish();
    }
}

fn taints(state: &TrustState) -> rotation::Heard {
    let taints = state.taints.iter().map(|taint| String::from_utf8_lossy(taint).into_owned()).collect();
    rotation::Heard { taints, ..rotation::Heard::default() }
}

/// Takes what issuers say the fabric trusts, whenever that changes.
pub(super) async fn listen(
    handle: Handle,
    mut heard: watch::Receiver<Option<Arc<TrustState>>>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            changed = heard.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
        let state = heard.borrow_and_update().clone();
        if let Some(state) = state {
            handle.hear_issuer(&state).await;
        }
    }
}
