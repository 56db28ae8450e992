//! Two Envoys that know nothing but our socket: they get certificates and trust by SDS, and no request fails while leaf, intermediate and
//! root are replaced under them.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "envoy/config.rs"]
mod config;
#[path = "envoy/process.rs"]
mod process;
#[path = "envoy/rig.rs"]
mod rig;

use std::time::Duration;

use isthmus_lab::{
    issuer::{API, OTHER},
    peers::{ENVOY, installed},
    sandbox,
};

use process::Traffic;
use rig::Rig;

const LIMIT: Duration = Duration::from_secs(240);

fn run(test: &str, body: impl FnOnce(Rig)) {
    if installed(test, &[ENVOY]) {
        sandbox::run_with_bins_for(LIMIT, test, |bins| body(Rig::start(bins)));
    }
}

/// `ALL` is the SPIFFE validator, `ROOTCA` a plain list of authorities.
fn no_request_fails(rig: &mut Rig, validation: &str) {
    let (front, back) = rig.envoys(validation, API, API);
    front.wait_for("the first certificates", |held| held.contains(API));
    back.wait_for("the first certificates", |held| held.contains(API));
    let traffic = Traffic::start(rig.netns(), rig.port());
    traffic.flows(50);

    let both = [&front, &back];
    let leaf = rig.new_leaves();
    rig.wait_for_leaf(&both, &leaf);
    traffic.flows(50);

    let leaf = rig.new_site_ca();
    rig.wait_for_leaf(&both, &leaf);
    traffic.flows(50);

    // The three steps of a root's rotation: trust both, issue under the new one, trust the new one alone.
    rig.add_root();
    rig.wait_for_roots(&both, 2);
    traffic.flows(50);
    let leaf = rig.issue_under_the_new_root();
    rig.wait_for_leaf(&both, &leaf);
    traffic.flows(50);
    rig.remove_the_old_root();
    rig.wait_for_roots(&both, 1);
    traffic.flows(50);

    let (good, failures) = traffic.stop();
    assert!(failures.is_empty(), "{good} requests were answered, these were not: {failures:#?}");
    // Each request had a handshake of its own, so the rotation was seen by them.
    assert!(front.stat("cluster.back.upstream_cx_total").unwrap() >= good);
}

#[test]
fn no_request_fails_while_all_is_rotated_under_the_spiffe_validator() {
    run("no_request_fails_while_all_is_rotated_under_the_spiffe_validator", |mut rig| {
        no_request_fails(&mut rig, "ALL");
    });
}

#[test]
fn no_request_fails_while_all_is_rotated_under_a_plain_authority() {
    run("no_request_fails_while_all_is_rotated_under_a_plain_authority", |mut rig| {
        no_request_fails(&mut rig, "ROOTCA");
    });
}

/// The page's own files, with nothing changed but the socket and the two names.
#[test]
fn the_page_for_operators_works_as_written() {
    run("the_page_for_operators_works_as_written", |rig| {
        let page = include_str!("../../docs/how-to/envoy.md");
        let file = |name: &str| {
            let text = page.split("```yaml\n# ").find_map(|block| block.strip_prefix(name)).unwrap();
            let text = text.split("```").next().unwrap();
            let names =
                ["spiffe://fabric.example/ns/shop/sa/web", "spiffe://fabric.example/ns/payments/sa/api"];
            let text = names.iter().fold(text.to_owned(), |text, name| text.replace(name, API));
            text.replace("/run/isthmus/workload.sock", &rig.socket())
        };
        let server = rig.envoy("server.yaml", &file("server.yaml"), 9901);
        let client = rig.envoy("client.yaml", &file("client.yaml"), 9902);
        server.wait_for("the first certificates", |held| held.contains(API));
        client.wait_for("the first certificates", |held| held.contains(API));
        assert_eq!(rig.get(8080), (200, "served".to_owned()));
    });
}

#[test]
fn an_envoy_refuses_an_identity_that_it_does_not_expect() {
    run("an_envoy_refuses_an_identity_that_it_does_not_expect", |rig| {
        let (front, back) = rig.envoys("ALL", OTHER, API);
        front.wait_for("the first certificates", |held| held.contains(API));
        back.wait_for("the first certificates", |held| held.contains(API));
        let (status, body) = rig.get(rig.port());
        assert_eq!(status, 503, "{body}");
        assert!(front.stat("ssl.fail_verify_san").unwrap() > 0);
    });
}
