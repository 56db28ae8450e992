//! Several pairs of packet threads: what belongs together stays in order.

use std::{net::SocketAddr, thread, time::Duration};

use isthmus_lab::{
    bins::Bins,
    mesh::{Family, Mesh, metrics, metrics_section, overlay, peer},
    netns::Netns,
    probe::{MarkedSocket, TcpSink, send},
    sandbox,
};

use super::common::{LIMIT, all_is_well, at, hello};

/// UDP flows each way of each family.
const FLOWS: u16 = 4;
/// Datagrams until the kernel has made up its mind which queue has which flow.
const WARM: u64 = 300;
/// Datagrams of each flow after that.
const COUNT: u64 = 3000;

fn four(bins: &Bins) -> Mesh {
    let gateway = |n: u8, other: u8| {
        move |mesh: &Mesh| {
            mesh.base(n) + "workers = 4\n" + &metrics_section() + &peer(other, Some(Family::V4))
        }
    };
    let mesh = Mesh::start(bins, LIMIT, &[&gateway(1, 2), &gateway(2, 1)]).unwrap();
    for inner in overlay(2) {
        hello(mesh.node(1), mesh.node(2), inner).unwrap();
    }
    mesh
}

/// What became of a flow.
#[derive(Debug, Default)]
struct Outcome {
    received: u64,
    /// Datagrams that came after a later one, once warm.
    late: u64,
    /// Datagrams that came twice, or damaged.
    wrong: u64,
}

/// A datagram of a flow: its number, and a content that follows from it.
fn datagram(number: u64) -> Vec<u8> {
    let length = 100 + usize::try_from(number % 7).unwrap() * 150;
    let fill = number.to_be_bytes().into_iter().cycle().take(length);
    fill.collect()
}

/// Until nothing has come for a while.
fn watch(socket: &MarkedSocket) -> Outcome {
    let (mut outcome, mut highest) = (Outcome::default(), None);
    // A bit for each: a lost datagram is no fault, one that comes twice is.
    let mut seen = vec![false; usize::try_from(WARM + COUNT).unwrap()];
    while let Ok(marked) = socket.receive(Duration::from_secs(2)) {
        let number = marked.bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        let seen = usize::try_from(number).ok().and_then(|number| seen.get_mut(number));
        if marked.bytes != datagram(number % (WARM + COUNT))
            || seen.is_none_or(|seen| std::mem::replace(seen, true))
        {
            outcome.wrong += 1;
            continue;
        }
        outcome.received += 1;
        outcome.late += u64::from(number >= WARM && highest.is_some_and(|highest| number < highest));
        highest = highest.max(Some(number));
    }
    outcome
}

/// All flows from `from` to `to` at the same time, as fast as they can without drowning anybody.
fn pour(from: &MarkedSocket, to: SocketAddr) {
    for number in 0..WARM + COUNT {
        let _ = from.send(to, &datagram(number), 0);
        if number % 8 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// One flow: its two sockets.
fn flow(netns: [&Netns; 2], from: u8, to: u8, family: usize, port: u16) -> (MarkedSocket, MarkedSocket) {
    let sender = MarkedSocket::bind(netns[0], at(overlay(from)[family], port)).unwrap();
    (sender, MarkedSocket::bind(netns[1], at(overlay(to)[family], port)).unwrap())
}

#[test]
fn flows_keep_their_order_with_four_workers() {
    sandbox::run_with_bins("workers::flows_keep_their_order_with_four_workers", |bins| {
        let mesh = four(bins);
        let netns = [1, 2].map(|n| mesh.node(n).netns());
        let mut flows = Vec::new();
        for port in 0..FLOWS {
            for family in 0..2 {
                flows.push((2, family, flow(netns, 1, 2, family, 6000 + port)));
                flows.push((1, family, flow([netns[1], netns[0]], 2, 1, family, 6500 + port)));
            }
        }
        let both = flows.into_iter().map(|(to, family, (sender, receiver))| {
            let target = receiver_address(to, family, &receiver);
            (thread::spawn(move || pour(&sender, target)), thread::spawn(move || watch(&receiver)))
        });
        for (pouring, watching) in both.collect::<Vec<_>>() {
            pouring.join().unwrap();
            let outcome = watching.join().unwrap();
            assert_eq!((outcome.late, outcome.wrong), (0, 0), "{outcome:?}");
            // Where every core is taken, some are lost: that is no matter of order.
            assert!(outcome.received > WARM + COUNT / 4, "{outcome:?}");
        }
    });
}

fn receiver_address(to: u8, family: usize, receiver: &MarkedSocket) -> SocketAddr {
    at(overlay(to)[family], receiver.port().unwrap())
}

#[test]
fn tcp_streams_are_whole_with_four_workers() {
    sandbox::run_with_bins("workers::tcp_streams_are_whole_with_four_workers", |bins| {
        let mesh = four(bins);
        let streams: Vec<_> = (0..4_u16)
            .flat_map(|stream| {
                [(1, 2), (2, 1)]
                    .into_iter()
                    .flat_map(move |ends| (0..2).map(move |family| (stream, ends, family)))
            })
            .map(|(stream, (from, to), family)| {
                let (here, there) = (mesh.node(from).netns().clone(), mesh.node(to).netns());
                let sink = TcpSink::start(there, at(overlay(to)[family], 7100 + stream), LIMIT).unwrap();
                thread::spawn(move || {
                    assert_eq!(send(&here, sink.address(), 3_000_000, LIMIT).unwrap().bytes, 3_000_000);
                    sink.finish().unwrap();
                })
            })
            .collect();
        streams.into_iter().for_each(|stream| stream.join().unwrap());
        all_is_well(&mesh, 1_000_000);
        for n in [1, 2] {
            let all = metrics(mesh.node(n)).unwrap();
            let dropped = |reason| all.value("isthmus_tunnel_drops_total", &[("reason", reason)]).unwrap();
            assert_eq!(
                (dropped("tun_write"), dropped("decrypt_failed"), dropped("replayed")),
                (0.0, 0.0, 0.0)
            );
        }
    });
}
