//! The last good bundle: across a restart, beyond its roots, until the client is let go.

use super::*;

#[tokio::test]
async fn the_last_good_bundle_outlives_a_restart_and_other_settings_begin_anew() {
    let (web, other) = (WebPki::new(), partner("other"));
    let document = other.document(3);
    let stub = Stub::new(web.tls(), move |_| ok(document.clone())).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    reader.client.poll().await.unwrap();
    let url = stub.url("/");
    drop(stub);
    let again = |url: Uri| {
        let bundles = Bundles::default();
        (open(reader.dir.path(), &bundles, &other.domain(), url, web.profile()), bundles)
    };
    let (mut client, bundles) = again(url);
    assert!(client.poll().await.unwrap_err().to_string().contains("cannot connect"));
    assert_eq!(bundles.get(&other.domain()).unwrap().sequence(), Some(3));
    let (mut client, bundles) = again("https://127.0.0.1:1/".parse().unwrap());
    assert!(client.poll().await.is_err() && bundles.get(&other.domain()).is_none());
    // What no configured domain stands for goes.
    store::prune(reader.dir.path(), &[]);
    assert_eq!(fs::read_dir(reader.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_bundle_of_expired_roots_is_not_trusted_and_the_operators_file_leads_back() {
    // spiffe/spire#1305, #5585: an agent that was away for long trusted its old bundle for ever.
    let (dead, fresh) = (aged("other", time::Duration::days(3)), partner("other"));
    let files = tempfile::tempdir().unwrap();
    let document = fresh.document(9);
    let stub = Stub::new(fresh.tls("/bundles"), move |_| ok(document.clone())).await;
    for (bootstrap, comes_back) in [(&dead, false), (&fresh, true)] {
        let profile = spiffe(fresh.id("/bundles"), files.path(), &bootstrap.bundle());
        let mut reader = Reader::new(&fresh.domain(), stub.url("/"), profile.clone());
        store::save(reader.client.file(), dead.document(1).as_bytes()).unwrap();
        reader.client = open(reader.dir.path(), &reader.bundles, &fresh.domain(), stub.url("/"), profile);
        assert_eq!(reader.client.poll().await.is_ok(), comes_back);
        assert_eq!(reader.sequence(), comes_back.then_some(9));
    }
}

#[tokio::test]
async fn a_running_client_follows_the_hint_and_stops_when_it_is_let_go() {
    let (web, other) = (WebPki::new(), partner("other"));
    let hint = other.bundle().with_sequence(1).with_refresh_hint(Duration::ZERO).to_jwks();
    let stub = Stub::new(web.tls(), move |_| ok(hint.clone())).await;
    let (dir, bundles, stop) = (tempfile::tempdir().unwrap(), Bundles::default(), CancellationToken::new());
    let client =
        open(dir.path(), &bundles, &other.domain(), stub.url("/"), web.profile()).until(stop.clone());
    let task = tokio::spawn(client.run());
    while stub.asked() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(bundles.get(&other.domain()).is_some());
    stop.cancel();
    task.await.unwrap();
    bundles.set(&other.domain(), None, &stop);
    assert!(bundles.get(&other.domain()).is_some(), "a stopped client changes nothing");
}
