//! `docs/how-to/federation.md`

use anyhow::ensure;
use isthmus_lab::{
    bins::Bins,
    mesh::Mesh,
    node::Node,
    page::{Page, shell},
    peers::installed,
    pki::Pki,
    sandbox,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{LIMIT, here, own_places};

/// The site of the page.
const SITE: &str = "aws-use1";

/// Gateway 1 is of the page's fabric, gateway 2 of its partner's.
const DOMAINS: [&str; 2] = ["fabric.example", "partner.example"];

/// An issuer that publishes as the page says, and more of its configuration.
fn configuration(node: &Node, page: &Page, more: &str) -> String {
    format!(
        "[node]\nname = \"{}\"\nsite = \"{SITE}\"\n{}[identity]\ntrust_bundle = \"root.pem\"\nsvid = \"node.pem\"\n\
         key = \"node.key\"\n[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n\
         [workload_api]\nsocket = {:?}\n{}{more}",
        node.name(),
        own_places(node),
        node.workload_socket(),
        page.block("toml", "listen = ").unwrap(),
    )
}

/// The page's blocks on reading a partner and on its entry, for gateway `reader`, whose partner is gateway `other`.
fn reading(page: &Page, node: &Node, reader: u8, other: u8) -> String {
    let id = format!("spiffe://{}/site/{SITE}/node/gw{other}", DOMAINS[usize::from(other) - 1]);
    let trust = here(node, &page.block("toml", "endpoint_spiffe_id").unwrap())
        .replace("spire.partner.example", &format!("192.0.2.{other}"))
        .replace("spiffe://partner.example/spire/server", &id);
    let entry = page.block("toml", "federates_with").unwrap().replace("unix:uid:1000", "unix:uid:0");
    let text = trust + &entry;
    // Seen from the partner the same page has the other's name in it.
    if reader == 2 { text.replace("\"partner.example\"", "\"fabric.example\"") } else { text }
}

fn start(page: &Page, bins: &Bins) -> Mesh {
    let mut mesh = Mesh::new(2, bins).unwrap();
    for (n, domain) in (1..).zip(DOMAINS) {
        let pki = Pki::of(domain, SITE, OffsetDateTime::now_utc()).unwrap();
        pki.write_all(mesh.node(n).dir(), mesh.node(n).name()).unwrap();
        let config = configuration(mesh.node(n), page, "");
        mesh.node_mut(n).start(&config).unwrap();
        mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }
    mesh
}

#[test]
fn the_page_on_federation_works_as_written() {
    const TEST: &str = "federation::the_page_on_federation_works_as_written";
    if !installed(TEST, &["curl"]) {
        return;
    }
    sandbox::run_with_bins(TEST, |bins| {
        let page = Page::read("how-to/federation.md").unwrap();
        let mut mesh = start(&page, bins);

        // What a partner sees, and what is carried to it.
        assert!(page.says(
            "the node's ID, `spiffe://fabric.example/site/aws-use1/node/gw1` (`isthmusctl certs` shows it)"
        ));
        let shown = shell(mesh.node(1), bins, "isthmusctl certs").unwrap();
        assert!(shown.contains("spiffe://fabric.example/site/aws-use1/node/gw1"), "{shown}");
        let look = page.block("sh", "curl").unwrap().replace("gw1.example", "192.0.2.1");
        let document = shell(mesh.node(2), bins, &look).unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["keys"][0]["use"], "x509-svid", "{document}");
        for (reader, other) in [(1, 2), (2, 1)] {
            let root = mesh.node(other).dir().join("root.pem");
            std::fs::copy(root, mesh.node(reader).dir().join("partner.pem")).unwrap();
        }

        for (reader, other) in [(1, 2), (2, 1)] {
            let more = reading(&page, mesh.node(reader), reader, other);
            let config = configuration(mesh.node(reader), &page, &more);
            assert_eq!(mesh.node_mut(reader).reload(&config, LIMIT).unwrap().1, "");
            assert!(
                page.says("The log says `took a new bundle of a federated trust domain`, with its sequence")
            );
            let took = |node: &Node| {
                let log = node.log_text();
                let line = log.lines().find(|l| l.contains("took a new bundle of a federated trust domain"));
                ensure!(line.is_some_and(|line| line.contains("sequence")), "nothing of it in the log");
                Ok(())
            };
            mesh.node_mut(reader).wait_until("the partner's bundle", LIMIT, took).unwrap();
        }
        for (reader, other) in [(1, DOMAINS[1]), (2, DOMAINS[0])] {
            let has = |node: &Node| {
                let told = shell(node, bins, "isthmusctl svid fetch")?;
                ensure!(told.contains(&format!("with the bundle of spiffe://{other}")), "{told}");
                Ok(())
            };
            mesh.node_mut(reader).wait_until("a workload with the bundle", LIMIT, has).unwrap();
        }

        // The first row of the table: across a restart the last good bundle is kept while the endpoint is down.
        mesh.node_mut(2).stop().unwrap();
        mesh.node_mut(1).stop().unwrap();
        mesh.node_mut(1).restart().unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        let svids = shell(mesh.node(1), bins, "isthmusctl -o json svid fetch").unwrap();
        let svids: Value = serde_json::from_str(&svids).unwrap();
        assert_eq!(svids["federated_trust_domains"], json!(["spiffe://partner.example"]), "{svids}");
    });
}
