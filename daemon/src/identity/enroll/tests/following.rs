//! A site CA gives way to another: who holds something of the old one follows within the span that the issuer tells.

use isthmus_pki::{KeyHash, Profile, Serial, bundle::to_pem};

use super::*;
use crate::identity::rotation::{Outcome, Verb};

impl Issuer {
    async fn rotate(&self, verb: Verb) -> Outcome {
        self.handle.rotate(&order(verb, None), false).await.unwrap()
    }

    /// The next CA: its key made here, its certificate signed by the root.
    async fn prepare(&self) -> KeyHash {
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
