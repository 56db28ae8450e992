//! Nodes report, and hear what is trusted.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_report_and_hear_what_is_trusted_as_it_changes() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let own = member.joined().await;
    let mut heard = member.handle.heard();
    let first = tokio::time::timeout(LIMIT, heard.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
    let first = first.unwrap();
    assert_eq!(
        *first,
        TrustState { jwt_endorsements: first.jwt_endorsements.clone(), ..TrustState::default() }
    );
    let seen = &issuer.handle.fleet().nodes()[&own.id];
    assert_eq!((&seen.report.svid_serial, seen.report.svid_not_after), (&own.serial, own.life.not_after));

    let taint = TrustState { taints: vec![b"jws".to_vec()], ..TrustState::default() };
    issuer.handle.fleet().publish(taint.clone());
    let told = |state: &Option<Arc<TrustState>>| state.as_deref() == Some(&taint);
    tokio::time::timeout(Duration::from_secs(5), heard.wait_for(told))
        .await
        .expect("within seconds")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_waited_for_and_hears_of_a_taint_within_seconds() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let own = member.joined().await;
    let rotation = issuer.handle.rotation().unwrap();
    let ca = rotation.state().active().unwrap().key.clone();
    let known = async {
        loop {
            let report = rotation.fleet().nodes().find(|(name, _)| *name == "gw2").map(|(_, r)| r.clone());
            if let Some(report) = report.filter(|report| report.svid_issuer.is_some()) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let report = tokio::time::timeout(LIMIT, known).await.expect("a report in time");
    assert_eq!((report.svid_issuer.as_ref(), &report.svid_serial), (Some(&ca), &own.serial));
    // Its certificate is of the CA in use: that can't be revoked under it.
    let taint = rotation::Verb::Taint(ca.as_str().to_owned(), "stolen".into());
    let lonely = issuer.handle.rotate(&order(taint.clone(), None), false).await.unwrap();
    assert!(!lonely.applied && lonely.refusal.is_some());

    let mut live = member.handle.live();
    let begun = std::time::Instant::now();
    assert!(issuer.handle.rotate(&order(taint, Some("thief")), false).await.unwrap().applied);
    let refuses = live.wait_for(|standing| {
        let store = standing.as_ref().map(|standing| standing.trust.store().clone());
        store.is_some_and(|store| store.policy().tainted().any(|key| key == ca.as_str()))
    });
    drop(tokio::time::timeout(LIMIT, refuses).await.expect("hears in time").unwrap());
    assert!(begun.elapsed() < Duration::from_secs(10), "seconds, not minutes");
    assert_eq!(member.handle.rotation().unwrap().taints(), rotation.taints());
    // And whoever shows a certificate of that CA is refused by both.
    for handle in [&issuer.handle, &member.handle] {
        let standing = handle.live().borrow().clone().unwrap();
        assert!(own.believed(standing.trust.store(), std::time::SystemTime::now()).is_err());
    }
    issuer.shutdown.cancel();
    member.shutdown.cancel();
}
