//! Thousands of handshakes a second from everywhere: those who mean it get through.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::ensure;
use boringtun::{
    noise::{Tunn, TunnResult},
    x25519::{PublicKey, StaticSecret},
};
use isthmus_lab::{
    mesh::{Family, Mesh, endpoint, metrics, metrics_section, overlay, peer, secret},
    probe::{Spoofer, UdpEcho, reach},
    sandbox::{self, processes},
    wait,
};

use super::common::{LIMIT, at, hello, host_on_the_link, transfer};

/// Messages every ten milliseconds.
const SHARE: usize = 50;

/// Sends initiations with a right MAC1 until it is dropped, each from another address.
struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(socket: Spoofer, to: SocketAddrV4, messages: Vec<Vec<u8>>) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = thread::spawn({
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            move || {
                let mut messages = messages.iter().cycle();
                let mut from = (0..=u16::MAX).cycle().map(u16::to_be_bytes);
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    for _ in 0..SHARE {
                        let ([a, b], message) = (from.next().unwrap(), messages.next().unwrap());
                        let from = SocketAddrV4::new(Ipv4Addr::new(10, 1, a, b), 51_820);
                        sent.fetch_add(u64::from(socket.send(from, to, message).is_ok()), Ordering::Relaxed);
                    }
                    // What could not be sent in time is not sent later: nobody could take it then.
                    thread::sleep(
                        (began + Duration::from_millis(10)).saturating_duration_since(Instant::now()),
                    );
                }
            }
        });
        Self { stop, sent, thread: Some(thread) }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Initiations to gateway 1 from keys that it does not know.
fn initiations(count: u8) -> Vec<Vec<u8>> {
    let to = PublicKey::from(&secret(1));
    let one = |n: u8| {
        let mut from = [n; 32];
        from[0] = 0xf0;
        let mut tunnel = Tunn::new(StaticSecret::from(from), to, None, None, n.into(), None);
        match tunnel.format_handshake_initiation(&mut [0; 148], true) {
            TunnResult::WriteToNetwork(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    (0..count).map(one).collect()
}

#[test]
fn a_flood_of_handshakes_keeps_nobody_out() {
    sandbox::run_with_bins("flood::a_flood_of_handshakes_keeps_nobody_out", |bins| {
        let outer = Family::V4;
        let mut mesh = Mesh::new(3, bins).unwrap();
        let first = mesh.base(1) + &metrics_section() + &peer(2, None) + &peer(3, None);
        mesh.node_mut(1).start(&first).unwrap();
        let other = |mesh: &Mesh, n| mesh.base(n) + &peer(1, Some(outer));
        let third = other(&mesh, 3);
        mesh.node_mut(3).start(&third).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        mesh.node_mut(3).wait_ready(LIMIT).unwrap();
        let host = host_on_the_link("flooder", 66);
        // Answers have somewhere to go.
        mesh.node(1).netns().add_default_route([192, 0, 2, 66].into()).unwrap();
        let here = UdpEcho::start(mesh.node(1).netns(), at(overlay(1)[0], 8)).unwrap();
        reach(mesh.node(3).netns(), here.address(), LIMIT).unwrap();

        let pid = mesh.node(1).pid().unwrap();
        let before = ["cookie_required", "unknown_peer"].map(|reason| dropped(&mesh, reason));
        let (memory, cpu) = (processes::resident_kib(pid).unwrap(), processes::cpu_time(pid).unwrap());
        let SocketAddr::V4(target) = endpoint(1, outer) else { panic!("IPv4") };
        let flood = Flood::start(Spoofer::new(&host).unwrap(), target, initiations(200));
        wait::until_true("five thousand messages", LIMIT, || flood.sent() >= 5000).unwrap();
        let (alone, sent) = (processes::cpu_time(pid).unwrap().saturating_sub(cpu), flood.sent());
        // A core does more than this many; each costs a hash or two, and at most a reply.
        let each = alone / u32::try_from(sent).unwrap();
        assert!(each < Duration::from_micros(250), "{alone:?} of CPU for {sent} messages");

        let second = other(&mesh, 2);
        let newcomer = mesh.node(1).peer("gw2").unwrap();
        assert_eq!(newcomer.last_handshake_at, None);
        mesh.node_mut(2).start(&second).unwrap();
        mesh.node_mut(2).wait_ready(LIMIT).unwrap();
        // Meanwhile whoever is in goes on.
        transfer(mesh.node(3), mesh.node(1), overlay(1)[0], 1_000_000);
        transfer(mesh.node(1), mesh.node(3), overlay(3)[1], 1_000_000);
        reach(mesh.node(2).netns(), here.address(), LIMIT).unwrap();
        let during = flood.sent();
        transfer(mesh.node(3), mesh.node(1), overlay(1)[1], 1_000_000);
        transfer(mesh.node(2), mesh.node(1), overlay(1)[0], 1_000_000);
        assert!(flood.sent() > during);
        let total = flood.sent();
        drop(flood);

        // Each message was judged, and the verdicts have names.
        wait::until("the count of the flood", LIMIT, || {
            let cookies = dropped(&mesh, "cookie_required") - before[0];
            let unknown = dropped(&mesh, "unknown_peer") - before[1];
            ensure!(cookies + unknown >= 0.9 * total as f64, "{cookies} + {unknown} of {total}");
            ensure!(cookies > unknown && unknown > 0.0, "{cookies}, {unknown}");
            Ok(())
        })
        .unwrap();
        let grown = processes::resident_kib(pid).unwrap().saturating_sub(memory);
        assert!(grown < 16 * 1024, "{grown} KiB more than before the flood");
        is_over(&mut mesh);
    });
}

/// What gateway 1 dropped for this reason.
fn dropped(mesh: &Mesh, reason: &str) -> f64 {
    let all = metrics(mesh.node(1)).unwrap();
    all.value("isthmus_tunnel_drops_total", &[("reason", reason)]).unwrap()
}

/// Nobody has to prove anything any more, a second after the last of it.
fn is_over(mesh: &mut Mesh) {
    thread::sleep(Duration::from_secs(1));
    let before = dropped(mesh, "cookie_required");
    mesh.node_mut(2).kill().unwrap();
    mesh.node_mut(2).restart().unwrap();
    mesh.node_mut(2).wait_ready(LIMIT).unwrap();
    hello(mesh.node(2), mesh.node(1), overlay(1)[1]).unwrap();
    assert_eq!(dropped(mesh, "cookie_required"), before);
}
