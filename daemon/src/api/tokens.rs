//! Join tokens of this node, if it is an issuer.

use std::time::Duration;

use isthmus_proto::tokens::{
    CreateTokenRequest, CreateTokenResponse, ListTokensRequest, ListTokensResponse, RevokeTokenRequest,
    RevokeTokenResponse, Token, tokens_server::Tokens,
};
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use super::{Parts, operator, orders::blocking};
use crate::identity::{
    self,
    enroll::{Record, TokenError},
};

pub(super) struct Service {
    pub(super) parts: Parts,
}

impl Service {
    fn identity(&self) -> Result<identity::Handle, Status> {
        self.parts.identity.clone().ok_or_else(|| refused(identity::Error::NoIssuer))
    }
}

#[tonic::async_trait]
impl Tokens for Service {
    async fn create(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let (handle, by) = (self.identity()?, operator::of(&request)?);
        let CreateTokenRequest { node, ttl_seconds } = request.into_inner();
        let ttl = Duration::from_secs(ttl_seconds.into());
        let create = move || handle.create_token(&by, &node, ttl);
        let created = blocking(create).await?.map_err(refused)?;
        tracing::info!(id = created.record.id(), node = created.record.node, "a join token was made");
        let token = created.token.reveal().to_string();
        Ok(Response::new(CreateTokenResponse { token, info: Some(message(created.record)) }))
    }

    async fn list(&self, _: Request<ListTokensRequest>) -> Result<Response<ListTokensResponse>, Status> {
        let tokens = self.identity()?.tokens();
        let (tokens, _) = tokens.ok_or_else(|| refused(identity::Error::NoIssuer))?;
        let now = OffsetDateTime::now_utc().unix_timestamp();
        Ok(Response::new(ListTokensResponse { tokens: tokens.list(now).into_iter().map(message).collect() }))
    }

    async fn revoke(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        let (handle, by) = (self.identity()?, operator::of(&request)?);
        let id = request.into_inner().id;
        let revoke = {
            let id = id.clone();
            move || handle.revoke_token(&by, &id)
        };
        if blocking(revoke).await?.map_err(refused)? {
            tracing::info!(id, "a join token was revoked");
            return Ok(Response::new(RevokeTokenResponse {}));
        }
        Err(Status::not_found("there is no unused join token of this id; `isthmusctl token list` shows all"))
    }
}

fn refused(error: identity::Error) -> Status {
    match &error {
        identity::Error::Tokens(TokenError::Name(_) | TokenError::Ttl) => {
            Status::invalid_argument(error.to_string())
        }
        identity::Error::Tokens(TokenError::Full)
        | identity::Error::NoIssuer
        | identity::Error::Unlogged(_) => Status::failed_precondition(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}

fn message(record: Record) -> Token {
    Token {
        id: record.id().to_owned(),
        site: record.site,
        node: record.node,
        created_at: record.created_at,
        expires_at: record.expires_at,
        used_at: record.used_at,
    }
}
