//! Keys of JWT-SVIDs on their way between real daemons: from an issuer to the member of its site, and from site to site.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{fs, time::Duration};

use anyhow::{Context as _, ensure};
use isthmus_lab::{
    bins::Bins,
    files::write_secret,
    mesh::{self, Mesh, node_section},
    node::{Node, unix_channel},
    pki::Pki,
    sandbox,
};
use isthmus_proto::workload::{
    JwtBundlesRequest, JwtsvidRequest, ValidateJwtsvidRequest,
    spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use serde_json::Value;
use time::OffsetDateTime;
use tonic::{Request, transport::Channel};

const LIMIT: Duration = Duration::from_secs(30);
const AUDIENCE: &str = "reports";

fn with_header<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("workload.spiffe.io", "true".parse().unwrap());
    request
}

/// One call of the Workload API of a node.
fn call<T>(
    node: &Node,
    call: impl AsyncFnOnce(SpiffeWorkloadApiClient<Channel>) -> Result<T, tonic::Status>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = SpiffeWorkloadApiClient::new(unix_channel(&node.workload_socket())?);
        tokio::time::timeout(LIMIT, call(client)).await?.map_err(|status| anyhow::anyhow!("{status}"))
    })
}

/// A token of the one workload of this node.
fn token(node: &Node) -> anyhow::Result<String> {
    let request = JwtsvidRequest { audience: vec![AUDIENCE.into()], spiffe_id: String::new() };
    let answer = call(node, async |mut api| api.fetch_jwtsvid(with_header(request)).await)?.into_inner();
    Ok(answer.svids.into_iter().next().context("no token")?.svid)
}

/// Whose it is, says the node.
fn validate(node: &Node, token: &str) -> anyhow::Result<String> {
    let request = ValidateJwtsvidRequest { audience: AUDIENCE.into(), svid: token.into() };
    let answer = call(node, async |mut api| api.validate_jwtsvid(with_header(request)).await)?;
    Ok(answer.into_inner().spiffe_id)
}

/// The JWK set of the node's own trust domain, as a workload gets it first.
fn bundle(node: &Node) -> anyhow::Result<Value> {
    let message = call(node, async |mut api| {
        let mut stream = api.fetch_jwt_bundles(with_header(JwtBundlesRequest {})).await?.into_inner();
        stream.message().await
    })?;
    let bundles = message.context("no message")?.bundles;
    Ok(serde_json::from_slice(bundles.values().next().context("no bundle")?)?)
}

fn fabric_keys(node: &Node) -> anyhow::Result<Vec<Value>> {
    let document: Value = serde_json::from_str(&node.ctl_ok(&["fabric", "keys", "-o", "json"])?)?;
    Ok(document["jwt_keys"].as_array().context("no keys")?.clone())
}

/// A Workload API with one workload: whoever runs the test.
fn workload(node: &Node, path: &str) -> String {
    format!(
        "[workload_api]\nsocket = {:?}\n[[workload_api.entry]]\nspiffe_id = \"{path}\"\nselectors = [\"unix:uid:0\"]\n\
         jwt_ttl = \"1h\"\n",
        node.workload_socket()
    )
}

/// Gateway 1 is the issuer of s1, 2 a member of s1, 3 the issuer of s2.
struct Sites {
    mesh: Mesh,
}

impl Sites {
    fn start(bins: &Bins) -> Self {
        let mesh = Mesh::new(3, bins).unwrap();
        let near = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        let far = near.beside("s2", OffsetDateTime::now_utc()).unwrap();
        near.write_site(mesh.node(1).dir()).unwrap();
        fs::write(mesh.node(2).dir().join("root.pem"), near.root_pem()).unwrap();
        far.write_site(mesh.node(3).dir()).unwrap();
        let mut this = Self { mesh };
        this.start_issuer(3, "s2", "/ns/far/api", "");
        this.start_issuer(1, "s1", "/ns/near/api", "[fabric]\npeers = [\"https://192.0.2.3:51820\"]\n");
        this
    }

    fn start_issuer(&mut self, n: u8, site: &str, path: &str, fabric: &str) {
        let node = self.mesh.node(n);
        let config = format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\n{fabric}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n\
             listen = \"[::]:51820\"\nnode_paths = [\"/ns/*\"]\n{}",
            node_section(node, Some(site)),
            workload(node, path)
        );
        self.mesh.node_mut(n).start(&config).unwrap();
        self.mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }

    fn start_member(&mut self) {
        let token = self.mesh.node(1).ctl_ok(&["token", "create", "--node", "gw2"]).unwrap();
        let node = self.mesh.node(2);
        write_secret(&node.dir().join("join.token"), &token).unwrap();
        let config = format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\njoin_token_file = \"join.token\"\nissuers = [\"192.0.2.1:51820\"]\n{}{}",
            node_section(node, Some("s1")),
            workload(node, "/ns/member/api"),
            mesh::metrics_section()
        );
        self.mesh.node_mut(2).start(&config).unwrap();
        self.mesh.node_mut(2).wait_ready(LIMIT).unwrap();
    }

    fn minted(&mut self, n: u8) -> String {
        self.mesh.node_mut(n).wait_until("a token", LIMIT, token).unwrap()
    }

    fn member_believes(&mut self, token: &str, id: &str) {
        let believes = |node: &Node| {
            let found = validate(node, token)?;
            ensure!(found == id, "it is of {found}");
            Ok(())
        };
        self.mesh.node_mut(2).wait_until(id, LIMIT, believes).unwrap();
    }
}

#[test]
fn a_member_validates_tokens_of_every_site_outlives_the_issuers_and_hears_of_a_taint() {
    let name = "a_member_validates_tokens_of_every_site_outlives_the_issuers_and_hears_of_a_taint";
    sandbox::run_with_bins_for(Duration::from_secs(240), name, |bins| {
        let mut sites = Sites::start(bins);
        sites.start_member();
        let (near, far) = (sites.minted(1), sites.minted(3));
        let own = sites.minted(2);
        let id = |path: &str| format!("spiffe://test.example{path}");
        sites.member_believes(&near, &id("/ns/near/api"));
        sites.member_believes(&far, &id("/ns/far/api"));
        sites.member_believes(&own, &id("/ns/member/api"));
        let member = sites.mesh.node(2);
        assert_eq!(bundle(member).unwrap()["keys"].as_array().unwrap().len(), 2);
        let keys = fabric_keys(member).unwrap();
        let of: Vec<_> =
            keys.iter().map(|key| (key["site"].as_str().unwrap(), key["own"].as_bool().unwrap())).collect();
        assert_eq!(of, [("s1", false), ("s2", false)]);
        assert_eq!(mesh::metrics(member).unwrap().count("isthmus_jwt_keys_heard", &[]), 2.0);
        let peers = sites.mesh.node(1).ctl_ok(&["fabric", "peers"]).unwrap();
        assert!(
            peers.contains("192.0.2.3:51820")
                && peers.contains("/site/s2/node/gw3")
                && peers.contains("answers"),
            "{peers}"
        );

        // Nobody is left to ask, and the member starts anew.
        sites.mesh.node_mut(1).kill().unwrap();
        sites.mesh.node_mut(3).kill().unwrap();
        sites.mesh.node_mut(2).stop().unwrap();
        sites.mesh.node_mut(2).restart().unwrap();
        sites.mesh.node_mut(2).wait_ready(LIMIT).unwrap();
        for (token, path) in [(&near, "/ns/near/api"), (&far, "/ns/far/api"), (&own, "/ns/member/api")] {
            assert_eq!(validate(sites.mesh.node(2), token).unwrap(), id(path));
        }

        // The other site's CA is tainted there, and the member hears of it by way of its own issuer.
        for n in [3, 1] {
            sites.mesh.node_mut(n).restart().unwrap();
            sites.mesh.node_mut(n).wait_ready(LIMIT).unwrap();
        }
        let answers = |node: &Node| {
            let peers = node.ctl_ok(&["fabric", "peers"])?;
            ensure!(peers.contains("answers"), "{peers}");
            Ok(())
        };
        sites.mesh.node_mut(1).wait_until("the peer", Duration::from_secs(60), answers).unwrap();
        let keys = fabric_keys(sites.mesh.node(3)).unwrap();
        let ca =
            keys.iter().find(|key| key["own"] == true).unwrap()["ca_key_sha256"].as_str().unwrap().to_owned();
        let taint = ["rotate", "taint", &ca, "--reason", "disk sold on", "--override", "a test"];
        sites.mesh.node(3).ctl_ok(&taint).unwrap();
        let refuses = |node: &Node| match validate(node, &far) {
            Err(error) if error.to_string().contains("no JWT key") => Ok(()),
            other => Err(anyhow::anyhow!("{other:?}")),
        };
        sites.mesh.node_mut(2).wait_until("a refusal", LIMIT, refuses).unwrap();
        sites.member_believes(&near, &id("/ns/near/api"));
        assert_eq!(fabric_keys(sites.mesh.node(2)).unwrap().len(), 1);
        for n in 1..=3 {
            let log = sites.mesh.node(n).log_text();
            assert!(!log.contains("eyJ") && !log.contains("PRIVATE KEY"), "gw{n} logged a token or a key");
        }
    });
}
