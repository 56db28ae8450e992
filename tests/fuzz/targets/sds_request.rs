//! What an Envoy sends for secrets: refused, or answered by the rules of versions and nonces.
#![no_main]

use isthmus_proto::sds::envoy::service::discovery::v3::DiscoveryRequest;
use isthmusd::identity::sds::{Names, Offer, Session};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use prost_types::Any;

fuzz_target!(|data: &[u8]| {
    let offer = Offer {
        identities: vec!["spiffe://a/one".into()],
        bundles: vec!["spiffe://a".into(), "spiffe://b".into()],
    };
    let (mut session, mut version, mut nonce) = (Session::default(), 0, 0);
    // Several requests, each with its length before it.
    let mut rest = data;
    while let Some((&length, after)) = rest.split_first() {
        let (one, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let Ok(request) = DiscoveryRequest::decode(one) else { continue };
        let Ok(_) = session.request(request) else { return };
        assert!(session.node().len() <= 2560);
        let Some(Ok(items)) = session.names().map(|names| Names::default().plan(names, &offer)) else {
            return;
        };
        let resources = items.iter().map(|item| Any { value: item.name.clone().into(), ..Any::default() });
        nonce += 1;
        if let Some(answer) = session.answer(resources.collect(), nonce) {
            let now: u64 = answer.version_info.parse().expect("a number");
            assert!(now > version || now == u64::MAX);
            version = now;
        }
    }
});
