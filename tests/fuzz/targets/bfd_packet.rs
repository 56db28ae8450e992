//! Control packets as anybody can send them, at any pace: what is read is written, and sessions stay bounded and answer at most once.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use isthmus_bfd::{Config, Interval, LENGTH, Packet, Sessions};
use libfuzzer_sys::fuzz_target;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fuzz_target!(|data: &[u8]| {
    if let Ok(packet) = Packet::decode(data) {
        assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
    }
    let mut now = *START;
    let mut sessions = Sessions::new(1, 1);
    let (tx, rx) = (Interval::from_millis(300), Interval::from_millis(300));
    let config =
        Config { desired_min_tx: tx, required_min_rx: rx, multiplier: 3.try_into().expect("not zero") };
    let id = sessions.create((), config, now).expect("room for one");
    while sessions.poll_transmit().is_some() {}
    for piece in data.chunks_exact(LENGTH + 2) {
        let (mut bytes, pause) =
            (piece[..LENGTH].to_vec(), u16::from_be_bytes([piece[LENGTH], piece[LENGTH + 1]]));
        // Our name is random; who is on the path knows it.
        if bytes[8..12] != [0; 4] {
            bytes[8..12].copy_from_slice(&id.get().to_be_bytes());
        }
        let _ = sessions.handle_packet(&bytes, &(), now);
        assert!(std::iter::from_fn(|| sessions.poll_transmit()).count() <= 1, "more leaves than comes");
        now += Duration::from_millis(pause.into());
        sessions.handle_timeout(now);
        while sessions.poll_transmit().is_some() {}
        while sessions.poll_event().is_some() {}
        assert!(sessions.poll_timeout().is_none_or(|at| at > now), "a timer that is due for ever");
    }
});
