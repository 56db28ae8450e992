//! What was refused at first, and holds later though nobody says it again.

use isthmus_pki::{
    KeyHash,
    charter::{CaState, Charter, PinnedCa, Root, RootState, Site, sealed},
    jwt::{self, SigningKey},
};
use time::OffsetDateTime;

use super::*;
use crate::identity::enroll::TrustState;

const PEER: &str = "127.0.0.1:1";

/// A node with a peer that never answers, and what that would say: a key of another site.
struct Listener {
    node: Node,
    other: Files,
    key: SigningKey,
}

impl Listener {
    async fn new() -> Self {
        let node = Node::new(vec![hour("/a")]).await;
        let config = Config { peers: vec![PEER.into()], ..node.files.config() };
        let api = Some(node.files.workload_api(vec![hour("/a")]));
        node.handle.apply(Some(config), Some(node.files.issuer()), api).await.unwrap();
        let (other, key) = (node.files.other_site("other"), Key::generate(Curve::P256).unwrap());
        Self { node, other, key: SigningKey::new(key).unwrap() }
    }

    /// The other site's key, endorsed at that moment.
    async fn hear_of_key(&self, now: OffsetDateTime) {
        let end = now + time::Duration::hours(1);
        let endorsement = jwt::endorse(&self.other.site(), &self.key.public(), end, now).unwrap();
        let jwt_endorsements = vec![endorsement.as_str().as_bytes().to_vec()];
        let state = TrustState { jwt_endorsements, ..TrustState::default() };
        self.node.handle.hear_peer(PEER, &Arc::new(state)).await;
    }

    fn believes(&self) -> bool {
        self.node.handle.jwt_keys().iter().any(|(key, _)| key.key_id == self.key.key_id())
    }

    async fn comes_to_believe(&self) {
        let believes = async {
            while !self.believes() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), believes).await.expect("within seconds");
    }

    /// A charter with our CA, and this one for the other site.
    async fn publish(&self, sequence: u64, theirs: &Files) {
        let root = &*self.node.files.root;
        let key = KeyHash::of(root.facts());
        let site = |name: &str, ids: &[&str], files: &Files| {
            let ca = KeyHash::of(files.site().facts());
            let ca = PinnedCa { key: ca, root: Some(key.clone()), state: CaState::Active };
            Site { name: name.into(), ids: ids.iter().map(|id| (*id).to_owned()).collect(), cas: vec![ca] }
        };
        let charter = Charter {
            trust_domain: domain(),
            sequence,
            issued_at: 0,
            refresh_hint: 60,
            roots: vec![Root {
                certificate: root.certificate().clone(),
                key: key.clone(),
                state: RootState::Active,
            }],
            sites: vec![site(NODE.0, &["/"], &self.node.files), site("other", &[], theirs)],
            crls: vec![],
        };
        let file = sealed::seal(&charter, &[root]).unwrap().into_bytes();
        let publish = rotation::Request {
            verb: rotation::Verb::Publish(file),
            override_reason: None,
            istio_checked: None,
            by: "a test".into(),
        };
        let outcome = self.node.handle.rotate(&publish, false).await.unwrap();
        assert!(outcome.applied, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_key_is_believed_as_soon_as_a_charter_pins_its_ca() {
    let listener = Listener::new().await;
    listener.publish(1, &listener.node.files.other_site("other")).await;
    listener.hear_of_key(OffsetDateTime::now_utc()).await;
    assert!(!listener.believes(), "another CA is pinned");
    listener.publish(2, &listener.other).await;
    listener.comes_to_believe().await;
}

/// As when a node starts with a clock that is late.
#[tokio::test]
async fn a_key_from_the_future_is_believed_when_the_clock_was_set() {
    let listener = Listener::new().await;
    // Half a minute is no future yet.
    listener.hear_of_key(OffsetDateTime::now_utc() + time::Duration::seconds(32)).await;
    assert!(!listener.believes());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!listener.believes(), "nobody has looked");
    listener.node.handle.look_again(SystemTime::now()).await;
    listener.comes_to_believe().await;
}
