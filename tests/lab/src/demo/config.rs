//! The configuration file of each daemon, as a person would write it.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

use isthmus_lab::node::Node;

use super::{
    ceremony::Pki,
    plan::{Gateway, Site, TUNNEL_PORT, remote_gateways},
};

/// How long until a silent neighbor is given up: the shortest that BGP allows (RFC 4271 section 4.2).
pub(super) const HOLD_TIME: &str = "3s";
/// How a silent path is noticed, and by when: three packets that do not come, 600 ms. It leaves a loaded machine room below a second.
const BFD: &str = "{ interval = \"200ms\", multiplier = 3 }";
/// [`BFD`] for people.
pub(super) const DETECTION: &str = "BFD 200 ms x 3";

/// SPIFFE ID path of the site's workload.
pub(super) fn workload_path(site: &Site) -> String {
    format!("/ns/demo/sa/{}-app", site.short)
}

/// A gateway: tunnels, BGP over them and to the site's router, identity and its issuer.
pub(super) fn gateway(
    site: &'static Site,
    gateway: &'static Gateway,
    node: &Node,
    pki: &Pki,
    public_keys: &BTreeMap<&'static str, String>,
) -> String {
    let mut text = node_section(site, node);
    tunnel(&mut text, site, gateway, public_keys);
    bgp(&mut text, site, gateway);
    text.push_str("\n[fib]\n\n[metrics]\n");
    identity(&mut text, site, gateway, node, pki);
    text
}

/// The site's own router: it has no tunnel, it only learns from the gateways which of them leads where.
pub(super) fn site_router(site: &Site, asn: u32, node: &Node) -> String {
    let mut text = node_section(site, node);
    let id = site.host_addresses()[0];
    let _ = write!(
        text,
        "\n[bgp]\nasn = {asn}\nrouter_id = \"{id}\"\nlisten = []\nhold_time = \"{HOLD_TIME}\"\ngraceful_restart = \"0s\"\n"
    );
    for gateway in site.gateways {
        for (address, family) in gateway.lan(site).iter().zip(["v4", "v6"]) {
            neighbor(
                &mut text,
                &format!("{}-{family}", gateway.name),
                address.addr(),
                site.asn,
                "all",
                "none",
            );
        }
    }
    text.push_str("\n[fib]\n");
    text
}

fn node_section(site: &Site, node: &Node) -> String {
    format!(
        "[node]\nname = \"{}\"\nsite = \"{}\"\nstate_dir = {:?}\n\n[api]\nsocket = {:?}\n",
        node.name(),
        site.name,
        node.state_dir(),
        node.socket()
    )
}

fn tunnel(
    text: &mut String,
    site: &'static Site,
    gateway: &'static Gateway,
    public_keys: &BTreeMap<&'static str, String>,
) {
    let [v4, v6] = gateway.overlay();
    let _ = write!(
        text,
        "\n[tunnel]\ninterface = \"isthmus0\"\nlisten = {TUNNEL_PORT}\naddresses = [\"{v4}\", \"{v6}\"]\nmtu = 1420\n"
    );
    for (_, peer) in remote_gateways(site) {
        let [v4, v6] = peer.overlay().map(|net| net.addr());
        let endpoint = std::net::SocketAddr::new(peer.outer_address(gateway), TUNNEL_PORT);
        let _ = write!(
            text,
            "\n[[tunnel.peer]]\nname = \"{}\"\npublic_key = \"{}\"\nendpoint = \"{endpoint}\"\nallowed_ips = [\"{v4}/32\", \"{v6}/128\"]\n",
            peer.name,
            public_keys.get(peer.name).map_or("", String::as_str),
        );
    }
}

fn bgp(text: &mut String, site: &'static Site, gateway: &Gateway) {
    let [v4, v6] = site.prefixes();
    let id = gateway.overlay()[0].addr();
    let _ = write!(
        text,
        "\n[bgp]\nasn = {}\nrouter_id = \"{id}\"\nhold_time = \"{HOLD_TIME}\"\nannounce = [\"{v4}\", \"{v6}\"]\n",
        site.asn
    );
    for (other, peer) in remote_gateways(site) {
        neighbor(text, peer.name, peer.overlay()[0].addr(), other.asn, "all", "all");
    }
    if let Some(asn) = site.router_asn {
        for (address, family) in site.host_addresses().into_iter().zip(["v4", "v6"]) {
            neighbor(text, &format!("{}-{family}", site.host()), address, asn, "none", "all");
        }
    }
}

fn neighbor(text: &mut String, name: &str, address: IpAddr, asn: u32, import: &str, export: &str) {
    let _ = write!(
        text,
        "\n[[bgp.neighbor]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\nimport = \"{import}\"\nexport = \"{export}\"\nbfd = {BFD}\n"
    );
}

fn identity(text: &mut String, site: &Site, gateway: &Gateway, node: &Node, pki: &Pki) {
    let (at_site, at_node) = (pki.site_directory(site), pki.node_directory(site, gateway.name));
    let _ = write!(
        text,
        "\n[identity]\ntrust_bundle = {:?}\nsvid = {:?}\nkey = {:?}\n\n[issuer]\ncertificate = {:?}\nkey = {:?}\n",
        at_site.join("root.pem"),
        at_node.join("node.pem"),
        at_node.join("node.key"),
        at_site.join("site-ca.pem"),
        at_site.join("site-ca.key"),
    );
    // The sandbox knows one user, its root.
    let _ = write!(
        text,
        "\n[workload_api]\nsocket = {:?}\n\n[[workload_api.entry]]\nspiffe_id = \"{}\"\nselectors = [\"unix:uid:0\"]\nttl = \"1h\"\n",
        node.workload_socket(),
        workload_path(site),
    );
}
