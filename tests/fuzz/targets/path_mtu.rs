//! Path messages as they come out of a tunnel, and any order of events for the search: it stays within its bounds and comes to rest.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use isthmus_tunnel::path_mtu::{Message, PathMtu};
use libfuzzer_sys::fuzz_target;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Between two events one phase can come to its end: each size has three tries, and there are 16 bits of sizes.
const PROBES: usize = 200;

fuzz_target!(|data: &[u8]| {
    message(data);
    let Some((mtu, events)) = data.split_first_chunk() else { return };
    let mtu = u16::from_be_bytes(*mtu);
    let mut now = *START;
    let mut path = PathMtu::new(mtu);
    let mut last = (0, 0);
    for event in events.chunks_exact(4) {
        apply(&mut path, event, now, last);
        now += Duration::from_millis(u64::from(event[3]) * 300);
        for turn in 0.. {
            assert!(turn < PROBES, "no end of probes");
            assert!(path.inner_mtu() <= mtu, "more than the tunnel carries");
            let Some(at) = path.next_deadline().filter(|at| *at <= now) else { break };
            if let Some(probe) = path.poll(at, u32::from(event[1])) {
                assert!(probe.message.length() <= usize::from(probe.outer_size));
                last = (probe.message.id, probe.message.size);
            }
        }
    }
});

fn message(data: &[u8]) {
    let Ok(message) = Message::decode(data) else { return };
    let mut bytes = vec![0xff; message.length()];
    message.encode(&mut bytes);
    assert_eq!(Message::decode(&bytes), Ok(message), "what is written is read");
    if let Some(reply) = message.reply(data.len()) {
        assert!(reply.length() <= data.len(), "an answer is never longer than the question");
    }
}

/// `last`: identifier and size of the last message sent.
fn apply(path: &mut PathMtu, event: &[u8], now: Instant, (id, size): (u32, u16)) {
    let v4 = SocketAddr::from(([192, 0, 2, 1], u16::from(event[1])));
    let v6 = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], u16::from(event[1])));
    match event[0] % 10 {
        0 => path.on_session(now, v4),
        1 => path.on_session(now, v6),
        2 => path.on_path(now, v6),
        3 => path.on_session_end(now),
        4 => path.on_ack(u32::from(event[1]), u16::from(event[2]), now),
        5 => path.on_refused(id, now),
        6 => drop(path.on_traffic()),
        7 => path.on_doubt(now),
        8 => path.rebase(now),
        _ => path.on_ack(id, size, now),
    }
}
