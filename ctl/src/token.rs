//! `isthmusctl token`: join tokens of an issuer.

use std::time::Duration;

use isthmus_proto::tokens as wire;
use isthmus_proto::tokens::tokens_client::TokensClient;
use serde::Serialize;
use tonic::transport::Channel;

use crate::cli::TokenVerb;
use crate::client::Server;
use crate::failure::Failure;
use crate::moment::{Moment, age, distance};
use crate::output::{Document, Output};
use crate::page::{Cell, Page, Tone};
use crate::watch;

/// Asks the issuer and prints what it says.
///
/// # Errors
/// A daemon that can't be reached, is no issuer, or refuses.
pub(crate) fn run(server: &Server, output: &Output, verb: &TokenVerb) -> Result<(), Failure> {
    watch::run(async {
        let client = TokensClient::new(server.connect().await?);
        match verb {
            TokenVerb::Create { node, ttl } => create(server, output, client, node, *ttl).await,
            TokenVerb::List => list(server, output, client).await,
            TokenVerb::Revoke { id } => revoke(server, client, id).await,
        }
    })
}

async fn create(
    server: &Server,
    output: &Output,
    mut client: TokensClient<Channel>,
    node: &str,
    ttl: Duration,
) -> Result<(), Failure> {
    let ttl_seconds = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
    let request = wire::CreateTokenRequest { node: node.to_owned(), ttl_seconds };
    let answer = client.create(request).await.map_err(|status| server.failed(&status))?.into_inner();
    let info = answer.info.map(Token::from);
    let info = info.ok_or_else(|| Failure::failed("isthmusd made a token without a word about it"))?;
    output.print(&Created { schema: "isthmus.v1/token", token: answer.token, info })
}

async fn list(server: &Server, output: &Output, mut client: TokensClient<Channel>) -> Result<(), Failure> {
    let answer = client.list(wire::ListTokensRequest {}).await.map_err(|status| server.failed(&status))?;
    let tokens = answer.into_inner().tokens.into_iter().map(Token::from).collect();
    output.print(&Tokens { schema: "isthmus.v1/tokens", tokens })
}

async fn revoke(server: &Server, mut client: TokensClient<Channel>, id: &str) -> Result<(), Failure> {
    let request = wire::RevokeTokenRequest { id: id.to_owned() };
    client.revoke(request).await.map(drop).map_err(|status| server.failed(&status))
}

/// Schema `isthmus.v1/token`: the one time that the secret is shown.
#[derive(Serialize)]
struct Created {
    schema: &'static str,
    token: String,
    #[serde(flatten)]
    info: Token,
}

/// Schema `isthmus.v1/tokens`.
#[derive(Debug, Serialize)]
struct Tokens {
    schema: &'static str,
    tokens: Vec<Token>,
}

#[derive(Debug, Serialize)]
struct Token {
    id: String,
    site: String,
    node: String,
    created_at: Option<Moment>,
    expires_at: Option<Moment>,
    used_at: Option<Moment>,
}

impl From<wire::Token> for Token {
    fn from(token: wire::Token) -> Self {
        Self {
            id: token.id,
            site: token.site,
            node: token.node,
            created_at: Moment::from_unix(token.created_at),
            expires_at: Moment::from_unix(token.expires_at),
            used_at: token.used_at.and_then(Moment::from_unix),
        }
    }
}

/// The token alone, so that it can be redirected into the node's file.
impl Document for Created {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        page.line(&self.token);
    }
}

impl Document for Tokens {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let header = ["ID", "NODE", "SITE", "CREATED", "STATE"];
        page.table(header, self.tokens.iter().map(|token| token.row(now)), "no join tokens");
    }
}

impl Token {
    fn row(&self, now: Moment) -> [Cell; 5] {
        [
            self.id.as_str().into(),
            self.node.as_str().into(),
            self.site.as_str().into(),
            format!("{} ago", age(self.created_at, now)).into(),
            self.state(now),
        ]
    }

    fn state(&self, now: Moment) -> Cell {
        match (self.used_at, self.expires_at) {
            (Some(used), _) => Cell::new(format!("used {}", used.distance(now)), Tone::Plain),
            (None, Some(end)) if end < now => {
                Cell::new(format!("expired {}", end.distance(now)), Tone::Warning)
            }
            (None, end) => Cell::new(format!("expires {}", distance(end, now)), Tone::Good),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(used_at: Option<i64>) -> Token {
        let (id, site, node) = ("0123456789ab".into(), "s1".into(), "gw2".into());
        Token::from(wire::Token { id, site, node, created_at: 100, expires_at: 700, used_at })
    }

    #[test]
    fn a_created_token_is_one_line_and_whole_in_json() {
        let created =
            Created { schema: "isthmus.v1/token", token: "isthmus-join_x".into(), info: token(None) };
        let mut page = Page::new(None);
        created.lay_out(Moment::now(), &mut page);
        assert_eq!(page.into_text(), "isthmus-join_x\n");
        let json = serde_json::to_value(&created).expect("a document");
        assert_eq!((&json["token"], &json["node"]), (&"isthmus-join_x".into(), &"gw2".into()));
        assert_eq!(json["expires_at"], "1970-01-01T00:11:40Z");
    }

    #[test]
    fn the_state_is_in_words() {
        let now = Moment::from_unix(400).expect("in range");
        let text = |tokens: Vec<Token>| {
            let mut page = Page::new(None);
            Tokens { schema: "isthmus.v1/tokens", tokens }.lay_out(now, &mut page);
            page.into_text()
        };
        assert!(text(vec![token(None)]).contains("expires in 5m"));
        assert!(text(vec![token(Some(300))]).contains("used 1m40s ago"));
        assert!(text(vec![]).contains("no join tokens"));
    }
}
