//! Several peers for one prefix.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Result, ensure};
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    link::veth,
    mesh::{Family, Mesh, bgp, name, neighbor, overlay, peer},
    netns::Netns,
    node::Node,
    probe::{Flow, MarkedSocket, Prober, TcpSink, UdpEcho, reach, send},
    sandbox, wait,
};

use super::common::{LIMIT, at};

/// What the twins announce, and a service there.
const ANNOUNCED: [&str; 2] = ["10.50.0.0/16", "fd50::/64"];
const SERVICE: [&str; 2] = ["10.50.0.7", "fd50::7"];

fn service() -> [IpAddr; 2] {
    SERVICE.map(|address| address.parse().unwrap())
}

/// Gateway 1, and `twins` that announce the same. Nobody is given up by BGP before the tunnel notices.
fn fan(twins: u8, bins: &Bins) -> Mesh {
    let patient = |asn, announced: &[&str]| bgp(asn, announced).replace("\"3s\"", "\"180s\"");
    let mut mesh = Mesh::new(1 + twins, bins).unwrap();
    let all = 2..=1 + twins;
    let peers: String = all.clone().map(|n| peer(n, Some(Family::V4))).collect();
    let neighbors: String = all.clone().map(|n| neighbor(n, 65002)).collect();
    let first = mesh.base(1) + &peers + "[fib]\n" + &patient(65001, &[]) + &neighbors;
    mesh.node(1).netns().forward().unwrap();
    mesh.node_mut(1).start(&first).unwrap();
    for n in all {
        let twin = mesh.base(n) + &peer(1, Some(Family::V4));
        let twin = twin + &patient(65002, &ANNOUNCED) + &neighbor(1, 65001);
        mesh.node_mut(n).start(&twin).unwrap();
    }
    let learned = |node: &Node| {
        let routes = node.routes()?;
        for prefix in ANNOUNCED {
            let route = routes.iter().find(|route| route.prefix == prefix);
            let carriers =
                route.map_or(0, |route| route.candidates.iter().filter(|c| c.selected && c.usable).count());
            ensure!(carriers == usize::from(twins), "{carriers} carry {prefix}");
        }
        ensure!(node.netns().routes_of(73)?.len() == ANNOUNCED.len(), "not in the kernel yet");
        Ok(())
    };
    mesh.node_mut(1).wait_until("all paths", LIMIT, learned).unwrap();
    mesh
}

/// Gateway `n` is the service: it answers each datagram with its number.
struct Twin {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Twin {
    fn start(mesh: &Mesh, n: u8) -> Self {
        let (netns, stop) = (mesh.node(n).netns(), Arc::new(AtomicBool::new(false)));
        let answer = |address: IpAddr| {
            netns.add_address("lo", IpNet::from(address)).unwrap();
            let socket = MarkedSocket::bind(netns, at(address, 7)).unwrap();
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(marked) = socket.receive(Duration::from_millis(50)) {
                        let _ = socket.send(marked.from, &[n], 0);
                    }
                }
            })
        };
        let threads = service().map(answer).into();
        Self { stop, threads }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Flows from gateway 1 to the service, and who answered each last.
struct Flows(Vec<(MarkedSocket, SocketAddr)>);

impl Flows {
    fn open(from: &Netns) -> Self {
        let flow = |port, to: IpAddr| {
            let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
            (MarkedSocket::bind(from, at(any.parse().unwrap(), port)).unwrap(), at(to, 7))
        };
        Self((41_000..41_024).flat_map(|port| service().map(|to| flow(port, to))).collect())
    }

    /// By flow: the twin that answers it. Flows that nobody answers are left out.
    fn ask(&self) -> BTreeMap<usize, u8> {
        for (socket, to) in &self.0 {
            while socket.try_receive().is_ok_and(|marked| marked.is_some()) {}
            let _ = socket.send(*to, b"who?", 0);
        }
        let answer = |socket: &MarkedSocket| socket.receive(Duration::from_millis(500)).ok();
        let answers = self.0.iter().map(|(socket, _)| answer(socket));
        answers.enumerate().filter_map(|(flow, marked)| Some((flow, marked?.bytes[0]))).collect()
    }

    fn ask_all(&self) -> BTreeMap<usize, u8> {
        wait::until("an answer for each flow", LIMIT, || {
            let answers = self.ask();
            ensure!(answers.len() == self.0.len(), "{answers:?}");
            Ok(answers)
        })
        .unwrap()
    }
}

#[test]
fn the_death_of_a_peer_moves_only_its_own_flows() {
    sandbox::run_with_bins("ecmp::the_death_of_a_peer_moves_only_its_own_flows", |bins| {
        let mut mesh = fan(3, bins);
        let _twins = [2, 3, 4].map(|n| Twin::start(&mesh, n));
        let flows = Flows::open(mesh.node(1).netns());
        let before = flows.ask_all();
        for n in [2, 3, 4] {
            assert!(before.values().filter(|twin| **twin == n).count() >= 5, "{before:?}");
        }
        assert_eq!(flows.ask_all(), before, "a flow stays where it is");

        mesh.node_mut(3).kill().unwrap();
        // Its flows are silent until it is known to be gone; those of the others go on where they were, before, meanwhile and after.
        let limit = Duration::from_secs(60);
        let after = wait::until("other paths for the flows of the dead peer", limit, || {
            let answers = flows.ask();
            for (flow, twin) in before.iter().filter(|(_, twin)| **twin != 3) {
                let now = answers.get(flow);
                assert!(now.is_none_or(|now| now == twin), "flow {flow} went from {twin} to {now:?}");
            }
            ensure!(answers.len() == before.len(), "{} of {}", answers.len(), before.len());
            Ok(answers)
        })
        .unwrap();
        assert!(after.values().all(|twin| *twin != 3));
        let heirs: Vec<u8> =
            before.iter().filter(|(_, twin)| **twin == 3).map(|(flow, _)| after[flow]).collect();
        assert!(heirs.contains(&2) && heirs.contains(&4), "{heirs:?}");
        assert_eq!(flows.ask_all(), after);
    });
}

/// The service behind both twins, on a link of its own; what it answers leaves by gateway 3 only.
fn behind_both(mesh: &Mesh) -> Netns {
    let (host, lan) = (Netns::create("service").unwrap(), Netns::create("lan").unwrap());
    lan.bridge("br0", &[]).unwrap();
    let join = |netns: &Netns, device: &str, port: &str| {
        veth((netns, device), (&lan, port)).unwrap();
        lan.enslave(port, "br0").unwrap();
    };
    join(&host, "eth0", "service");
    for (address, length) in service().into_iter().zip([16, 64]) {
        host.add_address("eth0", IpNet::new(address, length).unwrap()).unwrap();
    }
    for n in [2, 3] {
        let netns = mesh.node(n).netns();
        join(netns, "eth1", &name(n));
        netns.forward().unwrap();
        for (address, length) in router(n).into_iter().zip([16, 64]) {
            netns.add_address("eth1", IpNet::new(address, length).unwrap()).unwrap();
        }
    }
    router(3).into_iter().for_each(|router| host.add_default_route(router).unwrap());
    host
}

fn router(n: u8) -> [IpAddr; 2] {
    [[10, 50, 1, n].into(), [0xfd50, 0, 0, 0, 0, 0, 1, n.into()].into()]
}

#[test]
fn both_paths_carry_and_answers_may_come_by_another() {
    sandbox::run_with_bins("ecmp::both_paths_carry_and_answers_may_come_by_another", |bins| {
        let mesh = fan(2, bins);
        let host = behind_both(&mesh);
        let first = mesh.node(1).netns();
        let echoes = service().map(|address| UdpEcho::start(&host, at(address, 7)).unwrap());
        echoes.iter().for_each(|echo| reach(first, echo.address(), LIMIT).unwrap());
        let carried = |n: u8| mesh.node(1).peer(&name(n)).unwrap();
        let before = [2, 3].map(carried);
        let flows: Vec<Flow> =
            service().iter().flat_map(|address| Flow::several(at(*address, 7), 42_000, 16)).collect();
        let prober = Prober::start(first, &flows, Duration::from_millis(10)).unwrap();
        wait::until("answers on every flow", LIMIT, || {
            ensure!(prober.received().iter().all(|received| *received >= 20), "{:?}", prober.received());
            Ok(())
        })
        .unwrap();
        prober.stop().unwrap();
        let after = [2, 3].map(carried);
        // 640 datagrams and more, by both; all answers by one of them. BGP says little meanwhile.
        assert!((0..2).all(|n| after[n].tx_packets - before[n].tx_packets >= 100), "{before:?} {after:?}");
        assert!(after[0].rx_packets - before[0].rx_packets < 20, "{before:?} {after:?}");
        assert!(after[1].rx_packets - before[1].rx_packets >= 600, "{before:?} {after:?}");
        for port in 9..13 {
            for address in service() {
                let sink = TcpSink::start(&host, at(address, port), LIMIT).unwrap();
                assert_eq!(send(first, sink.address(), 1_000_000, LIMIT).unwrap().bytes, 1_000_000);
                sink.finish().unwrap();
            }
        }
        let drops = |n: u8| mesh.node(1).drops(&name(n), "source_not_feasible").unwrap();
        assert_eq!([drops(2), drops(3)], [0, 0]);
        refuses_strange_sources(&mesh).unwrap();
    });
}

/// Both twins may speak for the service, neither for the other, nor for what nobody announced.
fn refuses_strange_sources(mesh: &Mesh) -> Result<()> {
    for (n, other) in [(2, 3), (3, 2)] {
        for family in 0..2 {
            let nobody: IpAddr = ["10.51.0.1", "fd51::1"][family].parse()?;
            for source in [overlay(other)[family], nobody] {
                let refused = || mesh.node(1).drops(&name(n), "source_not_feasible");
                let before = refused()?;
                let netns = mesh.node(n).netns();
                let _ = netns.add_address("lo", IpNet::from(source));
                let liar = MarkedSocket::bind(netns, at(source, 73))?;
                liar.send(at(overlay(1)[family], 73), b"spoofed", 0)?;
                wait::until("the count of what was refused", LIMIT, || {
                    ensure!(refused()? == before + 1, "{source} from {n}: {} {before}", refused()?);
                    Ok(())
                })?;
                netns.delete_address(source)?;
            }
        }
    }
    Ok(())
}
