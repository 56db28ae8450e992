//! Orders: each is in the audit log before it is carried out, and what came of it after.
//!
//! ```text
//! isthmusctl -> api (who asks, as the kernel says) -> note: "ordered" -> the work -> end: "done", "refused: why" or "failed: why"
//!                                                      |
//!                                                      +-- can't be written: the order is refused, nothing was done
//! ```
//!
//! What is only planned (`--dry-run`) or shown is no order.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    Facts, KeyHash, SpiffeId,
    audit::{Entry, Kind},
    bundle, id,
};
use zeroize::Zeroizing;

use super::{
    audit::Log,
    config::AuditConfig,
    enroll::{Created, Token, TokenError},
    error::Error,
    handle::Handle,
    issuing::Requester,
    rotation::{self, Outcome, Verb},
};

/// An order as the log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// As `isthmusctl` calls it.
    pub(super) what: String,
    /// ID of the node that it is about; empty: it is about none.
    pub(super) node: String,
    /// The CA's key, or the token's ID; empty: neither.
    pub(super) key: String,
    /// Who gives it.
    pub(super) by: String,
    /// Why safeguards are passed over.
    pub(super) override_reason: Option<String>,
}

/// An order that the log has. It may be carried out now.
#[must_use = "the log is to have what came of it too"]
pub struct Noted {
    log: Arc<Log>,
    order: Order,
}

impl Noted {
    /// Blocks on the disk.
    pub(super) fn new(log: Arc<Log>, order: Order) -> Result<Self, Error> {
        let remark = order.override_reason.as_ref().map(|reason| format!(", override: {reason}"));
        let this = Self { log, order };
        this.write(&format!("ordered{}", remark.unwrap_or_default())).map_err(Error::Unlogged)?;
        Ok(this)
    }

    /// What came of it. That can't be taken back if it can't be written: the trouble comes back in words, for whoever gave the order.
    pub fn end(self, outcome: &str) -> Option<String> {
        let error = self.write(outcome).err()?;
        let what = &self.order.what;
        tracing::warn!(what, outcome, %error, "the audit log has an order, and not what came of it");
        Some(format!("{outcome}; the audit log has the order alone: {error}"))
    }

    fn write(&self, word: &str) -> Result<(), super::audit::Error> {
        let Order { what, node, key, by, .. } = &self.order;
        self.log.record(&Entry {
            time: SystemTime::now().into(),
            kind: Kind::Operator,
            id: node,
            serial: key,
            not_after: None,
            requester: by,
            reason: &format!("{what}: {word}"),
        })
    }
}

impl Handle {
    /// Writes an order down. Blocks on the disk.
    pub(super) fn note(&self, order: Order) -> Result<Noted, Error> {
        Noted::new(self.order_log()?, order)
    }

    /// Writes an order down that is no matter of identity, if this node keeps a log. Blocks on the disk.
    pub fn note_if_logged(&self, what: String, by: String) -> Result<Option<Noted>, Error> {
        let log = self.loaded().audit.clone();
        log.map(|log| Noted::new(log, Order { what, by, ..Order::default() })).transpose()
    }

    /// The issuer's log; a node that issues nothing has one from its first order on.
    fn order_log(&self) -> Result<Arc<Log>, Error> {
        let mut loaded = self.loaded();
        if let Some(log) = &loaded.audit {
            return Ok(log.clone());
        }
        let config = loaded.config.clone().ok_or(Error::NoIdentity)?;
        let log = Log::open(&AuditConfig::new(&config.state_dir), SystemTime::now());
        let log = log.map_err(Error::Unlogged)?;
        loaded.audit = Some(log.clone());
        Ok(log)
    }

    /// Makes a join token for a node of this issuer's site. Blocks on the disk.
    pub fn create_token(&self, by: &Requester, node: &str, ttl: Duration) -> Result<Created, Error> {
        let (tokens, site) = self.tokens().ok_or(Error::NoIssuer)?;
        let token = self.own_id().and_then(|own| Token::new(Zeroizing::new(rand::random()), own));
        let token = token.ok_or(Error::NoIssuer)?;
        let order = Order {
            what: "token create".into(),
            node: self.node_id(&site, node),
            key: token.hash().id().to_owned(),
            by: by.to_string(),
            override_reason: None,
        };
        let noted = self.note(order)?;
        settle(noted, tokens.create(token, (&site, node), ttl, now()), |_| "done")
    }

    /// Takes an unused join token back; false: there is none of this ID. Blocks on the disk.
    pub fn revoke_token(&self, by: &Requester, id: &str) -> Result<bool, Error> {
        let (tokens, site) = self.tokens().ok_or(Error::NoIssuer)?;
        let record = tokens.list(now()).into_iter().find(|record| record.id() == id);
        let order = Order {
            what: "token revoke".into(),
            node: record.map(|record| self.node_id(&site, &record.node)).unwrap_or_default(),
            key: id.to_owned(),
            by: by.to_string(),
            override_reason: None,
        };
        let noted = self.note(order)?;
        let word =
            |revoked: &bool| if *revoked { "done" } else { "refused: there is no unused token of this ID" };
        settle(noted, tokens.revoke(id, now()), word)
    }

    /// Writes a step of a rotation down.
    pub(super) fn note_rotation(&self, request: &rotation::Request) -> Result<Noted, Error> {
        let (node, key) = self.target(&request.verb);
        self.note(Order {
            what: format!("rotate {}", request.verb.name()),
            node,
            key,
            by: request.by.clone(),
            override_reason: request.override_reason.clone(),
        })
    }

    /// The node and the key that a step is about, as far as it names one.
    fn target(&self, verb: &Verb) -> (String, String) {
        let site = self.0.node.as_ref().map(|(site, _)| site.clone()).unwrap_or_default();
        match verb {
            Verb::Forget(node) => (self.node_id(&site, node), String::new()),
            Verb::Taint(digits, _) | Verb::Revoke(digits, _) => {
                let full = self.rotation().and_then(|rotation| rotation.find_key(digits));
                (String::new(), full.map_or_else(|| digits.clone(), String::from))
            }
            Verb::Install(certificate) => (String::new(), key_of(certificate).unwrap_or_default()),
            _ => (String::new(), String::new()),
        }
    }

    /// As `[node]` has it.
    fn own_id(&self) -> Option<SpiffeId> {
        let (site, name) = self.0.node.as_ref()?;
        let domain = self.loaded().base.as_ref()?.domain().clone();
        id::node_id(&domain, site, name).ok()
    }

    /// Empty for what can be no node's.
    pub(super) fn node_id(&self, site: &str, node: &str) -> String {
        let domain = self.loaded().base.as_ref().map(|trust| trust.domain().clone());
        let id = domain.and_then(|domain| id::node_id(&domain, site, node).ok());
        id.map(|id| id.to_string()).unwrap_or_default()
    }
}

/// The word for what came of a rotation's step.
pub(super) fn word_for(outcome: &Result<Outcome, Error>) -> String {
    match outcome {
        Ok(Outcome { refusal: Some(refusal), .. }) => format!("refused: {refusal}"),
        Ok(_) => "done".into(),
        Err(error) => format!("failed: {error}"),
    }
}

fn settle<T>(noted: Noted, result: Result<T, TokenError>, word: fn(&T) -> &'static str) -> Result<T, Error> {
    match &result {
        Ok(done) => noted.end(word(done)),
        Err(error) => noted.end(&format!("failed: {error}")),
    };
    result.map_err(Error::Tokens)
}

fn key_of(certificate: &[u8]) -> Option<String> {
    let chain = bundle::certificates(certificate).ok()?;
    let facts = Facts::parse(chain.first()?).ok()?;
    Some(String::from(KeyHash::of(&facts)))
}

fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
