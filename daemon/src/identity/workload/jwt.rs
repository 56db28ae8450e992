//! The JWT profile (Workload API section 6): tokens on demand, their keys as a stream, and validation on behalf of the caller.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use isthmus_pki::{SpiffeId, jwt};
use isthmus_proto::workload::{
    JwtBundlesResponse, Jwtsvid, JwtsvidRequest, JwtsvidResponse, ValidateJwtsvidRequest,
    ValidateJwtsvidResponse,
};
use time::OffsetDateTime;
use tonic::Status;

use super::{
    claims,
    documents::Encoded,
    feed::{Entitled, Feed, Source, denied, shed},
};
use crate::identity::{issuing::Requester, registration::Identity, supplier::Supplier};

/// Most audiences of one token; clients refuse more.
const MAX_AUDIENCES: usize = 32;
/// Most bytes of an audience: as a SPIFFE ID may have.
const MAX_AUDIENCE: usize = 2048;

/// Answers `FetchJWTSVID`.
pub(super) async fn fetch(mut feed: Feed, request: JwtsvidRequest) -> Result<JwtsvidResponse, Status> {
    let JwtsvidRequest { audience, spiffe_id } = request;
    check_audiences(&audience)?;
    let Entitled { supply, identities, requester } = feed.entitled().await?;
    let identities = chosen(identities, &spiffe_id)?;
    let now = SystemTime::now();
    let mint = move || mint(&supply.issuer, &identities, &audience, &requester, now);
    Ok(JwtsvidResponse { svids: feed.shared.workshop.run(mint).await?? })
}

fn check_audiences(audience: &[String]) -> Result<(), Status> {
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        return Err(Status::invalid_argument("audience must be specified, and none of them empty"));
    }
    if audience.len() > MAX_AUDIENCES || audience.iter().any(|one| one.len() > MAX_AUDIENCE) {
        return Err(Status::invalid_argument(format!(
            "a token has at most {MAX_AUDIENCES} audiences of at most {MAX_AUDIENCE} bytes each"
        )));
    }
    Ok(())
}

/// All, or the one that is asked for.
fn chosen(identities: Vec<Identity>, spiffe_id: &str) -> Result<Vec<Identity>, Status> {
    if spiffe_id.is_empty() {
        return Ok(identities);
    }
    let id = SpiffeId::parse(spiffe_id)
        .map_err(|error| Status::invalid_argument(format!("invalid requested SPIFFE ID: {error}")))?;
    let chosen: Vec<_> = identities.into_iter().filter(|identity| identity.id == id).collect();
    if chosen.is_empty() { Err(denied()) } else { Ok(chosen) }
}

fn mint(
    issuer: &Supplier,
    identities: &[Identity],
    audience: &[String],
    requester: &Requester,
    now: SystemTime,
) -> Result<Vec<Jwtsvid>, Status> {
    let one = |identity: &Identity| {
        let svid = issuer.mint(identity, audience, requester, now).map_err(|error| {
            tracing::warn!(%error, "a JWT-SVID could not be issued");
            shed(error.status())
        })?;
        Ok(Jwtsvid {
            spiffe_id: svid.id.to_string(),
            svid: svid.token.to_string(),
            hint: identity.hint.clone(),
        })
    };
    identities.iter().map(one).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences_are_demanded_and_bounded() {
        let many = |count: usize, length: usize| vec!["a".repeat(length); count];
        for (audience, good) in [
            (many(1, 1), true),
            (many(MAX_AUDIENCES, MAX_AUDIENCE), true),
            (vec![], false),
            (vec![String::new()], false),
            (vec!["a".into(), String::new()], false),
            (many(MAX_AUDIENCES + 1, 1), false),
            (many(1, MAX_AUDIENCE + 1), false),
        ] {
            let code = check_audiences(&audience).map_err(|status| status.code());
            assert_eq!(
                code,
                if good { Ok(()) } else { Err(tonic::Code::InvalidArgument) },
                "{}",
                audience.len()
            );
        }
    }
}
