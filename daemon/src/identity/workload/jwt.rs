//! The JWT profile (Workload API section 6): tokens on demand, their keys as a stream, and validation on behalf of the caller.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use isthmus_pki::jwt;
use isthmus_proto::workload::{JwtBundlesResponse, ValidateJwtsvidRequest, ValidateJwtsvidResponse};
use time::OffsetDateTime;
use tonic::Status;

use super::{
    claims,
    documents::Encoded,
    feed::{Entitled, Feed, Source},
};

/// Answers `ValidateJWTSVID`.
pub(super) async fn validate(
    mut feed: Feed,
    request: ValidateJwtsvidRequest,
) -> Result<ValidateJwtsvidResponse, Status> {
    if request.audience.is_empty() {
        return Err(Status::invalid_argument("audience must be specified"));
    }
    if request.svid.is_empty() {
        return Err(Status::invalid_argument("svid must be specified"));
    }
    let Entitled { supply, identities, .. } = feed.entitled().await?;
    let now = OffsetDateTime::now_utc();
    let validated = jwt::validate(&request.svid, &request.audience, supply.trust.store(), now)
        .map_err(|error| Status::invalid_argument(format!("the token is not valid: {error}")))?;
    let domain = validated.id.trust_domain();
    if domain != supply.trust.domain() && !identities.iter().any(|i| i.federates_with.contains(domain)) {
        return Err(Status::invalid_argument(format!(
            "the token is not valid: this caller has no bundle of {domain}"
        )));
    }
    Ok(ValidateJwtsvidResponse {
        spiffe_id: validated.id.to_string(),
        claims: Some(claims::to_struct(validated.claims)),
    })
}

/// Messages of `FetchJWTBundles`.
#[derive(Default)]
pub(super) struct JwtBundles {
    sent: Option<Vec<(Arc<str>, Bytes)>>,
}

impl Source for JwtBundles {
    type Message = JwtBundlesResponse;

    async fn next(
        &mut self,
        feed: &Feed,
        entitled: Entitled,
        _: SystemTime,
    ) -> Result<Option<JwtBundlesResponse>, Status> {
        let documents = feed.shared.library.of(&entitled.supply.trust);
        let all = [documents.own().clone()].into_iter().chain(documents.federated(&entitled.identities));
        let all: Vec<_> = all.map(|Encoded { id, jwks, .. }| (id, jwks)).collect();
        if self.sent.as_ref() == Some(&all) {
            return Ok(None);
        }
        let bundles = all.iter().map(|(id, jwks)| (id.to_string(), jwks.to_vec())).collect();
        self.sent = Some(all);
        Ok(Some(JwtBundlesResponse { bundles }))
    }

    fn due(&self) -> Option<OffsetDateTime> {
        None
    }
}
