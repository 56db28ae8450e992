//! TLS of the node itself, over loopback: who gets in, and who may stay.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    Authority, Bundle, Curve, Key, Profile, Serial, TrustDomain, TrustStore, id,
    verify::{Policy, Purpose},
};
use rustls::NamedGroup;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::identity::{
    config::{Config, NodeRules},
    own::Own,
    rotation,
    trust::Trust,
};

const SITE: &str = "s1";

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

fn domain() -> TrustDomain {
    TrustDomain::parse("fabric.example").unwrap()
}

struct Fabric {
    root: Authority,
    site: Authority,
}

impl Fabric {
    fn new() -> Self {
        let (now, days) = (SystemTime::now().into(), time::Duration::days);
        let key = Key::generate(Curve::P384).unwrap();
        let root = Authority::root(&domain(), key, days(3650), serial(), now).unwrap();
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: SITE.into(), lifetime: days(90) };
        let issued = root.issue(&profile, &key.public(), serial(), now).unwrap();
        let site = Authority::load(issued.certificate, key).unwrap();
        Self { root, site }
    }

    fn bundle(&self) -> Bundle {
        Bundle::parse(self.root.certificate()).unwrap()
    }

    fn own(&self, name: &str, lifetime: Duration) -> Arc<Own> {
        let key = Key::generate(Curve::P256).unwrap();
        let id = id::node_id(&domain(), SITE, name).unwrap();
        let lifetime = lifetime.try_into().unwrap();
        let profile = Profile::Svid { id, dns_names: vec![], lifetime };
        let now = SystemTime::now();
        let issued = self.site.issue(&profile, &key.public(), serial(), now.into()).unwrap();
        let chain = vec![issued.certificate, self.site.certificate().clone()];
        let store = TrustStore::from(self.bundle());
        Arc::new(Own::check(chain, key, "own.pem".as_ref(), &store, None, now).unwrap())
    }

    fn standing(&self, name: &str, lifetime: Duration) -> Standing {
        let config = Config {
            trust_bundle: "root.pem".into(),
            files: None,
            join_token_file: None,
            issuers: Vec::new(),
            state_dir: "state".into(),
            rotation: rotation::Config {
                charter: None,
                longest_leaf: Duration::from_secs(86_400),
                dir: "state/identity/rotation".into(),
            },
            peers: Vec::new(),
        };
        Standing {
            config: Arc::new(config),
            trust: Arc::new(Trust::new(self.bundle())),
            own: Some(self.own(name, lifetime)),
            issuer: None,
            rules: Arc::default(),
            node: Arc::new((SITE.into(), name.into())),
            charter_sequence: 0,
        }
    }
}

fn nodes() -> Allow {
    Allow::NodesOf(domain(), SITE.into())
}

/// Two nodes on a connection, each guarded; each one's standing can be changed.
struct Pair {
    client: watch::Sender<Option<Standing>>,
    server: watch::Sender<Option<Standing>>,
    near: Guarded<tokio_rustls::client::TlsStream<TcpStream>>,
    far: Guarded<tokio_rustls::server::TlsStream<TcpStream>>,
}

async fn connect(client: Standing, server: Standing) -> Pair {
    let (client, server) = (watch::Sender::new(Some(client)), watch::Sender::new(Some(server)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, theirs) = (client.borrow().clone().unwrap(), server.borrow().clone().unwrap());
    let server_own = theirs.own.unwrap();
    let config = node_server(&server_own, server.subscribe(), nodes()).unwrap();
    let accept = async {
        let (tcp, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(Arc::new(config)).accept(tcp).await.unwrap()
    };
    let config = node_client(&ours, client.subscribe(), nodes(), false).unwrap();
    let dial = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect("x".try_into().unwrap(), tcp).await.unwrap()
    };
    let (near, far) = tokio::join!(dial, accept);
    let chain = |list: Option<&[CertificateDer<'static>]>| list.unwrap().to_vec();
    let server_chain = chain(near.get_ref().1.peer_certificates());
    let client_chain = chain(far.get_ref().1.peer_certificates());
    let end = |own: &Own| Some(own.life.not_after);
    let near_check =
        Check::new(client.subscribe(), server_chain, Purpose::Server, nodes(), end(&ours.own.unwrap()));
    let far_check = Check::new(server.subscribe(), client_chain, Purpose::Client, nodes(), end(&server_own));
    let (near, far) = (Guarded::new(near, Arc::new(near_check)), Guarded::new(far, Arc::new(far_check)));
    Pair { client, server, near, far }
}

impl Pair {
    async fn talks(&mut self) -> bool {
        let sent = self.near.write_all(b"x").await.is_ok() && self.near.flush().await.is_ok();
        let heard = async { self.far.read_u8().await.is_ok_and(|byte| byte == b'x') };
        sent && timeout(Duration::from_secs(5), heard).await.unwrap_or(false)
    }

    /// Both ends are closed, and within a second of now.
    async fn ends(mut self) {
        let second = Duration::from_secs(1);
        assert!(timeout(second, self.far.read_u8()).await.expect("closed in time").is_err());
        drop(self.far);
        assert!(timeout(second, self.near.read_u8()).await.expect("closed in time").is_err());
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn hybrid_keys_come_first_and_nothing_is_resumed() {
    let fabric = Fabric::new();
    let mut pair = connect(fabric.standing("gw2", HOUR), fabric.standing("gw1", HOUR)).await;
    assert!(pair.talks().await);
    let session = pair.near.get_ref().get_ref().1;
    assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
    assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(session.handshake_kind(), Some(rustls::HandshakeKind::Full));
    assert_eq!(session.alpn_protocol(), Some(ALPN));
}

/// spiffe/spire#711: an agent that was evicted went on over the connection that it had.
#[tokio::test]
async fn a_peer_that_is_banned_is_cut_off_at_once() {
    let fabric = Fabric::new();
    let mut pair = connect(fabric.standing("gw2", HOUR), fabric.standing("gw1", HOUR)).await;
    assert!(pair.talks().await);
    // A change that does not concern it leaves it alone.
    pair.server.send_modify(|standing| {
        let rules = NodeRules { banned: vec!["gw3".into()], ..NodeRules::default() };
        standing.as_mut().unwrap().rules = Arc::new(rules);
    });
    assert!(pair.talks().await);
    pair.server.send_modify(|standing| {
        let rules = NodeRules { banned: vec!["gw2".into()], ..NodeRules::default() };
        standing.as_mut().unwrap().rules = Arc::new(rules);
    });
    pair.ends().await;
}

#[tokio::test]
async fn a_root_that_goes_takes_connections_with_it() {
    let (fabric, other) = (Fabric::new(), Fabric::new());
    let mut pair = connect(fabric.standing("gw2", HOUR), fabric.standing("gw1", HOUR)).await;
    assert!(pair.talks().await);
    let both = isthmus_pki::bundle::to_pem([fabric.root.certificate(), other.root.certificate()]);
    let trust = |bundle| Arc::new(Trust::new(bundle));
    pair.server.send_modify(|standing| {
        standing.as_mut().unwrap().trust = trust(Bundle::parse(both.as_bytes()).unwrap());
    });
    assert!(pair.talks().await, "another root beside ours changes nothing");
    pair.server.send_modify(|standing| standing.as_mut().unwrap().trust = trust(other.bundle()));
    pair.ends().await;
}

/// A site CA in the wrong hands: its nodes are cut off from those who know, whatever the root says.
#[tokio::test]
async fn a_tainted_site_ca_takes_its_connections_with_it() {
    let fabric = Fabric::new();
    let mut pair = connect(fabric.standing("gw2", HOUR), fabric.standing("gw1", HOUR)).await;
    assert!(pair.talks().await);
    let tainted = Policy::default().with_tainted([fabric.site.facts().key_sha256.clone()]);
    let trust = Trust::under(fabric.bundle(), tainted, Vec::new());
    pair.client.send_modify(|standing| standing.as_mut().unwrap().trust = Arc::new(trust));
    let second = Duration::from_secs(1);
    assert!(timeout(second, pair.near.read_u8()).await.expect("closed in time").is_err());
}

#[tokio::test]
async fn a_connection_ends_with_the_certificate_of_either_side() {
    let fabric = Fabric::new();
    let (short, limit) = (Duration::from_secs(3), Duration::from_secs(10));
    for (client, server) in [(short, HOUR), (HOUR, short)] {
        let mut pair = connect(fabric.standing("gw2", client), fabric.standing("gw1", server)).await;
        assert!(pair.talks().await);
        let far = timeout(limit, pair.far.read_u8());
        let near = timeout(limit, pair.near.read_u8());
        let (far, near) = tokio::join!(far, near);
        assert!(far.expect("closed in time").is_err() && near.expect("closed in time").is_err());
        let now = SystemTime::now();
        for side in [&pair.client, &pair.server] {
            let standing = side.borrow().clone().unwrap();
            let ended = standing.own.unwrap().believed(standing.trust.store(), now).is_err();
            assert_eq!(ended, std::ptr::eq(side, if client == short { &pair.client } else { &pair.server }));
        }
    }
}

/// The verifier asks what the node believes when the handshake is made, not when the configuration was.
#[tokio::test]
async fn a_handshake_is_judged_by_what_is_believed_now() {
    let (fabric, other) = (Fabric::new(), Fabric::new());
    let server = watch::Sender::new(Some(fabric.standing("gw1", HOUR)));
    let own = server.borrow().as_ref().unwrap().own.clone().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(node_server(&own, server.subscribe(), nodes()).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let standing = fabric.standing("gw2", HOUR);
    let client = watch::Sender::new(Some(standing.clone()));
    let handshake = async || {
        let config = node_client(&standing, client.subscribe(), nodes(), false).unwrap();
        let dial = async {
            let tcp = TcpStream::connect(address).await.unwrap();
            let stream = TlsConnector::from(Arc::new(config)).connect("x".try_into().unwrap(), tcp).await;
            // TLS 1.3: what the server thinks of our certificate shows with its first word.
            if let Ok(mut stream) = stream {
                let _ = stream.read_u8().await;
            }
        };
        let accept = async {
            let (tcp, _) = listener.accept().await.unwrap();
            acceptor.accept(tcp).await.map(drop)
        };
        tokio::join!(accept, dial).0
    };
    assert!(handshake().await.is_ok());
    server.send_modify(|standing| {
        standing.as_mut().unwrap().trust = Arc::new(Trust::new(other.bundle()));
    });
    let refused = handshake().await.unwrap_err().to_string();
    assert!(refused.contains("another root"), "{refused}");
    server.send_modify(|standing| {
        standing.as_mut().unwrap().trust = Arc::new(Trust::new(fabric.bundle()));
    });
    assert!(handshake().await.is_ok());
}
