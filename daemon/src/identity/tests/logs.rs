//! The log, which holds no secrets, and the audit log, without which nothing is issued.

use super::*;

// spiffe/spire#6732, rust-spiffe 0.17: every test with a `Node` ends with this check; this one sees to it that there are lines.
#[tokio::test]
async fn no_log_line_holds_a_secret() {
    let selector = Entry { selectors: vec![Selector::Gid(log_watch::SELECTOR)], ..hour("/b") };
    let node = Node::new(vec![hour("/a"), selector.clone()]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let issuer = node.handle.current_issuer().unwrap();
    let identity = identity("/a");
    let requester = Requester::Workload { uid: own_uid(), pid: 1 };
    issuer.mint(&identity, &["db".into()], &requester, SystemTime::now()).unwrap();
    issuer
        .certify(b"-----BEGIN CERTIFICATE REQUEST-----", &identity, &requester, SystemTime::now())
        .err()
        .unwrap();
    node.apply(vec![selector]).await;
    stream.message().await.unwrap_err();
    node.shutdown.cancel();
    node.handle.stopped().await;
    assert!(log_watch::lines() > 5, "the watcher hears nothing");
    log_watch::check();
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_told_of_and_stops_streams_that_have_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let issuer = node.handle.current_issuer().unwrap();
    let disk = audit::tests::Faulty::under(issuer.audit());
    disk.leave(0);
    let status = node.fetch().await.unwrap().message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("audit log"), "{status}");
    let (condition, summary) = node.handle.summary();
    assert_ne!(condition, Condition::Well);
    assert!(summary.contains("No space left") && summary.contains("nothing is issued"), "{summary}");
    disk.leave(u64::MAX);
    node.fetch().await.unwrap().message().await.unwrap().unwrap();
    assert_eq!(node.handle.summary().0, Condition::Well);
}
