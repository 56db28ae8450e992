//! JWT keys on their way: from an issuer to the members of its site, and from site to site.

use std::time::SystemTime;

use isthmus_pki::jwt;
use isthmus_proto::issuance::{IssueX509Request, RenewRequest, SyncRequest};
use tonic::Code;

use super::*;
use crate::identity::Requester;

const OTHER: &str = "other";

impl Issuer {
    /// A token for "db" of a workload, signed here.
    fn token_of(&self, path: &str) -> String {
        let issuer = self.handle.current_issuer().unwrap();
        let requester = Requester::Workload { uid: 0, pid: 1 };
        let minted = issuer.mint(&workload(path), &["db".into()], &requester, SystemTime::now());
        minted.unwrap().token.to_string()
    }

    async fn stop(&self) {
        self.shutdown.cancel();
        self.handle.stopped().await;
    }

    fn ca(&self) -> String {
        self.handle.rotation().unwrap().state().active().unwrap().key.to_string()
    }
}

/// What `ValidateJWTSVID` does with what the node believes now.
fn validate(handle: &Handle, token: &str) -> Result<String, String> {
    let standing = handle.live().borrow().clone().ok_or("no identity")?;
    let validated = jwt::validate(token, "db", standing.trust.store(), SystemTime::now().into());
    validated.map(|valid| valid.id.to_string()).map_err(|error| error.to_string())
}

/// Until the token is believed, or is refused for this.
async fn until(handle: &Handle, token: &str, wanted: Result<(), &str>) {
    let fits = || match (validate(handle, token), wanted) {
        (Ok(_), Ok(())) => true,
        (Err(error), Err(why)) => error.contains(why),
        _ => false,
    };
    let mut live = handle.live();
    let changed = async {
        while !fits() {
            live.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(LIMIT, changed).await;
    assert!(waited.is_ok(), "wanted {wanted:?}, is {:?}", validate(handle, token));
}

fn sequence(handle: &Handle) -> u64 {
    handle.live().borrow().as_ref().unwrap().trust.own().sequence().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_validates_tokens_of_both_sites_also_after_a_restart_without_any_issuer() {
    let far = Issuer::start(NodeRules::default()).await;
    // The near site's issuer asks the far one; its members ask nobody but their own.
    let near = far.beside(OTHER, vec![format!("{}", far.address), "127.0.0.1:1".into()]).await;
    let member = near.member_of(OTHER, "gw2", Some(&near.token("gw2"))).await;
    member.joined().await;
    let (ours, theirs) = (near.token_of("/ns/pay/api"), far.token_of("/ns/shop/api"));
    until(&member.handle, &ours, Ok(())).await;
    until(&member.handle, &theirs, Ok(())).await;
    assert_eq!(validate(&member.handle, &theirs).unwrap(), "spiffe://fabric.example/ns/shop/api");
    // Nobody has told the far site of the near one's keys.
    assert!(validate(&far.handle, &ours).unwrap_err().contains("no JWT key"));
    let sites: Vec<_> = member
        .handle
        .jwt_keys()
        .iter()
        .map(|(key, own)| (key.endorser().unwrap().site().unwrap().to_owned(), *own))
        .collect();
    assert_eq!(sites, [(NODE.0.to_owned(), false), (OTHER.to_owned(), false)]);

    // A peer that is dead is shown, and harms nothing.
    let peers = near.handle.peers();
    let [dead, alive] = &peers[..] else { panic!("{peers:?}") };
    assert!(
        dead.failures > 0 && dead.last_error.contains("127.0.0.1:1") && dead.heard_at.is_none(),
        "{dead:?}"
    );
    assert!(alive.failures == 0 && alive.endorsements == 1 && alive.heard_at.is_some(), "{alive:?}");
    assert_eq!(alive.id.as_ref().unwrap().to_string(), "spiffe://fabric.example/site/aws-use1/node/gw1");

    let before = sequence(&member.handle);
    far.stop().await;
    near.stop().await;
    member.shutdown.cancel();
    member.handle.stopped().await;
    let path = state::keyring_path(&member.config.state_dir);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o600, 0o600);
    let (again, shutdown) = start_node(&member.config, OTHER, "gw2").await;
    assert!(validate(&again, &ours).is_ok() && validate(&again, &theirs).is_ok());
    assert_eq!(sequence(&again), before);
    shutdown.cancel();
    again.stopped().await;

    // A file of somebody else's making is no reason not to start, and nobody is believed by it.
    fs::write(&path, "{\"keys\":[]}").unwrap();
    let (again, _shutdown) = start_node(&member.config, OTHER, "gw2").await;
    assert!(validate(&again, &ours).unwrap_err().contains("no JWT key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tainted_ca_takes_its_keys_with_it_at_every_site_at_once() {
    let far = Issuer::start(NodeRules::default()).await;
    let near = far.beside(OTHER, vec![far.address.to_string()]).await;
    let member = near.member_of(OTHER, "gw2", Some(&near.token("gw2"))).await;
    member.joined().await;
    let (ours, theirs) = (near.token_of("/ns/pay/api"), far.token_of("/ns/shop/api"));
    until(&member.handle, &theirs, Ok(())).await;
    let numbered = sequence(&member.handle);
    let taint = rotation::Verb::Taint(far.ca(), "stolen".into());
    let begun = std::time::Instant::now();
    assert!(far.handle.rotate(&order(taint, Some("thief")), false).await.unwrap().applied);
    for handle in [&near.handle, &member.handle] {
        until(handle, &theirs, Err("no JWT key")).await;
        assert!(validate(handle, &ours).is_ok(), "the site's own keys stay");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "seconds, not minutes");
    assert!(sequence(&member.handle) > numbered, "another content has a higher number");
    assert_eq!(member.handle.jwt_keys().len(), 1);
    // It has left the file too, and the issuer tells it to nobody any more.
    let file = fs::read(state::keyring_path(&member.config.state_dir)).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file["endorsements"].as_array().unwrap().len(), 1);
    assert_eq!(near.handle.fleet().state().borrow().ours.state.jwt_endorsements.len(), 1);
}

/// The site goes on with its key when the CA changes. Then the CA of before is found to be stolen: whoever has it has the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_outlived_a_change_of_the_ca_falls_at_every_site_with_the_old_one() {
    let far = Issuer::start(NodeRules::default()).await;
    let near = far.beside(OTHER, vec![far.address.to_string()]).await;
    let member = near.member_of(OTHER, "gw2", Some(&near.token("gw2"))).await;
    member.joined().await;
    let (theirs, old) = (far.token_of("/ns/shop/api"), far.ca());
    until(&member.handle, &theirs, Ok(())).await;
    let new = far.prepare().await;
    assert!(far.rotate(rotation::Verb::Activate).await.applied);
    endorsed_by(&member.handle, new.as_str()).await;
    assert!(validate(&member.handle, &theirs).is_ok(), "the change is nothing to a token");
    let taint = rotation::Verb::Taint(old, "stolen".into());
    assert!(far.handle.rotate(&order(taint, Some("thief")), false).await.unwrap().applied);
    for handle in [&far.handle, &near.handle, &member.handle] {
        until(handle, &theirs, Err("no JWT key")).await;
    }
    until(&member.handle, &far.token_of("/ns/shop/api"), Ok(())).await;
}

/// Until a key is believed that this CA has endorsed.
async fn endorsed_by(handle: &Handle, ca: &str) {
    let of = |authority: &jwt::Authority| authority.endorser().is_some_and(|facts| facts.key_sha256 == ca);
    let mut live = handle.live();
    let heard = live.wait_for(|standing| {
        standing.as_ref().is_some_and(|standing| standing.trust.own().jwt_authorities().iter().any(of))
    });
    drop(tokio::time::timeout(LIMIT, heard).await.expect("hears in time").unwrap());
}

/// Keys and taints prove themselves; a charter, a revocation, a place in the fleet are the own site's affair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_site_may_ask_for_keys_and_nothing_else() {
    let far = Issuer::start(NodeRules::default()).await;
    let near = far.beside(OTHER, Vec::new()).await;
    let standing = near.handle.live().borrow().clone().unwrap();
    let (live, address) = (near.handle.live(), far.address.to_string());
    let (mut client, id) =
        client::connect_peer(&address, &live, &standing, Duration::from_secs(50)).await.unwrap();
    assert_eq!(id, far.handle.live().borrow().as_ref().unwrap().own.as_ref().map(|own| own.id.clone()));
    let refused = client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap_err();
    assert!(
        refused.code() == Code::PermissionDenied && refused.message().contains("no node of site"),
        "{refused}"
    );
    let refused = client.issue_x509(IssueX509Request::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);

    let published = TrustState {
        charter: vec![1],
        crls: vec![vec![2]],
        ..far.handle.fleet().state().borrow().ours.state.clone()
    };
    assert_eq!(published.jwt_endorsements.len(), 1);
    far.handle.fleet().publish(published.clone());
    let report = Some(standing.report().into());
    let answer = client.sync(SyncRequest { report, known_version: Vec::new() }).await.unwrap().into_inner();
    let told = TrustState::from(answer);
    assert_eq!(told, TrustState { charter: Vec::new(), crls: Vec::new(), ..published });
    let nodes = far.handle.fleet().nodes();
    assert!(nodes.keys().all(|id| id.node().is_some_and(|(site, _)| site == NODE.0)), "{nodes:?}");
}

/// A CA can endorse as often as it likes; a taint must not wait behind that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_told_once_a_second_and_a_taint_at_once() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    member.joined().await;
    let mut client = member.connect(&issuer, As::Node).await;
    let fleet = issuer.handle.fleet();
    let known_version = client.sync(SyncRequest::default()).await.unwrap().into_inner().version;
    let told = fleet.state().borrow().ours.state.clone();
    let ask = async |state: TrustState| {
        let (mut client, known_version) = (client.clone(), known_version.clone());
        let begun = std::time::Instant::now();
        let call = async move { client.sync(SyncRequest { report: None, known_version }).await };
        let call = tokio::spawn(call);
        tokio::time::sleep(Duration::from_millis(100)).await;
        fleet.publish(state.clone());
        assert_eq!(TrustState::from(call.await.unwrap().unwrap().into_inner()), state);
        fleet.publish(told.clone());
        begun.elapsed()
    };
    let keys = |number| TrustState { jwt_endorsements: vec![vec![number]], ..told.clone() };
    let waited = ask(keys(1)).await;
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    let waited = ask(TrustState { taints: vec![b"jws".to_vec()], ..keys(2) }).await;
    assert!(waited < Duration::from_millis(900), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_site_gets_no_thousand_answers() {
    let far = Issuer::start(NodeRules::default()).await;
    let near = far.beside(OTHER, Vec::new()).await;
    let standing = near.handle.live().borrow().clone().unwrap();
    let (live, address) = (near.handle.live(), far.address.to_string());
    let (mut foreign, _) =
        client::connect_peer(&address, &live, &standing, Duration::from_secs(50)).await.unwrap();
    let ask = |number: u32| SyncRequest { report: None, known_version: number.to_be_bytes().to_vec() };
    let begun = std::time::Instant::now();
    let (mut answered, mut refused) = (0, None);
    for number in 0..1000 {
        match foreign.sync(ask(number)).await {
            Ok(_) => answered += 1,
            Err(status) => refused = refused.or(Some(status.code())),
        }
    }
    let most = 111 + 10 * begun.elapsed().as_secs();
    assert!((100..=most).contains(&answered), "{answered} in {:?}", begun.elapsed());
    assert_eq!(refused, Some(Code::ResourceExhausted));
    // Its own nodes are not kept from theirs.
    let member = far.member("gw2", Some(&far.token("gw2"))).await;
    member.joined().await;
    let mut own = member.connect(&far, As::Node).await;
    for number in 0..200 {
        own.sync(ask(number)).await.unwrap();
    }
}

/// Two that ask each other, and a third that asks one of them: everybody hears of all, and it comes to rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuers_tell_of_what_they_heard() {
    let first = Issuer::start(NodeRules::default()).await;
    let second = first.beside("second", vec![first.address.to_string()]).await;
    let third = first.beside("third", vec![second.address.to_string()]).await;
    // Only now it is known where the second listens.
    let config = Config { peers: vec![second.address.to_string()], ..first.files.config() };
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let issuer = crate::identity::IssuerConfig { listen, ..first.files.issuer() };
    first.handle.apply(Some(config), Some(issuer), None).await.unwrap();
    let token = first.token_of("/ns/shop/api");
    for issuer in [&second, &third] {
        until(&issuer.handle, &token, Ok(())).await;
    }
    until(&first.handle, &second.token_of("/ns/pay/api"), Ok(())).await;
    let before: Vec<u64> = [&first, &second, &third].map(|issuer| sequence(&issuer.handle)).into();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let after: Vec<u64> = [&first, &second, &third].map(|issuer| sequence(&issuer.handle)).into();
    assert_eq!(before, after, "at rest");
    // Whoever is no peer any more is not asked.
    first
        .handle
        .apply(
            Some(first.files.config()),
            Some(crate::identity::IssuerConfig { listen, ..first.files.issuer() }),
            None,
        )
        .await
        .unwrap();
    let mut gone = false;
    for _ in 0..100 {
        gone |= first.handle.peers().is_empty();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(gone);
}
