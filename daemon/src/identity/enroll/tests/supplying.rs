//! SVIDs for the workloads of a node without a site CA.

use super::*;

/// A node without a site CA: keys are its own, certificates its issuer's, and what it has in reserve outlives the issuer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_supplies_its_workloads_and_goes_on_when_its_issuer_is_dead() {
    let paths = vec![crate::identity::Pattern::parse("/ns/pay/*").unwrap()];
    let issuer = Issuer::start(NodeRules { paths, ..NodeRules::default() }).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    member.joined().await;
    let remote = Remote::new(member.handle.live(), domain());
    let issue = async |path: &str, later: u64| {
        let (remote, identity) = (remote.clone(), workload(path));
        let at = std::time::SystemTime::now() + Duration::from_secs(later);
        let issued = tokio::task::spawn_blocking(move || remote.issue(&identity, at)).await.unwrap();
        issued.map_err(|error| error.to_string()).map(|svid| (svid, time::OffsetDateTime::from(at)))
    };
    let (first, now) = issue("/ns/pay/api", 0).await.unwrap();
    assert_eq!(first.id.path(), "/ns/pay/api");
    assert!(first.renew_at > now && first.renew_at < first.not_after);
    let (second, _) = issue("/ns/pay/api", 0).await.unwrap();
    assert_eq!((&first.chain, first.key.public()), (&second.chain, second.key.public()), "from the reserve");
    let refused = issue("/ns/other", 0).await.map(drop).unwrap_err();
    assert!(refused.contains("node_paths"), "{refused}");

    let minted = {
        let (remote, identity) = (remote.clone(), workload("/ns/pay/api"));
        let mint = move || remote.mint(&identity, &["orders".into()], std::time::SystemTime::now());
        tokio::task::spawn_blocking(mint).await.unwrap().map_err(|error| error.to_string())
    };
    let minted = minted.unwrap();
    assert_eq!((minted.id.path(), minted.token.split('.').count()), ("/ns/pay/api", 3));
    assert!(minted.expires_at > minted.issued_at);

    issuer.shutdown.cancel();
    issuer.handle.stopped().await;
    let refused = issue("/ns/pay/other", 0).await.map(drop).unwrap_err();
    assert!(refused.contains("no issuer of this site gave a certificate"), "{refused}");
    // It is time to renew, and nobody answers: the old one serves, and is not asked about without end.
    let (old, now) = issue("/ns/pay/api", 40 * 60).await.unwrap();
    assert_eq!(old.chain, first.chain);
    assert!(old.renew_at > now && old.renew_at <= old.not_after);
    let refused = issue("/ns/pay/api", 61 * 60).await.map(drop).unwrap_err();
    assert!(refused.contains("no issuer"), "{refused}");
}
