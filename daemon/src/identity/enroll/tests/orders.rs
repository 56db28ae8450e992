//! Orders are in the audit log with who gave them, or they are not carried out.

use isthmus_pki::audit::Record;

use super::*;
use crate::identity::audit::tests::Faulty;

/// Operator records of a log: node, key, who, and what came of it.
fn orders(path: &std::path::Path) -> Vec<(String, String, String, String)> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| Record::parse(line.as_bytes()).unwrap());
    let orders = records.filter(|record| record.kind == "operator");
    orders.map(|r| (r.id, r.serial, r.requester, r.reason)).collect()
}

impl Issuer {
    fn orders(&self) -> Vec<(String, String, String, String)> {
        orders(&self.files.issuer().audit.file)
    }

    /// What the records from the `from`th on say.
    fn said(&self, from: usize) -> Vec<String> {
        self.orders().split_off(from).into_iter().map(|(.., reason)| reason).collect()
    }

    fn disk(&self) -> Arc<Faulty> {
        Faulty::under(self.handle.current_issuer().unwrap().audit())
    }
}

fn id(node: &str) -> String {
    format!("spiffe://fabric.example/site/{}/node/{node}", NODE.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_made_and_taken_back_are_written_down() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let created = issuer.handle.create_token(&OPERATOR, "gw2", TTL).unwrap();
    let key = created.record.id().to_owned();
    let who = "operator uid=0 pid=1".to_owned();
    let expected = |what: &str, words: [&str; 2]| {
        words.map(|word| (id("gw2"), key.clone(), who.clone(), format!("{what}: {word}")))
    };
    assert_eq!(issuer.orders(), expected("token create", ["ordered", "done"]));
    assert!(issuer.handle.revoke_token(&OPERATOR, &key).unwrap());
    assert_eq!(issuer.orders()[2..], expected("token revoke", ["ordered", "done"]));
    // What can't be done is an order too, and so is what comes to nothing.
    issuer.handle.create_token(&OPERATOR, "../gw2", TTL).unwrap_err();
    assert!(!issuer.handle.revoke_token(&OPERATOR, &key).unwrap());
    let said = issuer.said(4);
    assert_eq!(said[0], "token create: ordered");
    assert!(said[1].starts_with("token create: failed: \"../gw2\" can't be the name"), "{said:?}");
    assert_eq!(said[3], "token revoke: refused: there is no unused token of this ID");
    let text = fs::read_to_string(issuer.files.issuer().audit.file).unwrap();
    let secret = created.token.reveal();
    assert!(!text.contains(secret.strip_prefix("isthmus-join_").unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_in_the_log_an_order_does_nothing() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let kept = issuer.handle.create_token(&OPERATOR, "gw2", TTL).unwrap();
    let (tokens, _) = issuer.handle.tokens().unwrap();
    let (listed, rotation) = (tokens.list(0), issuer.handle.rotation().unwrap());
    let (state, rules) = (rotation.state(), NodeRules { banned: vec!["gw2".into()], ..NodeRules::default() });
    let disk = issuer.disk();
    disk.leave(0);
    let id = kept.record.id();
    let leaf = order(rotation::Verb::Leaf, None);
    let refusals = [
        issuer.handle.create_token(&OPERATOR, "gw3", TTL).map(drop),
        issuer.handle.revoke_token(&OPERATOR, id).map(drop),
        issuer.handle.rotate(&leaf, false).await.map(drop),
    ];
    for refused in refusals.map(|refused| refused.unwrap_err().to_string()) {
        assert!(refused.contains("nothing was done") && refused.contains("No space left"), "{refused}");
    }
    let (sections, listen) = (config(&issuer.files), Some("127.0.0.1:0".parse().unwrap()));
    let banning = crate::identity::IssuerConfig { listen, nodes: rules, ..issuer.files.issuer() };
    let refused = issuer.handle.apply(Some(sections), Some(banning), None).await.unwrap_err().to_string();
    assert!(refused.contains("nothing was done"), "{refused}");
    assert_eq!((tokens.list(0), rotation.state()), (listed, state));
    assert!(issuer.handle.live().borrow().as_ref().unwrap().rules.banned.is_empty());
    // What changes nothing needs no log.
    assert!(issuer.handle.rotate(&leaf, true).await.unwrap().refusal.is_none());
    disk.leave(u64::MAX);
    assert!(issuer.handle.rotate(&leaf, false).await.unwrap().applied);
    assert_eq!(issuer.said(2), ["rotate leaf: ordered", "rotate leaf: done"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_a_rotation_and_bans_are_written_down_and_plans_are_not() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let ca = issuer.handle.rotation().unwrap().state().active().unwrap().key.clone();
    let taint = |reason| order(rotation::Verb::Taint(ca.short().to_owned(), "sold".into()), reason);
    issuer.handle.rotate(&taint(None), true).await.unwrap();
    assert_eq!(issuer.orders(), []);
    assert!(issuer.handle.rotate(&taint(None), false).await.unwrap().refusal.is_some());
    let said = issuer.said(0);
    assert_eq!(said[0], "rotate taint: ordered");
    assert!(said[1].starts_with("rotate taint: refused: no prepared site CA"), "{said:?}");
    let unknown = order(rotation::Verb::Forget("gw9".into()), None);
    issuer.handle.rotate(&unknown, false).await.unwrap();
    assert_eq!(issuer.orders()[2].0, id("gw9"));

    issuer.rules(NodeRules { banned: vec!["gw2".into()], ..NodeRules::default() }).await;
    issuer.rules(NodeRules::default()).await;
    issuer.rules(NodeRules::default()).await;
    let said: Vec<_> =
        issuer.orders().split_off(4).into_iter().map(|(id, _, _, reason)| (id, reason)).collect();
    let words = ["ban: ordered", "ban: done", "lift the ban: ordered", "lift the ban: done"];
    assert_eq!(said, words.map(|word| (id("gw2"), word.to_owned())));

    // Nobody issues after this, and orders are written down all the same.
    assert!(issuer.handle.rotate(&taint(Some("a thief")), false).await.unwrap().applied);
    let (_, key, who, reason) = issuer.orders()[8].clone();
    assert_eq!((key, who.as_str()), (ca.to_string(), "a test"));
    assert_eq!(reason, "rotate taint: ordered, override: a thief");
    assert!(issuer.handle.rotate(&order(rotation::Verb::Prepare, None), false).await.unwrap().applied);
    assert_eq!(
        issuer.said(10),
        ["rotate intermediate prepare: ordered", "rotate intermediate prepare: done"]
    );
}

/// As when `isthmusctl` is stopped, or its time is up: what was begun is done, in force and written down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_carried_out_though_nobody_waits_for_it() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let rotation = issuer.handle.rotation().unwrap();
    let ca = rotation.state().active().unwrap().key.clone();
    let taint = order(rotation::Verb::Taint(ca.to_string(), "sold".into()), Some("a thief"));
    let handle = issuer.handle.clone();
    let ordering = tokio::spawn(async move { handle.rotate(&taint, false).await });
    while rotation.state().tainted().next().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It is written down, and told before it is in force: that takes a second.
    ordering.abort();
    assert!(ordering.await.unwrap_err().is_cancelled());
    let mut live = issuer.handle.live();
    let refuses = live.wait_for(|standing| {
        let store = standing.as_ref().map(|standing| standing.trust.store().clone());
        store.is_some_and(|store| store.policy().is_tainted(ca.as_str()))
    });
    drop(tokio::time::timeout(LIMIT, refuses).await.expect("in force").unwrap());
    assert!(issuer.handle.current_issuer().is_none(), "it issues no more");
    // Who holds the lock after it finds the log complete.
    issuer.handle.rotate(&order(rotation::Verb::Leaf, None), true).await.ok();
    assert_eq!(issuer.said(0), ["rotate taint: ordered, override: a thief", "rotate taint: done"]);
}

/// A node that issues nothing has a log from its first order on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_writes_its_orders_down_as_well() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    member.joined().await;
    let log = member.config.state_dir.join("audit.jsonl");
    assert!(!log.exists());
    for _ in 0..2 {
        member.handle.rotate(&order(rotation::Verb::Forget("gw9".into()), None), false).await.unwrap();
    }
    assert_eq!(orders(&log).len(), 4);
    assert_eq!(orders(&log)[0].0, id("gw9"));
    assert_eq!(orders(&log)[3].3, "rotate forget: refused: no node \"gw9\" is known");
}
