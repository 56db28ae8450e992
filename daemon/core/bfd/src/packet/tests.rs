use proptest::prelude::*;

use super::*;

/// Up, polling, 300 ms x 3, as another implementation would write it.
const PACKET: [u8; LENGTH] =
    [0x20, 0xe0, 3, 24, 0, 0, 0, 7, 0, 0, 0, 9, 0, 4, 0x93, 0xe0, 0, 4, 0x93, 0xe0, 0, 0, 0, 0];

fn changed(change: impl Fn(&mut Vec<u8>)) -> Result<Packet, Malformed> {
    let mut bytes = PACKET.to_vec();
    change(&mut bytes);
    Packet::decode(&bytes)
}

#[test]
fn fields_are_where_the_rfc_has_them() {
    let packet = Packet::decode(&PACKET).unwrap();
    let expected = Packet {
        diagnostic: Diagnostic::NONE,
        state: State::Up,
        poll: true,
        fin: false,
        independent: false,
        demand: false,
        multiplier: NonZeroU8::new(3).unwrap(),
        mine: NonZeroU32::new(7).unwrap(),
        yours: NonZeroU32::new(9),
        desired_min_tx: Interval::from_millis(300),
        required_min_rx: Interval::from_millis(300),
        required_min_echo_rx: Interval::default(),
    };
    assert_eq!(packet, expected);
    assert_eq!(packet.encode(), PACKET);
}

#[test]
fn every_rule_to_discard() {
    type Row = (&'static str, fn(&mut Vec<u8>), Malformed);
    let table: [Row; 14] = [
        ("version 0", |b| b[0] = 0, Malformed::Version(0)),
        ("version 2", |b| b[0] = 0x40, Malformed::Version(2)),
        ("empty", |b| b.clear(), Malformed::Length),
        ("one byte missing", |b| b.truncate(23), Malformed::Length),
        ("says less than a header", |b| b[3] = 23, Malformed::Length),
        ("says more than there is", |b| b[3] = 25, Malformed::Length),
        ("says authentication, has no room for it", |b| b[1] |= AUTHENTICATION, Malformed::Length),
        ("no multiplier", |b| b[2] = 0, Malformed::Multiplier),
        ("multipoint", |b| b[1] |= MULTIPOINT, Malformed::Multipoint),
        ("no name of its own", |b| b[7] = 0, Malformed::MyDiscriminator),
        ("Up without knowing us", |b| b[11] = 0, Malformed::YourDiscriminator(State::Up)),
        (
            "Init without knowing us",
            |b| {
                b[11] = 0;
                b[1] = 0x80;
            },
            Malformed::YourDiscriminator(State::Init),
        ),
        (
            "authenticated",
            |b| {
                b[1] |= AUTHENTICATION;
                b[3] = 28;
                b.extend([1, 4, 1, b'x']);
            },
            Malformed::Authenticated,
        ),
        ("question and answer", |b| b[1] |= FINAL, Malformed::PollAndFinal),
    ];
    for (what, change, expected) in table {
        assert_eq!(changed(change), Err(expected), "{what}");
    }
}

#[test]
fn a_session_that_is_not_up_need_not_know_us_and_padding_is_ignored() {
    for (flags, state) in [(0x00, State::AdminDown), (0x40, State::Down)] {
        let packet = changed(|b| {
            b[11] = 0;
            b[1] = flags;
            b.extend([0; 18]);
        })
        .unwrap();
        assert_eq!((packet.yours, packet.state), (None, state));
    }
}

proptest! {
    #[test]
    fn what_is_read_is_written(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(packet) = Packet::decode(&bytes) {
            prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
        }
    }

    #[test]
    fn flips_in_a_valid_packet_never_panic(at in 0..LENGTH, value in any::<u8>()) {
        if let Ok(packet) = changed(|bytes| bytes[at] = value) {
            prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
        }
    }
}
