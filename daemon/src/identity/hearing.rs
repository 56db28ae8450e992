//! What other nodes say: which charter, taints and revocations there are, and which JWT keys. Each part proves itself, or is left out.

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::renewal::RenewWithin;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    changing::blocking, enroll::TrustState, error::Error, handle::Handle, rotation, supplier::Supplier,
};

impl Handle {
    /// Takes what another node says the fabric trusts, as far as it proves itself.
    pub async fn hear(&self, heard: rotation::Heard) -> Result<(), Error> {
        let _servers = self.0.servers.lock().await;
        let rotation = self.0.rotation.clone().ok_or(Error::NoIdentity)?;
        let hear = move || rotation.hear(&heard, SystemTime::now());
        let news = blocking("taking over what another node said", hear).await?;
        if news { self.load_again() } else { Ok(()) }
    }

    /// Takes the JWT keys that a live site CA vouches for. The taints that came with them are to be heard first.
    pub(super) async fn hear_keys(&self, endorsements: Vec<Vec<u8>>) {
        let _servers = self.0.servers.lock().await;
        let (trust, issuer) = {
            let loaded = self.loaded();
            (loaded.base.clone(), loaded.issuer.clone())
        };
        let Some(trust) = trust else { return };
        let own = issuer.map(|issuer| issuer.key_ids()).unwrap_or_default();
        let keeper = self.0.keeper.clone();
        let hear = move || keeper.hear(&endorsements, &own, &trust, SystemTime::now());
        match blocking("taking over JWT keys", hear).await {
            Ok(true) => self.tell_keys(),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "what another node said of JWT keys is not taken"),
        }
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
    async fn hear_all(&self, state: &TrustState) {
        self.obey(state.renew.as_ref());
        let heard =
            rotation::Heard { charter: state.charter.clone(), crls: state.crls.clone(), ..taints(state) };
        if let Err(error) = self.hear(heard).await {
            tracing::warn!(%error, "what an issuer said could not be put in force");
        }
        self.hear_keys(state.jwt_endorsements.clone()).await;
    }

    /// What a node of another site says of keys: which there are, and which CAs are not to be believed any more. Both are signed by the CA
    /// that they are about. Charters and revocations are for our own site to bring.
    pub(super) async fn hear_peer(&self, state: &TrustState) {
        if let Err(error) = self.hear(taints(state)).await {
            tracing::warn!(%error, "what a node of another site said could not be put in force");
        }
        self.hear_keys(state.jwt_endorsements.clone()).await;
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
            handle.hear_all(&state).await;
        }
    }
}
