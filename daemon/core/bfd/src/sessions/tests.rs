use std::{num::NonZeroU8, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{Interval, State};

fn config() -> Config {
    Config {
        desired_min_tx: Interval::from_millis(300),
        required_min_rx: Interval::from_millis(300),
        multiplier: NonZeroU8::new(3).unwrap(),
    }
}

/// Two systems whose sessions 1 and 2 lie on paths of the same names.
struct Systems {
    one: Sessions<u8>,
    two: Sessions<u8>,
    now: Instant,
}

impl Systems {
    fn new() -> Self {
        let now = Instant::now();
        let mut systems = Self { one: Sessions::new(4, 1), two: Sessions::new(4, 2), now };
        for path in [1, 2] {
            systems.one.create(path, config(), now).unwrap();
            systems.two.create(path, config(), now).unwrap();
        }
        systems
    }

    fn exchange(&mut self) {
        let Self { one, two, now } = self;
        carry(one, two, *now);
        carry(two, one, *now);
        *now = one.poll_timeout().into_iter().chain(two.poll_timeout()).min().unwrap();
        one.handle_timeout(*now);
        two.handle_timeout(*now);
    }
}

fn carry(from: &mut Sessions<u8>, to: &mut Sessions<u8>, now: Instant) {
    while let Some((id, packet)) = from.poll_transmit() {
        let path = *from.path(id).unwrap();
        to.handle_packet(&packet.encode(), &path, now).unwrap();
    }
}

#[test]
fn sessions_beside_each_other_come_up() {
    let mut systems = Systems::new();
    for _ in 0..40 {
        systems.exchange();
    }
    for sessions in [&mut systems.one, &mut systems.two] {
        assert!(sessions.status().all(|(_, _, status)| status.state == State::Up));
        let events: Vec<_> = std::iter::from_fn(|| sessions.poll_event()).collect();
        assert!(events.iter().filter(|event| event.change.to == State::Up).count() == 2);
    }
}

#[test]
fn packets_of_nobody_are_told_apart() {
    let mut systems = Systems::new();
    let now = systems.now;
    let (first, packet) = systems.two.poll_transmit().unwrap();
    let discarded = |sessions: &mut Sessions<u8>, packet: Packet, path| {
        sessions.handle_packet(&packet.encode(), &path, now).unwrap_err()
    };
    assert_eq!(discarded(&mut systems.one, packet, 9), Discarded::UnknownPath);
    let lost = Packet { yours: NonZeroU32::new(12345), ..packet };
    assert_eq!(discarded(&mut systems.one, lost, 1), Discarded::UnknownDiscriminator);
    // A name is known to whoever saw it; the path it was given on is not to be had.
    let stolen = Packet { yours: Some(first), ..packet };
    assert_eq!(discarded(&mut systems.two, stolen, 2), Discarded::OtherPath);
    let short = systems.one.handle_packet(&[0x20; 5], &1, now);
    assert_eq!(short, Err(Discarded::Malformed(Malformed::Length)));
}

#[test]
fn from_afar_only_who_knows_the_discriminator_ends_a_session() {
    let mut systems = Systems::new();
    for _ in 0..40 {
        systems.exchange();
    }
    let (id, path, status) =
        systems.one.status().map(|(id, path, status)| (id, *path, status)).next().unwrap();
    assert_eq!(status.state, State::Up);
    let real = systems.two.status().find(|(_, other, _)| **other == path).unwrap().2;
    let forged = Packet {
        diagnostic: crate::Diagnostic::NONE,
        state: State::AdminDown,
        poll: false,
        fin: false,
        independent: false,
        demand: false,
        multiplier: NonZeroU8::MIN,
        mine: real.discriminator,
        yours: None,
        desired_min_tx: Interval::SECOND,
        required_min_rx: Interval::SECOND,
        required_min_echo_rx: Interval::default(),
    };
    for state in [State::AdminDown, State::Down] {
        let bytes = Packet { state, ..forged }.encode();
        let taken = systems.one.handle_distant_packet(&bytes, &path, systems.now);
        assert_eq!(taken, Err(Discarded::Nameless));
        assert_eq!(systems.one.status_of(id).unwrap().remote, status.remote, "nothing has changed");
    }
    // After a silence whoever asks is heard.
    systems.now += Duration::from_secs(2);
    systems.one.handle_timeout(systems.now);
    let restarted = Packet { state: State::Down, ..forged }.encode();
    assert_eq!(systems.one.handle_distant_packet(&restarted, &path, systems.now), Ok(id));
}

#[test]
fn sessions_are_bounded_and_one_a_path() {
    let mut systems = Systems::new();
    let mut create = |path| systems.one.create(path, config(), systems.now);
    assert_eq!(create(1), Err(Full::PathTaken));
    let third = create(3).unwrap();
    create(4).unwrap();
    assert_eq!(create(5), Err(Full::Limit(4)));
    systems.one.remove(third);
    systems.one.create(5, config(), systems.now).unwrap();
    assert_eq!(systems.one.status().count(), 4);
}

#[test]
fn a_removed_session_leaves_no_timer() {
    let mut systems = Systems::new();
    let ids: Vec<_> = systems.one.status().map(|(id, ..)| id).collect();
    for id in ids {
        systems.one.set_admin_down(id, systems.now);
        systems.one.remove(id);
    }
    assert_eq!(systems.one.poll_timeout(), None);
    let last: Vec<_> = std::iter::from_fn(|| systems.one.poll_transmit()).map(|(_, p)| p.state).collect();
    assert_eq!(last, [State::Down, State::Down, State::AdminDown, State::AdminDown]);
}

proptest! {
    #[test]
    fn random_bytes_never_panic_nor_grow_anything(
        packets in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 24..30), 0u8..3, 0u64..2000), 0..50),
    ) {
        let mut systems = Systems::new();
        for (mut bytes, path, pause) in packets {
            // Enough of them are valid.
            (bytes[0], bytes[1], bytes[3]) = (0x20 | bytes[0] & 0x1f, bytes[1] & 0xfa, 24);
            bytes[8..12].fill(0);
            let _ = systems.one.handle_packet(&bytes, &path, systems.now);
            systems.now += Duration::from_millis(pause);
            systems.one.handle_timeout(systems.now);
            while systems.one.poll_transmit().is_some() {}
            while systems.one.poll_event().is_some() {}
            prop_assert!(systems.one.poll_timeout().is_none_or(|at| at > systems.now));
        }
        prop_assert_eq!(systems.one.status().count(), 2);
    }
}
