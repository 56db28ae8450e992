//! Changes while the daemon runs: what one brings, no other loses.

use super::*;

#[tokio::test]
async fn a_federated_bundle_reaches_the_streams_and_outlives_a_reload() {
    let node = Node::new(vec![hour("/a")]).await;
    let other = TrustDomain::parse("partner.example").unwrap();
    let read = |sequence: u64| {
        let document = format!(r#"{{"keys":[],"spiffe_sequence":{sequence}}}"#);
        Bundle::from_jwks(&other, document.as_bytes()).unwrap().bundle
    };
    let sequence = || node.handle.trust().unwrap().federated(&other).and_then(Bundle::sequence);
    for number in [1, 2] {
        node.handle.federation().put(&read(number));
        while sequence() != Some(number) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        node.apply(vec![hour("/a"), hour("/b")]).await;
        assert_eq!(sequence(), Some(number));
    }
    assert_eq!(node.handle.trust().unwrap().own().anchors(), node.files.bundle().anchors());
    // One of our own domain never gets in.
    node.handle.federation().put(&Bundle::from_jwks(&domain(), br#"{"keys":[]}"#).unwrap().bundle);
    node.handle.federation().put(&read(3));
    while sequence() != Some(3) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(node.handle.trust().unwrap().own().anchors(), node.files.bundle().anchors());
}

/// The bundle that is supplied carries the key that tokens are signed with.
#[tokio::test]
async fn tokens_are_published_before_anybody_has_one() {
    let node = Node::new(vec![hour("/a")]).await;
    let trust = node.handle.trust().unwrap();
    assert_eq!(trust.own().jwt_authorities().len(), 1);
    let issuer = node.handle.current_issuer().unwrap();
    let requester = Requester::Workload { uid: 1, pid: 1 };
    let identity = identity("/a");
    let svid = issuer.mint(&identity, &["db".into()], &requester, SystemTime::now()).unwrap();
    isthmus_pki::jwt::validate(&svid.token, "db", trust.store(), SystemTime::now().into()).unwrap();
    // Half a day later the next key is in the bundle that everybody is supplied with.
    node.handle.republish(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    let later = node.handle.trust().unwrap();
    assert_eq!(later.own().jwt_authorities().len(), 2);
    assert!(later.own().sequence() > trust.own().sequence());
}

/// What each change brings, all the others leave: bundles of partners, keys for tokens, an SVID, a charter.
#[tokio::test]
async fn no_change_loses_what_another_brought() {
    let node = Node::new(vec![hour("/a")]).await;
    let partner = TrustDomain::parse("partner.example").unwrap();
    let document = br#"{"keys":[],"spiffe_sequence":1}"#;
    node.handle.federation().put(&Bundle::from_jwks(&partner, document).unwrap().bundle);
    let live = node.handle.live();
    let standing = || live.borrow().clone().unwrap();
    while standing().trust.federated(&partner).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let whole = |after: &str, keys: usize| {
        let (told, own) = (node.handle.trust().unwrap(), standing());
        assert_eq!(told, own.trust, "streams and connections believe the same after {after}");
        assert!(told.federated(&partner).is_some(), "the partner is lost after {after}");
        assert_eq!(told.own().jwt_authorities().len(), keys, "keys after {after}");
        assert_eq!(own.own.unwrap().chain, node.handle.material().unwrap().own.unwrap().chain);
    };
    whole("the start", 1);
    node.handle.republish(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    whole("republishing", 2);
    let (chain, key) = node.files.svid(id::node_id(&domain(), NODE.0, NODE.1).unwrap().path());
    let path = node.files.path("node.pem");
    let store = TrustStore::from(node.files.bundle());
    let renewed = Own::check(chain.clone(), key, &path, &store, Some(NODE), SystemTime::now()).unwrap();
    node.handle.adopt(Arc::new(renewed)).await;
    whole("a renewal", 2);
    assert_eq!(standing().own.unwrap().chain, chain);
    // A reload goes by the clock of now again, and keeps both keys: one of them is not due yet.
    node.apply(vec![hour("/a"), hour("/b")]).await;
    whole("a reload", 2);
    let rotate = rotation::Request {
        verb: rotation::Verb::Leaf,
        override_reason: None,
        istio_checked: None,
        by: "a test".into(),
    };
    assert!(node.handle.rotate(&rotate, false).await.unwrap().applied);
    whole("a rotation", 2);
    node.handle
        .federation()
        .put(&Bundle::from_jwks(&partner, br#"{"keys":[],"spiffe_sequence":2}"#).unwrap().bundle);
    while standing().trust.federated(&partner).and_then(Bundle::sequence) != Some(2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    whole("the partner's next bundle", 2);
}

/// The last thing that fails takes all before it back: what rotations have written down fits the sections that stay.
#[tokio::test]
async fn a_reload_that_is_refused_late_leaves_the_rotation_as_it_was() {
    let node = Node::new(vec![hour("/a")]).await;
    let (files, rotation) = (&node.files, node.handle.rotation().unwrap());
    let written = || fs::read(files.config().rotation.dir.join("state.json")).unwrap();
    let (ca, state, file) = (node.handle.current_issuer().unwrap(), rotation.state(), written());
    // Another CA of the site, which would push the first aside, and a socket where none can be.
    let other = files.other_site(NODE.0);
    let issuer = IssuerConfig::new(other.path("site-ca.pem"), other.path("site-ca.key"), files.dir.path());
    let mut api = files.workload_api(vec![hour("/a")]);
    api.socket = files.path("root.pem/workload.sock");
    node.handle.apply(Some(files.config()), Some(issuer.clone()), Some(api)).await.unwrap_err();
    assert_eq!((rotation.state(), written()), (state, file));
    let leaf = rotation::Request {
        verb: rotation::Verb::Leaf,
        override_reason: None,
        istio_checked: None,
        by: "a test".into(),
    };
    assert!(node.handle.rotate(&leaf, false).await.unwrap().applied, "the old sections load again");
    assert_eq!(node.handle.current_issuer().unwrap().certificate(), ca.certificate());
    // Where the rest can be done, so is this.
    let api = files.workload_api(vec![hour("/a")]);
    node.handle.apply(Some(files.config()), Some(issuer), Some(api)).await.unwrap();
    assert_ne!(node.handle.current_issuer().unwrap().certificate(), ca.certificate());
    assert_eq!(rotation.state().cas.len(), 2);
}

/// Every certificate that is known is listed, and partners' roots go by their domain.
#[tokio::test]
async fn roots_of_partners_are_listed_while_they_are_trusted() {
    let node = Node::new(vec![hour("/a")]).await;
    let foreign = TrustDomain::parse("partner.example").unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let now = SystemTime::now().into();
    let root = Authority::root(&foreign, key, time::Duration::days(9), serial(), now).unwrap();
    node.handle.federation().put(&Bundle::parse(root.certificate()).unwrap());
    let listed = || {
        let all = node.handle.certificates();
        all.into_iter().find(|c| c.kind == Kind::FederatedRoot)
    };
    while listed().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let info = listed().unwrap();
    assert_eq!(
        (info.spiffe_id.as_str(), info.not_after),
        ("spiffe://partner.example", root.facts().not_after)
    );
    assert_eq!(node.handle.summary().0, Condition::Well);
}

/// As when the clock was set: everybody looks, and nobody is sent anything that has not changed.
#[tokio::test]
async fn who_is_told_of_a_jump_looks_and_is_sent_what_changed() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let mut live = node.handle.live();
    live.mark_unchanged();
    node.handle.look_again(SystemTime::now()).await;
    assert!(live.has_changed().unwrap(), "connections and renewal look again");
    let more = tokio::time::timeout(Duration::from_millis(200), stream.message()).await;
    assert!(more.is_err(), "nothing has changed: {more:?}");

    // Half a day later a new key for tokens is due: it is there at once, not when its maker wakes.
    node.handle.look_again(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    assert_eq!(node.handle.trust().unwrap().own().jwt_authorities().len(), 2);
}

/// A site's own CA and another's, tainted while a file can't be read: both are refused at once, and all is loaded when it can be.
#[tokio::test]
async fn a_taint_is_in_force_though_the_files_cant_be_loaded() {
    let node = Node::new(vec![hour("/a")]).await;
    let (files, other) = (&node.files, node.files.other_site("other"));
    let key = |files: &Files| files.site().facts().key_sha256.clone();
    let refuses = |key: &str| {
        let standing = node.handle.live().borrow().clone().unwrap();
        standing.trust.store().policy().is_tainted(key)
    };
    files.write("node.pem", "none", 0o644);
    let statement = isthmus_pki::rotation::taint::seal(&other.site(), 7, "stolen").unwrap();
    let heard = rotation::Heard { taints: vec![statement], ..rotation::Heard::default() };
    node.handle.hear(heard.clone()).await.unwrap_err();
    assert!(refuses(&key(&other)) && !refuses(&key(files)));
    let told = node.handle.trust().unwrap();
    assert!(told.store().policy().is_tainted(&key(&other)) && told.own().jwt_authorities().len() == 1);
    node.handle.hear(heard.clone()).await.expect_err("it is tried again, though it is no news");

    // The site's own, by an order: whoever repeats it hears that it is not done.
    let taint = rotation::Request {
        verb: rotation::Verb::Taint(key(files), "sold".into()),
        override_reason: Some("a thief".into()),
        istio_checked: None,
        by: "a test".into(),
    };
    for _ in 0..2 {
        assert!(error(node.handle.rotate(&taint, false).await.map(drop)).contains("node.pem"));
        assert!(refuses(&key(files)) && node.handle.current_issuer().is_none());
        assert!(node.handle.trust().is_none(), "callers are told to come again");
    }
    files.new_node(NODE.0, NODE.1);
    let before = node.handle.material().unwrap().own.unwrap();
    node.handle.mend().await;
    assert_ne!(node.handle.material().unwrap().own.unwrap().chain, before.chain, "loaded");
    assert!(refuses(&key(files)) && refuses(&key(&other)));
    assert!(!node.handle.rotate(&taint, false).await.unwrap().applied, "it is done");
}
