//! A site CA gives way to another: who holds something of the old one follows within the span that the issuer tells.

use isthmus_pki::{KeyHash, Profile, Serial, bundle::to_pem};

use super::*;
use crate::identity::rotation::{Outcome, Verb};

impl Issuer {
    pub(super) async fn rotate(&self, verb: Verb) -> Outcome {
        self.handle.rotate(&order(verb, None), false).await.unwrap()
    }

    /// The next CA: its key made here, its certificate signed by the root.
    pub(super) async fn prepare(&self) -> KeyHash {
        let made = self.rotate(Verb::Prepare).await.request.unwrap();
        let request = csr::parse(made.as_bytes()).unwrap();
        let profile = Profile::SiteCa { site: NODE.0.into(), lifetime: time::Duration::days(90) };
        let (serial, now) = (Serial::from_random(rand::random()), time::OffsetDateTime::now_utc());
        let issued = self.files.root.issue(&profile, &request.public_key, serial, now).unwrap();
        assert!(self.rotate(Verb::Install(to_pem([&issued.certificate]).into_bytes())).await.applied);
        KeyHash::of_spki(request.public_key.spki())
    }

    /// Until the node has said that its SVID is of this CA.
    async fn hears(&self, node: &str, ca: &KeyHash) {
        let rotation = self.handle.rotation().unwrap();
        let known = async {
            let said = |(name, report): (&str, &isthmus_pki::rotation::Report)| {
                name == node && report.svid_issuer.as_ref() == Some(ca)
            };
            while !rotation.fleet().nodes().any(said) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, known).await.expect("a report in time");
    }
}

/// At a quarter of its life, hours from now, each would have followed anyway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_follow_within_seconds_and_the_next_step_sees_who_does() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let one = issuer.handle.rotation().unwrap().state().active().unwrap().key.clone();
    let awake = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let asleep = issuer.member("gw3", Some(&issuer.token("gw3"))).await;
    for (member, name) in [(&awake, "gw2"), (&asleep, "gw3")] {
        assert_eq!(member.joined().await.ca_key().as_deref(), Some(one.as_str()));
        issuer.hears(name, &one).await;
    }
    asleep.shutdown.cancel();
    asleep.handle.stopped().await;
    let before = awake.joined().await;

    let two = issuer.prepare().await;
    let begun = std::time::Instant::now();
    assert!(issuer.rotate(Verb::Activate).await.applied);
    issuer.hears("gw2", &two).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let after = awake.joined().await;
    assert_eq!((after.ca_key().as_deref(), &after.id), (Some(two.as_str()), &before.id));
    issuer.hears("gw1", &two).await;
    let refusal = issuer.handle.rotate(&order(Verb::Retire, None), true).await.unwrap().refusal.unwrap();
    let said = refusal.to_string();
    assert!(said.contains("node gw3 lags: its SVID is of site CA"), "{said}");
    assert!(!said.contains("gw2") && !said.contains("gw1"), "{said}");
    // Told again and again, and renewed once: what is of the new CA is not meant.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(awake.joined().await.serial, after.serial);

    // The one that slept hears of it when it comes back.
    let (again, _shutdown) = start_member(&asleep.config, "gw3").await;
    issuer.hears("gw3", &two).await;
    assert_eq!(again.live().borrow().clone().unwrap().own.unwrap().ca_key().as_deref(), Some(two.as_str()));
}

/// Whoever answers at an issuer's address can say so: of the CA that issues now, and in a hurry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_that_never_ends_makes_a_node_renew_a_few_times_and_no_more() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let mut serials = std::collections::BTreeSet::from([member.joined().await.serial.clone()]);
    let remote = member.handle.loaded().remote.clone().unwrap();
    let ca = issuer.handle.rotation().unwrap().state().active().unwrap().key.clone();
    let other = KeyHash::of_spki(b"of no CA");
    let told = issuer.handle.fleet().state().borrow().ours.state.clone();
    let until = std::time::Instant::now() + Duration::from_secs(5);
    let lists = [vec![ca.clone()], vec![other.clone(), ca.clone()], vec![ca, other]];
    for cas in lists.iter().cycle() {
        let renew = Some(isthmus_pki::renewal::RenewWithin { cas: cas.clone(), seconds: 0 });
        issuer.handle.fleet().publish(TrustState { renew, ..told.clone() });
        tokio::time::sleep(Duration::from_millis(100)).await;
        serials.insert(member.joined().await.serial.clone());
        if std::time::Instant::now() > until {
            break;
        }
    }
    assert!((2..=4).contains(&serials.len()), "the first, and three more at most: {}", serials.len());
    assert!((1..=3).contains(&remote.reissue().generation), "{:?}", remote.reissue());
}

/// The workload's SVID as a caller gets it: the CA's key, or why there is none.
async fn given(remote: &Arc<Remote>) -> Result<String, String> {
    let (remote, identity) = (remote.clone(), workload("/ns/pay/api"));
    let issue = move || remote.issue(&identity, std::time::SystemTime::now());
    let issued = tokio::task::spawn_blocking(issue).await.unwrap().map_err(|error| error.to_string())?;
    let ca = isthmus_pki::Facts::parse(&issued.chain[1]).unwrap().key_sha256;
    assert_eq!(ca, *issued.ca);
    Ok(ca)
}

async fn until_reserved(remote: &Remote, ca: &KeyHash) {
    let reserved = async {
        while remote.ca_in_reserve(&workload("/ns/pay/api")).as_deref() != Some(ca.as_str()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT * 2, reserved).await.expect("fetched in time, though nobody asks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_reserve_follows_and_nothing_of_a_tainted_ca_leaves_it() {
    let paths = vec![crate::identity::Pattern::parse("/ns/pay/*").unwrap()];
    let issuer = Issuer::start(NodeRules { paths, ..NodeRules::default() }).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let one = member.joined().await.ca_key().unwrap();
    let remote = member.handle.loaded().remote.clone().unwrap();
    assert_eq!(given(&remote).await.unwrap(), one);

    // Nobody asks for it, and within seconds the one in reserve is of the new CA: there when the issuer is not.
    let two = issuer.prepare().await;
    assert!(issuer.rotate(Verb::Activate).await.applied);
    until_reserved(&remote, &two).await;
    issuer.hears("gw2", &two).await;
    assert_eq!(given(&remote).await.unwrap(), two.as_str());

    // The thief has that one too. The member's own SVID is of the same CA, so it can ask nobody; the one in reserve stays there.
    let three = issuer.prepare().await;
    assert!(issuer.rotate(Verb::Taint(two.to_string(), "stolen".into())).await.applied);
    let mut live = member.handle.live();
    let refuses = live.wait_for(|standing| {
        standing.as_ref().is_some_and(|standing| standing.trust.store().policy().is_tainted(two.as_str()))
    });
    drop(tokio::time::timeout(LIMIT, refuses).await.expect("hears in time").unwrap());
    let refused = given(&remote).await.unwrap_err();
    assert!(refused.contains("no issuer of this site gave a certificate"), "{refused}");
    assert_eq!(remote.ca_in_reserve(&workload("/ns/pay/api")).as_deref(), Some(two.as_str()));

    // It joins again, and what was in reserve is fetched anew, though nobody asked for it since.
    let path = member.config.join_token_file.as_ref().unwrap();
    fs::write(path, issuer.token("gw2").reveal().as_str()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    until_reserved(&remote, &three).await;
    assert_eq!(given(&remote).await.unwrap(), three.as_str());
}
