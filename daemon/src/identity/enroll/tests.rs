//! An issuer and the nodes of its site in one process, over loopback TLS.

mod calls;
mod following;
mod hearing;
mod joining;
mod keys;
mod orders;
mod supplying;

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use isthmus_pki::{Curve, Key, SpiffeId, csr};
use isthmus_proto::issuance::{EnrollRequest, issuance_client::IssuanceClient};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use zeroize::Zeroizing;

use super::{
    client::{self, As},
    *,
};
use crate::identity::{
    Condition, Config, Handle, NodeRules, Requester, rotation, start,
    tests::{Files, NODE, domain},
};

const TTL: Duration = Duration::from_secs(600);
const OPERATOR: Requester = Requester::Operator { uid: 0, pid: Some(1) };
const LIMIT: Duration = Duration::from_secs(20);

/// An issuer: node gw1, with its files, serving on a port of its own.
struct Issuer {
    files: Files,
    handle: Handle,
    address: SocketAddr,
    shutdown: CancellationToken,
}

/// Leaves that live for a minute, so that those of a CA that was left are renewed within a second.
fn config(files: &Files) -> Config {
    let config = files.config();
    Config {
        rotation: rotation::Config { longest_leaf: Duration::from_secs(60), ..config.rotation },
        ..config
    }
}

impl Issuer {
    async fn start(rules: NodeRules) -> Self {
        Self::of(Files::new(), NODE.0, Vec::new(), rules).await
    }

    /// The issuer of another site of the same fabric, which asks these peers.
    async fn beside(&self, site: &str, peers: Vec<String>) -> Self {
        Self::of(self.files.other_site(site), site, peers, NodeRules::default()).await
    }

    async fn of(files: Files, site: &str, peers: Vec<String>, rules: NodeRules) -> Self {
        let shutdown = CancellationToken::new();
        let issuer = crate::identity::IssuerConfig {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            nodes: rules,
            ..files.issuer()
        };
        let config = Config { peers, ..config(&files) };
        let node = Some((site.to_owned(), NODE.1.to_owned()));
        let handle = start(Some(config), Some(issuer), None, node, shutdown.clone()).await.unwrap();
        let address = handle.listens().await.unwrap();
        // It has a key to sign tokens with, and tells of it.
        let mut told = handle.fleet().state();
        drop(told.wait_for(|told| !told.ours.state.jwt_endorsements.is_empty()).await.unwrap());
        Self { files, handle, address, shutdown }
    }

    async fn rules(&self, rules: NodeRules) {
        let listen = Some("127.0.0.1:0".parse().unwrap());
        let issuer = crate::identity::IssuerConfig { listen, nodes: rules, ..self.files.issuer() };
        self.handle.apply(Some(config(&self.files)), Some(issuer), None).await.unwrap();
    }

    fn token(&self, node: &str) -> Token {
        self.handle.create_token(&OPERATOR, node, TTL).unwrap().token
    }

    /// A node that has nothing but the root and a token.
    async fn member(&self, name: &str, token: Option<&Token>) -> Member {
        self.member_of(NODE.0, name, token).await
    }

    async fn member_of(&self, site: &str, name: &str, token: Option<&Token>) -> Member {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            trust_bundle: self.files.path("root.pem"),
            files: None,
            join_token_file: Some(dir.path().join("join.token")),
            issuers: vec![self.address.to_string()],
            state_dir: dir.path().join("state"),
            rotation: rotation::Config {
                charter: None,
                longest_leaf: Duration::from_secs(86_400),
                dir: dir.path().join("state/identity/rotation"),
            },
            peers: Vec::new(),
        };
        if let Some(token) = token {
            let path = config.join_token_file.as_ref().unwrap();
            fs::write(path, format!("{}\n", *token.reveal())).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (handle, shutdown) = start_node(&config, site, name).await;
        Member { dir, config, handle, shutdown }
    }
}

async fn start_member(config: &Config, name: &str) -> (Handle, CancellationToken) {
    start_node(config, NODE.0, name).await
}

async fn start_node(config: &Config, site: &str, name: &str) -> (Handle, CancellationToken) {
    let shutdown = CancellationToken::new();
    let node = Some((site.to_owned(), name.to_owned()));
    let handle = start(Some(config.clone()), None, None, node, shutdown.clone()).await.unwrap();
    (handle, shutdown)
}

struct Member {
    dir: tempfile::TempDir,
    config: Config,
    handle: Handle,
    shutdown: CancellationToken,
}

impl Member {
    async fn joined(&self) -> Arc<crate::identity::Own> {
        let mut live = self.handle.live();
        let joined = live.wait_for(|standing| standing.as_ref().is_some_and(|s| s.own.is_some()));
        let standing = tokio::time::timeout(LIMIT, joined).await.expect("joins in time").unwrap().clone();
        standing.unwrap().own.unwrap()
    }

    async fn connect(&self, issuer: &Issuer, appear: As<'_>) -> IssuanceClient<Channel> {
        let standing = self.handle.live().borrow().clone().unwrap();
        client::connect(&issuer.address.to_string(), &self.handle.live(), &standing, appear, None)
            .await
            .unwrap()
    }

    /// Until the state of the agent is what is wanted: what `status` says of it.
    async fn says(&self, wanted: &str) -> Condition {
        for _ in 0..200 {
            let (condition, summary) = self.handle.summary();
            if summary.contains(wanted) {
                return condition;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?} lacks {wanted:?}", self.handle.summary());
    }
}

/// The ID of the issuer, as its tokens name it.
fn gw1() -> SpiffeId {
    isthmus_pki::id::node_id(&domain(), NODE.0, NODE.1).unwrap()
}

fn csr_of(name: &str) -> Vec<u8> {
    let key = Key::generate(Curve::P256).unwrap();
    // What it calls itself counts for nothing.
    csr::to_der(&csr::create(&key, name, &domain().id()).unwrap()).unwrap().to_vec()
}

fn enroll_request(token: &Token, site: &str, node: &str) -> EnrollRequest {
    let token = token.reveal().to_string();
    EnrollRequest { token, site: site.into(), node: node.into(), csr: csr_of(node) }
}

fn workload(path: &str) -> crate::identity::Identity {
    let (id, ttl) = (domain().member(path).unwrap(), Duration::from_secs(3600));
    let (dns_names, federates_with) = (Vec::new(), Vec::new());
    crate::identity::Identity { id, ttl, jwt_ttl: ttl, dns_names, hint: String::new(), federates_with }
}

fn order(verb: rotation::Verb, reason: Option<&str>) -> rotation::Request {
    let override_reason = reason.map(str::to_owned);
    rotation::Request { verb, override_reason, istio_checked: None, by: "a test".into() }
}
