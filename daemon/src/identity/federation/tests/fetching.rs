//! What a client takes for an answer, and what it refuses.

use super::*;

#[tokio::test]
async fn a_bundle_of_another_domain_is_refused() {
    let (web, other, third) = (WebPki::new(), partner("other"), partner("third"));
    let document = third.document(1);
    let stub = Stub::new(web.tls(), move |_| ok(document.clone())).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    assert!(reader.refused().await.contains("made for"));
    assert!(reader.bundles.0.borrow().is_empty() && fs::read_dir(reader.dir.path()).unwrap().count() == 0);
}

#[tokio::test]
async fn redirects_are_followed_and_not_remembered() {
    let (web, other) = (WebPki::new(), partner("other"));
    let document = other.document(1);
    let target = Stub::new(web.tls(), move |_| ok(document.clone())).await;
    let to = target.url("/there").to_string();
    let first = Stub::new(web.tls(), move |path| match path {
        "/" => (302, vec![("location", "/next".into())], String::new()),
        "/next" => (307, vec![("location", to.clone())], String::new()),
        "/loop" => (302, vec![("location", "/loop".into())], String::new()),
        "/plain" => (302, vec![("location", "http://127.0.0.1:1/".into())], String::new()),
        "/user" => (302, vec![("location", "https://u:p@127.0.0.1:1/".into())], String::new()),
        "/nowhere" => (302, vec![], String::new()),
        _ => (404, vec![], String::new()),
    })
    .await;
    let mut reader = Reader::new(&other.domain(), first.url("/"), web.profile());
    for round in 1..=2 {
        reader.client.poll().await.unwrap();
        assert_eq!((first.asked(), target.asked()), (2 * round, round));
    }
    for (path, why) in [
        ("/loop", "redirects"),
        ("/plain", "https"),
        ("/user", "user information"),
        ("/nowhere", "can't be read"),
        ("/gone", "404"),
    ] {
        let mut reader = Reader::new(&other.domain(), first.url(path), web.profile());
        let refused = reader.refused().await;
        assert!(refused.contains(why), "{path}: {refused}");
    }
}

#[tokio::test]
async fn a_redirect_must_lead_to_the_same_spiffe_id() {
    let (other, files) = (partner("other"), tempfile::tempdir().unwrap());
    let document = other.document(1);
    let (same, also) = (document.clone(), document);
    let right = Stub::new(other.tls("/bundles"), move |_| ok(same.clone())).await;
    let wrong = Stub::new(other.tls("/someone"), move |_| ok(also.clone())).await;
    let (to_right, to_wrong) = (right.url("/").to_string(), wrong.url("/").to_string());
    let first = Stub::new(other.tls("/bundles"), move |path| {
        let to = if path == "/right" { &to_right } else { &to_wrong };
        (301, vec![("location", to.clone())], String::new())
    })
    .await;
    let profile = spiffe(other.id("/bundles"), files.path(), &other.bundle());
    let mut reader = Reader::new(&other.domain(), first.url("/right"), profile.clone());
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    let mut reader = Reader::new(&other.domain(), first.url("/wrong"), profile);
    assert!(reader.refused().await.contains("not allowed"));
}

#[tokio::test]
async fn slow_huge_and_broken_answers_are_refused_and_the_last_good_one_stays() {
    let (web, other) = (WebPki::new(), partner("other"));
    let answers = Arc::new(Mutex::new(ok(other.document(5))));
    let shared = answers.clone();
    let stub = Stub::new(web.tls(), move |_| shared.lock().unwrap().clone()).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    reader.client.poll().await.unwrap();
    let huge = " ".repeat(bundle::MAX_DOCUMENT_LEN) + &other.document(6);
    for (reply, why) in [
        (ok(huge), "more than"),
        (ok("{"), "can't be read"),
        (ok(""), "can't be read"),
        (ok(r#"{"keys":[],"keys":[]}"#), "twice"),
        ((500, vec![], String::new()), "500"),
        ((204, vec![], String::new()), "204"),
        (ok(other.document(4)), "went back from 5 to 4"),
    ] {
        *answers.lock().unwrap() = reply;
        let refused = reader.refused().await;
        assert!(refused.contains(why), "{why}: {refused}");
        assert_eq!(reader.sequence(), Some(5));
    }
    let slow = Stub::slow(web.tls(), Duration::from_secs(60), |_| ok("")).await;
    let (dir, bundles) = (tempfile::tempdir().unwrap(), Bundles::default());
    let client = open(dir.path(), &bundles, &other.domain(), slow.url("/"), web.profile());
    let mut client = client.hurried(Duration::ZERO, Duration::from_millis(300));
    assert!(client.poll().await.unwrap_err().to_string().contains("no complete answer"));
}

#[tokio::test]
async fn an_empty_set_makes_the_domain_untrusted() {
    // spiffe/go-spiffe#288: it must get through like any other.
    let (web, other) = (WebPki::new(), partner("other"));
    let answers = Arc::new(Mutex::new(ok(other.document(1))));
    let shared = answers.clone();
    let stub = Stub::new(web.tls(), move |_| shared.lock().unwrap().clone()).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    reader.client.poll().await.unwrap();
    *answers.lock().unwrap() = ok(r#"{"keys":[],"spiffe_sequence":2}"#);
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    assert!(reader.bundles.get(&other.domain()).unwrap().is_empty());
}
