//! Files that are refused, and files that are taken although their time is over.

use super::*;

#[tokio::test]
async fn a_bad_reload_changes_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let before = node.handle.certificates();
    let files = &node.files;
    let apply = |entries| {
        node.handle.apply(Some(files.config()), Some(files.issuer()), Some(files.workload_api(entries)))
    };
    assert!(matches!(apply(vec![hour("/a"), hour("/..")]).await, Err(Error::Entry(EntryError { .. }))));
    files.write("node.pem", "nonsense", 0o644);
    assert!(matches!(apply(vec![]).await, Err(Error::Material(MaterialError::File(_)))));
    assert!(matches!(node.handle.apply(None, Some(files.issuer()), None).await, Err(Error::IssuerAlone)));
    assert_eq!(node.handle.certificates(), before);
    assert!(node.fetch().await.unwrap().message().await.unwrap().is_some());
}

#[test]
fn material_is_refused_with_file_and_remedy() {
    let files = Files::new();
    files.load().unwrap();
    files.write("node.key", &fs::read_to_string(files.path("node.key")).unwrap(), 0o640);
    has(&error(files.load()), &["node.key", "0640", "chmod 600"]);
    files.write("node.key", &Key::generate(Curve::P256).unwrap().to_pem(), 0o600);
    has(&error(files.load()), &["node.pem", "node.key", "does not belong"]);
    fs::remove_file(files.path("node.key")).unwrap();
    has(&error(files.load()), &["node.key", "no such file"]);

    let files = Files::new();
    files.new_node("aws-use1", "gw2");
    has(&error(files.load()), &["node.pem", "node/gw2", "name \"gw1\""]);
    let (chain, key) = files.svid("/ns/a/sa/b");
    files.write("node.pem", &bundle::to_pem(&chain), 0o644);
    files.write("node.key", &key.to_pem(), 0o600);
    has(&error(files.load()), &["node.pem", "not a node's ID"]);

    let (files, foreign) = (Files::new(), Files::new());
    files.write("root.pem", &bundle::to_pem([foreign.root.certificate()]), 0o644);
    has(&error(files.load()), &["node.pem", "root.pem", "another root"]);
    symlink("/dev/zero", files.path("endless")).unwrap();
    let config = Config { trust_bundle: files.path("endless"), ..files.config() };
    has(&error(Material::load(&config, None, SystemTime::now())), &["endless"]);
}

/// Tunnels and routes don't depend on it: the daemon runs, and says what is wrong.
#[test]
fn an_svid_out_of_its_time_is_loaded_and_not_believed() {
    let files = Files::new();
    let day = Duration::from_secs(86_400);
    let at = |now| {
        let material = Material::load(&files.config(), Some(NODE), now).unwrap();
        error(material.own.unwrap().believed(&material.store, now))
    };
    has(&at(SystemTime::now() - day), &["is valid from", "clock says", "check the clock"]);
    has(&at(SystemTime::now() + 2 * day), &["expired"]);
    // spiffe/spire#1305: long away, and every root that the node knows has ended meanwhile.
    has(&at(SystemTime::now() + 4000 * day), &["no root of trust domain", "expired"]);
}

#[test]
fn the_younger_of_the_ceremonys_and_the_renewed_svid_is_used() {
    let files = Files::new();
    let path = enroll::state::path(&files.path("state"));
    let (chain, key) = files.svid(id::node_id(&domain(), NODE.0, NODE.1).unwrap().path());
    let serial = |material: Material| material.own.unwrap().serial.clone();
    let of = |chain: &[CertificateDer<'_>]| isthmus_pki::Facts::parse(&chain[0]).unwrap().serial;
    let signed = serial(files.load().unwrap());
    // Renewed in the same second: one of the two, and it stays that one.
    std::thread::sleep(Duration::from_millis(1100));
    let (renewed, renewed_key) = files.svid(id::node_id(&domain(), NODE.0, NODE.1).unwrap().path());
    enroll::state::write(&path, &chain, &key).unwrap();
    assert!([signed.clone(), of(&chain)].contains(&serial(files.load().unwrap())));
    enroll::state::write(&path, &renewed, &renewed_key).unwrap();
    assert_eq!(serial(files.load().unwrap()), of(&renewed));
    // A ceremony after that.
    std::thread::sleep(Duration::from_millis(1100));
    files.new_node(NODE.0, NODE.1);
    assert_ne!(serial(files.load().unwrap()), of(&renewed));
    // What the node wrote is never a reason not to start.
    fs::write(&path, "half").unwrap();
    files.load().unwrap();
    let (foreign, foreign_key) = files.svid("/site/aws-use1/node/gw2");
    enroll::state::write(&path, &foreign, &foreign_key).unwrap();
    assert_eq!(files.load().unwrap().own.unwrap().id.node(), Some(NODE));
}

#[test]
fn an_issuer_is_refused_with_file_and_remedy() {
    let files = Files::new();
    let load = |files: &Files, trust: Trust, site| {
        SiteCa::load(&files.issuer(), &trust, Some(site), SystemTime::now()).map(drop)
    };
    load(&files, Trust::new(files.bundle()), NODE.0).unwrap();
    has(&error(load(&files, Trust::new(files.bundle()), "other")), &["site-ca.pem", "site \"other\""]);
    let stranger = Trust::new(Files::new().bundle());
    has(&error(load(&files, stranger, NODE.0)), &["site-ca.pem", "another root"]);
    let leaf = IssuerConfig::new(files.path("node.pem"), files.path("node.key"), files.dir.path());
    let result = SiteCa::load(&leaf, &Trust::new(files.bundle()), None, SystemTime::now());
    has(&error(result.map(drop)), &["node.pem", "not a CA"]);
}

/// A pair of files of which one was replaced: the old pair goes on issuing, and the error names both.
#[tokio::test]
async fn a_half_replaced_pair_changes_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let before = node.handle.current_issuer().unwrap().certificate().clone();
    node.files.write("site-ca.key", &Key::generate(Curve::P256).unwrap().to_pem(), 0o600);
    let files = &node.files;
    let api = Some(files.workload_api(vec![hour("/a")]));
    let result = node.handle.apply(Some(files.config()), Some(files.issuer()), api).await;
    has(&error(result), &["site-ca.pem", "site-ca.key", "does not belong"]);
    assert_eq!(*node.handle.current_issuer().unwrap().certificate(), before);
    let first = node.fetch().await.unwrap().message().await.unwrap().unwrap();
    assert_eq!(check(&node.files, &first).len(), 1);
}

/// A CA and a node's SVID that have ended keep no node from starting: tunnels do not depend on them.
#[tokio::test]
async fn a_site_ca_out_of_its_time_issues_nothing_and_stops_nothing() {
    let files = Files::new();
    let past = SystemTime::now() - Duration::from_secs(100 * 86_400);
    let key = Key::generate(Curve::P256).unwrap();
    let root_key = Key::generate(Curve::P384).unwrap();
    let root =
        Authority::root(&domain(), root_key, time::Duration::days(3650), serial(), past.into()).unwrap();
    let profile = Profile::SiteCa { site: NODE.0.into(), lifetime: time::Duration::days(90) };
    let issued = root.issue(&profile, &key.public(), serial(), past.into()).unwrap();
    files.write("root.pem", &bundle::to_pem([root.certificate()]), 0o644);
    files.write("site-ca.pem", &bundle::to_pem([&issued.certificate]), 0o644);
    files.write("site-ca.key", &key.to_pem(), 0o600);
    let (site, key) = (files.site(), Key::generate(Curve::P256).unwrap());
    let id = id::node_id(&domain(), NODE.0, NODE.1).unwrap();
    let profile = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::days(1) };
    let leaf = site.issue(&profile, &key.public(), serial(), past.into()).unwrap().certificate;
    files.write("node.pem", &bundle::to_pem([&leaf, site.certificate()]), 0o644);
    files.write("node.key", &key.to_pem(), 0o600);

    let (api, shutdown) = (Some(files.workload_api(vec![hour("/a")])), CancellationToken::new());
    let node = Some((NODE.0.to_string(), NODE.1.to_string()));
    let handle =
        start(Some(files.config()), Some(files.issuer()), api, node, shutdown.clone()).await.unwrap();
    let (condition, summary) = handle.summary();
    assert_eq!(condition, Condition::Failed, "{summary}");
    has(&summary, &["is not believed", "expired", "nothing is issued", "isthmus-ca site sign"]);
    assert_eq!(handle.trust().unwrap().own().jwt_authorities(), []);
    let issuer = handle.current_issuer().unwrap();
    let requester = Requester::Workload { uid: own_uid(), pid: 1 };
    let refused = issuer.issue(&identity("/a"), &requester, SystemTime::now()).err().unwrap();
    assert!(matches!(refused, IssuerError::Idle { .. }), "{refused}");
    let refused = issuer.mint(&identity("/a"), &["db".into()], &requester, SystemTime::now()).err().unwrap();
    assert!(matches!(refused, IssuerError::Idle { .. }), "{refused}");
    shutdown.cancel();
    handle.stopped().await;
}

/// A node whose SVID comes from its own site CA has that CA in two files.
#[tokio::test]
async fn a_site_ca_that_stands_in_two_files_neither_comes_nor_goes() {
    let node = Node::new(vec![hour("/a")]).await;
    let file = || {
        let all = node.handle.certificates();
        all.into_iter().find(|c| c.kind == Kind::SiteCa).unwrap().path.unwrap()
    };
    assert_eq!(file(), node.files.path("site-ca.pem"), "where it issues from");
    // Another SVID, under the same CA, which is in its chain again.
    node.files.new_node(NODE.0, NODE.1);
    let changes = node.apply(vec![hour("/a")]).await;
    assert!(changes.iter().any(|change| change.contains("node-svid")), "{changes:?}");
    assert!(!changes.iter().any(|change| change.contains("site-ca")), "{changes:?}");
}
