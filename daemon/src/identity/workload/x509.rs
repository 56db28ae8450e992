//! Messages of the X.509 profile (Workload API section 5).

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use bytes::Bytes;
use isthmus_proto::workload::{X509BundlesResponse, X509svid, X509svidResponse};
use time::OffsetDateTime;
use tonic::Status;

use super::{
    documents::{Documents, Encoded},
    feed::{Entitled, Feed, Source},
    keeper::{Held, Keeper, Round},
};
use crate::identity::registration::Identity;

/// Everything beside the SVIDs. Shared bytes: as many streams as there are, one copy.
#[derive(Clone, PartialEq, Eq)]
struct Believed {
    own: Bytes,
    crls: Arc<[Bytes]>,
    federated: Vec<(Arc<str>, Bytes)>,
}

impl Believed {
    fn of(documents: &Documents, identities: &[Identity]) -> Self {
        let federated = documents.federated(identities).into_iter();
        Self {
            own: documents.own().der.clone(),
            crls: documents.crls().clone(),
            federated: federated.map(|Encoded { id, der, .. }| (id, der)).collect(),
        }
    }

    fn crls(&self) -> Vec<Vec<u8>> {
        self.crls.iter().map(|crl| crl.to_vec()).collect()
    }

    /// A domain without any root is in it: nobody of that domain is to be believed any more.
    fn federated(&self) -> HashMap<String, Vec<u8>> {
        self.federated.iter().map(|(id, der)| (id.to_string(), der.to_vec())).collect()
    }
}

/// Messages of `FetchX509SVID`.
pub(super) struct Svids {
    keeper: Keeper,
    sent: Option<Believed>,
}

impl Svids {
    pub(super) fn new(keeper: Keeper) -> Self {
        Self { keeper, sent: None }
    }
}

impl Source for Svids {
    type Message = X509svidResponse;

    async fn next(
        &mut self,
        feed: &Feed,
        entitled: Entitled,
        now: SystemTime,
    ) -> Result<Option<X509svidResponse>, Status> {
        let Entitled { supply, identities, requester } = entitled;
        let believed = Believed::of(&feed.shared.library.of(&supply.trust), &identities);
        let workshop = &feed.shared.workshop;
        match self.keeper.refresh(&supply, identities, &requester, now, workshop).await? {
            Round::Withheld => return Ok(None),
            Round::Same if self.sent.as_ref() == Some(&believed) => return Ok(None),
            Round::Same | Round::Changed => {}
        }
        let message = response(self.keeper.held(), &believed);
        self.sent = Some(believed);
        Ok(Some(message))
    }

    fn due(&self) -> Option<OffsetDateTime> {
        self.keeper.due()
    }
}

fn response(held: &[Held], believed: &Believed) -> X509svidResponse {
    let svid = |held: &Held| X509svid {
        spiffe_id: held.identity().id.to_string(),
        x509_svid: held.chain().to_vec(),
        x509_svid_key: held.key().to_vec(),
        bundle: believed.own.to_vec(),
        hint: held.identity().hint.clone(),
    };
    X509svidResponse {
        svids: held.iter().map(svid).collect(),
        crl: believed.crls(),
        federated_bundles: believed.federated(),
    }
}

/// Messages of `FetchX509Bundles`.
#[derive(Default)]
pub(super) struct Bundles {
    sent: Option<Believed>,
}

impl Source for Bundles {
    type Message = X509BundlesResponse;

    async fn next(
        &mut self,
        feed: &Feed,
        entitled: Entitled,
        _: SystemTime,
    ) -> Result<Option<X509BundlesResponse>, Status> {
        let documents = feed.shared.library.of(&entitled.supply.trust);
        let believed = Believed::of(&documents, &entitled.identities);
        if self.sent.as_ref() == Some(&believed) {
            return Ok(None);
        }
        let own = (documents.own().id.to_string(), believed.own.to_vec());
        let bundles = believed.federated().into_iter().chain([own]).collect();
        let message = X509BundlesResponse { crl: believed.crls(), bundles };
        self.sent = Some(believed);
        Ok(Some(message))
    }

    fn due(&self) -> Option<OffsetDateTime> {
        None
    }
}
