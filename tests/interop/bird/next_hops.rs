//! BIRD names next hops that are not its to name: outside the tunnel, our own addresses, beyond the link.

use anyhow::{Context, ensure};
use isthmus_lab::node::Node;
use nix::sys::signal::Signal;

use super::{
    Bird, LAN_NEIGHBOR,
    rig::{ALL, OUR_AS, Rig, Session, Transport},
    run_with,
};

/// What BIRD announces beside its usual prefixes. The last is behind it once the operator says so.
const PROTOCOLS: &str = "protocol static strange { ipv4;
  route 10.11.0.0/16 blackhole; route 10.31.0.0/16 blackhole; route 10.32.0.0/16 blackhole;
  route 10.33.0.0/16 blackhole; route 10.34.0.0/16 blackhole; route 10.35.0.0/16 blackhole;
};";
/// A host on our LAN, the underlay's gateway, our LAN address, our WAN address, nobody we know.
const CHANNEL: &str = "export filter {
  if net = 10.11.0.0/16 then bgp_next_hop = 10.10.0.100;
  if net = 10.31.0.0/16 then bgp_next_hop = 10.10.0.100;
  if net = 10.32.0.0/16 then bgp_next_hop = 192.0.2.2;
  if net = 10.33.0.0/16 then bgp_next_hop = 10.10.0.1;
  if net = 10.34.0.0/16 then bgp_next_hop = 192.0.2.1;
  if net = 10.35.0.0/16 then bgp_next_hop = 10.98.0.9;
  if source = RTS_STATIC then accept; reject;
};";

fn counts(node: &Node, name: &str) -> anyhow::Result<(u64, u64)> {
    let neighbors = node.bgp_neighbors()?;
    let neighbor = neighbors.iter().find(|neighbor| neighbor.name == name).context("no such neighbor")?;
    ensure!(neighbor.established_count == 1, "{neighbor:#?}");
    Ok((neighbor.prefixes_received, neighbor.prefixes_accepted))
}

fn wait_counts(rig: &mut Rig, name: &str, expected: (u64, u64)) {
    rig.until(&format!("{expected:?} prefixes of {name}"), |node, _| {
        let found = counts(node, name)?;
        ensure!(found == expected, "{name} has {found:?}");
        Ok(())
    });
}

/// Our kernel has BIRD's usual routes, and these in between; no route of ours shows anything of the refused ones.
fn check(rig: &mut Rig, more: &[&str], refused: &[&str]) {
    let [steady, changing, steady6, changing6] = ALL;
    let expected: Vec<&str> = [&more[..2], &[steady, changing], &more[2..], &[steady6, changing6]].concat();
    rig.wait_kernel(&expected);
    let routes = rig.ours.routes().unwrap();
    for prefix in refused {
        assert!(!routes.iter().any(|route| route.prefix == *prefix), "{prefix}: {routes:#?}");
    }
}

#[test]
fn strange_next_hops_are_refused() {
    let session = Session { channel: CHANNEL, protocols: PROTOCOLS, ..Session::over(Transport::V4) };
    run_with("next_hops::strange_next_hops_are_refused", session, LAN_NEIGHBOR, |mut rig| {
        let _host = host(&rig);
        wait_counts(&mut rig, "theirs", (10, 4));
        wait_counts(&mut rig, "host", (5, 2));
        let of_host = [
            "10.11.0.0/16 via 10.10.0.100 dev lan proto 73 metric 1073",
            "10.12.0.0/16 via 10.10.0.7 dev lan proto 73 metric 1073",
        ];
        let refused = [
            "10.13.0.0/16",
            "10.14.0.0/16",
            "10.15.0.0/16",
            "10.31.0.0/16",
            "10.32.0.0/16",
            "10.33.0.0/16",
            "10.34.0.0/16",
        ];
        check(&mut rig, &of_host, &[&refused[..], &["10.35.0.0/16"]].concat());
        let routes = rig.ours.routes().unwrap();
        let contested = routes.iter().find(|route| route.prefix == "10.11.0.0/16").unwrap();
        let neighbors: Vec<_> = contested.candidates.iter().map(|c| c.neighbor.as_str()).collect();
        assert_eq!(neighbors, ["host"], "the shorter path has a next hop that is not BIRD's");
        let log = rig.ours.log_text();
        let warned = |name: &str, rule: &str| {
            log.lines().any(|line| {
                line.contains("WARN")
                    && line.contains("route refused")
                    && line.contains(name)
                    && line.contains(rule)
            })
        };
        assert!(warned("neighbor=theirs", "next_hop="), "{log}");
        assert!(warned("neighbor=host", "next_hop="), "{log}");

        // The operator gives BIRD's site a network more: the path that was refused is used, on the same session.
        let narrow = std::fs::read_to_string(rig.ours.config()).unwrap();
        let wide = narrow.replace(r#""10.99.0.2/32", "#, r#""10.99.0.2/32", "10.98.0.0/24", "#);
        assert_ne!(wide, narrow);
        let wider = [
            of_host[0],
            of_host[1],
            "10.35.0.0/16 dev isthmus0 proto 73 src 10.99.0.1 metric 1073",
            "10.98.0.0/24 dev isthmus0 proto 73 src 10.99.0.1 metric 1073",
        ];
        reload(&rig, &wide);
        wait_counts(&mut rig, "theirs", (10, 5));
        check(&mut rig, &wider, &refused);
        reload(&rig, &narrow);
        wait_counts(&mut rig, "theirs", (10, 4));
        check(&mut rig, &of_host, &refused);
    });
}

fn reload(rig: &Rig, config: &str) {
    rig.ours.write_config(config).unwrap();
    rig.ours.signal(Signal::SIGHUP).unwrap();
}

/// The router behind us. One of its prefixes BIRD claims by a shorter path; one is behind another host of our LAN, and the others'
/// next hops are on another link, behind the tunnel, and ours.
fn host(rig: &Rig) -> Bird {
    let config = format!(
        "router id 10.10.0.100;
log stderr all;
protocol device {{ scan time 1; }}
protocol static {{ ipv4;
  route 10.11.0.0/16 blackhole {{ bgp_path.prepend(64999); }}; route 10.12.0.0/16 blackhole;
  route 10.13.0.0/16 blackhole; route 10.14.0.0/16 blackhole; route 10.15.0.0/16 blackhole;
}}
protocol bgp upstream {{
  local 10.10.0.100 as 4200000011;
  neighbor 10.10.0.1 as {OUR_AS};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  ipv4 {{ import all; export filter {{
    if net = 10.12.0.0/16 then bgp_next_hop = 10.10.0.7;
    if net = 10.13.0.0/16 then bgp_next_hop = 192.0.2.2;
    if net = 10.14.0.0/16 then bgp_next_hop = 10.99.0.2;
    if net = 10.15.0.0/16 then bgp_next_hop = 192.0.2.1;
    if source = RTS_STATIC then accept; reject;
  }}; }};
}}
"
    );
    Bird::start(&rig.hosts[0], rig.dir.path().join("host-bird"), &config)
}
