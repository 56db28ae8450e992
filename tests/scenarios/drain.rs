//! A gateway is taken out of service under traffic, and back: nobody loses a packet.
//!
//! ```text
//!           ┌─ gw1 ─┐
//!   source ─┤       ├─ sink
//!           └─ gw2 ─┘
//! ```
//! Every node speaks BGP and has a kernel that forwards; source and sink use both gateways at once.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use isthmus_lab::{
    bins::Bins,
    link::veth,
    netns::Netns,
    node::Node,
    probe::{Flow, Prober, UdpEcho},
    sandbox,
};

const LIMIT: Duration = Duration::from_secs(40);
/// What source and sink announce, and where they are in it.
const ENDS: [(&str, &str); 2] = [("10.60.0.0/16", "10.60.0.1"), ("10.50.0.0/16", "10.50.0.1")];
const NAMES: [&str; 4] = ["source", "gw1", "gw2", "sink"];
/// Two nodes with a link between them: 10.1.n.0/24, the first of the pair is .1.
const LINKS: [(usize, usize); 4] = [(0, 1), (0, 2), (3, 1), (3, 2)];
const FLOWS: u16 = 8;

struct Rig {
    nodes: Vec<Node>,
    _dir: tempfile::TempDir,
}

fn run(test: &str, body: impl FnOnce(Rig)) {
    sandbox::run_with_bins(test, |bins| {
        let dir = tempfile::tempdir().unwrap();
        let nodes = build(dir.path(), bins);
        let mut rig = Rig { nodes, _dir: dir };
        for n in 0..NAMES.len() {
            let config = rig.config(n);
            rig.nodes[n].start(&config).unwrap();
        }
        for n in 0..NAMES.len() {
            rig.wait_sessions(n, 2);
        }
        body(rig);
    });
}

fn build(dir: &Path, bins: &Bins) -> Vec<Node> {
    let spaces = NAMES.map(|name| Netns::create(name).unwrap());
    for (n, (left, right)) in LINKS.into_iter().enumerate() {
        let name = format!("link{n}");
        veth((&spaces[left], &name), (&spaces[right], &name)).unwrap();
        for (node, host) in [(left, 1), (right, 2)] {
            spaces[node].add_address(&name, format!("10.1.{n}.{host}/24").parse().unwrap()).unwrap();
        }
    }
    for (node, (_, address)) in [0, 3].into_iter().zip(ENDS) {
        spaces[node].add_address("lo", format!("{address}/32").parse().unwrap()).unwrap();
    }
    spaces.iter().for_each(|netns| netns.forward().unwrap());
    spaces.iter().map(|netns| Node::new(netns.name(), netns, dir, bins).unwrap()).collect()
}

impl Rig {
    fn config(&self, n: usize) -> String {
        let node = &self.nodes[n];
        let announce = match n {
            0 => format!("announce = [{:?}]\n", ENDS[0].0),
            3 => format!("announce = [{:?}]\n", ENDS[1].0),
            _ => String::new(),
        };
        let mut text = format!(
            "[node]\nname = {:?}\nstate_dir = {:?}\n[api]\nsocket = {:?}\n[fib]\n[bgp]\nasn = {}\nrouter_id = \"10.1.0.{}\"\n{announce}",
            NAMES[n],
            node.state_dir(),
            node.socket(),
            64_600 + n,
            n + 1,
        );
        for (link, (left, right)) in LINKS.into_iter().enumerate() {
            let (other, host) = match n {
                n if n == left => (right, 2),
                n if n == right => (left, 1),
                _ => continue,
            };
            let (name, asn) = (NAMES[other], 64_600 + other);
            text += &format!(
                "[[bgp.neighbor]]\nname = {name:?}\naddress = \"10.1.{link}.{host}\"\nasn = {asn}\nimport = \"all\"\nexport = \"all\"\n"
            );
        }
        text
    }

    /// So many sessions are Established.
    fn wait_sessions(&mut self, n: usize, count: usize) {
        let there = |node: &Node| {
            let neighbors = node.bgp_neighbors()?;
            let up = neighbors.iter().filter(|neighbor| neighbor.state == "Established").count();
            ensure!(up == count, "{neighbors:#?}");
            Ok(())
        };
        self.nodes[n].wait_until("the sessions", LIMIT, there).unwrap();
    }

    /// The kernel of a node has so many routes of ours.
    fn wait_routes(&mut self, n: usize, count: usize) {
        let there = |node: &Node| {
            let routes = node.netns().count_routes(73)?;
            ensure!(routes == count, "{routes} routes");
            Ok(())
        };
        self.nodes[n].wait_until("the kernel routes", LIMIT, there).unwrap();
    }

    fn waiting_for(&self, n: usize) -> Result<String> {
        Ok(self.nodes[n].status()?.waiting_for.join("; "))
    }
}

#[test]
fn a_drained_gateway_loses_no_packet() {
    run("a_drained_gateway_loses_no_packet", |mut rig| {
        rig.wait_routes(1, 2);
        rig.wait_routes(2, 2);
        let echo = UdpEcho::start(rig.nodes[3].netns(), format!("{}:7", ENDS[1].1).parse().unwrap()).unwrap();
        let flows: Vec<Flow> = Flow::several(echo.address(), 4000, FLOWS)
            .into_iter()
            .map(|flow| Flow { from: ENDS[0].1.parse().unwrap(), ..flow })
            .collect();
        rig.wait_routes(0, 1);
        rig.wait_routes(3, 1);
        let prober = Prober::start(rig.nodes[0].netns(), &flows, Duration::from_millis(2)).unwrap();
        isthmus_lab::wait::until("answers on every flow", LIMIT, || {
            ensure!(prober.received().iter().all(|received| *received > 20), "{:?}", prober.received());
            Ok(())
        })
        .unwrap();

        let began = Instant::now();
        let said = rig.nodes[1].ctl_ok(&["drain", "--wait", "1s"]).unwrap();
        assert!(said.starts_with("drained") && began.elapsed() >= Duration::from_secs(1), "{said}");
        rig.wait_routes(1, 0);
        rig.wait_sessions(1, 0);
        rig.wait_sessions(0, 1);
        assert!(rig.waiting_for(1).unwrap().contains("drained"), "not ready, and says why");
        assert!(rig.nodes[1].stop().unwrap().success());

        let reports = prober.stop().unwrap();
        for report in &reports {
            assert!(report.sent > 200, "{report:?}");
            assert_eq!(report.sent - report.received, 0, "{report:?}");
        }
    });
}

#[test]
fn a_drain_can_be_taken_back_before_and_after_its_end() {
    run("a_drain_can_be_taken_back_before_and_after_its_end", |mut rig| {
        let ordered = std::thread::scope(|scope| {
            let drain = scope.spawn(|| rig.nodes[1].ctl(&["drain", "--wait", "1h"]).unwrap());
            isthmus_lab::wait::until("the drain", LIMIT, || {
                ensure!(rig.waiting_for(1)?.contains("draining"));
                Ok(())
            })
            .unwrap();
            assert_eq!(rig.nodes[1].ctl_ok(&["drain", "--undo"]).unwrap(), "serving\n");
            drain.join().unwrap()
        });
        assert_eq!(ordered.status.code(), Some(1), "somebody has taken it back");
        rig.wait_sessions(1, 2);
        assert_eq!(rig.waiting_for(1).unwrap(), "");

        rig.nodes[1].ctl_ok(&["drain", "--wait", "0s"]).unwrap();
        rig.wait_sessions(1, 0);
        rig.wait_routes(1, 0);
        rig.nodes[1].ctl_ok(&["drain", "--undo"]).unwrap();
        rig.wait_sessions(1, 2);
        rig.wait_routes(1, 2);
        assert_eq!(rig.waiting_for(1).unwrap(), "");
    });
}
