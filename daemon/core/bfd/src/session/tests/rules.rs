//! The rules of RFC 5880, one by one, against a peer that the test plays.

use super::*;

const STATES: [State; 4] = [State::AdminDown, State::Down, State::Init, State::Up];

/// A session and its time.
struct Played {
    session: Session,
    now: Instant,
}

impl Played {
    fn new(config: Config) -> Self {
        let now = Instant::now();
        let mut played = Self { session: Session::new(config, NonZeroU32::MIN, 7, now), now };
        assert_eq!(played.sent().unwrap().state, State::Down);
        played
    }

    /// One that the peer has brought up, its own poll answered.
    fn up(config: Config, peer: Packet) -> Self {
        let mut played = Self::new(config);
        played.hear(Packet { state: State::Down, yours: None, ..peer });
        played.hear(Packet { state: State::Up, ..peer });
        assert_eq!(played.session.state, State::Up);
        let polls = played.sent().unwrap().poll;
        assert_eq!(polls, config.desired_min_tx < Interval::SECOND, "where Up differs from Down");
        played.hear(Packet { fin: true, ..peer });
        played.silence();
        while played.session.poll_event().is_some() {}
        played
    }

    fn hear(&mut self, packet: Packet) {
        self.session.handle_packet(&packet, self.now);
    }

    /// The last packet of those that leave now.
    fn sent(&mut self) -> Option<Packet> {
        std::iter::from_fn(|| self.session.poll_transmit(self.now)).last()
    }

    fn silence(&mut self) {
        let _ = self.sent();
    }

    /// Goes on in time until something leaves by itself; how long that took.
    fn wait(&mut self) -> (Duration, Packet) {
        let before = self.now;
        loop {
            self.now = self.session.poll_timeout().unwrap();
            self.session.handle_timeout(self.now);
            if let Some(packet) = self.sent() {
                return (self.now - before, packet);
            }
        }
    }

    fn detection(&self) -> Option<Duration> {
        self.session.detection_time()
    }
}

/// What the peer says: Up, 300 ms both ways, times three.
fn peer() -> Packet {
    Packet {
        diagnostic: Diagnostic::NONE,
        state: State::Up,
        poll: false,
        fin: false,
        independent: false,
        demand: false,
        multiplier: NonZeroU8::new(3).unwrap(),
        mine: NonZeroU32::new(99).unwrap(),
        yours: Some(NonZeroU32::MIN),
        desired_min_tx: Interval::from_millis(300),
        required_min_rx: Interval::from_millis(300),
        required_min_echo_rx: Interval::default(),
    }
}

#[test]
fn the_table_of_states() {
    use State::{AdminDown, Down, Init, Up};
    let table = [
        (AdminDown, [AdminDown, AdminDown, AdminDown, AdminDown]),
        (Down, [Down, Init, Up, Down]),
        (Init, [Down, Init, Up, Up]),
        (Up, [Down, Down, Up, Up]),
    ];
    for (own, expected) in table {
        for (said, to) in STATES.into_iter().zip(expected) {
            let mut played = Played::new(config(300, 300, 3));
            played.session.state = own;
            played.hear(Packet { state: said, ..peer() });
            assert_eq!(played.session.state, to, "{own} hears {said}");
        }
    }
}

#[test]
fn diagnostics_say_why() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.hear(Packet { state: State::Down, ..peer() });
    let change = played.session.poll_event().unwrap();
    assert_eq!(
        (change.from, change.to, change.diagnostic),
        (State::Up, State::Down, Diagnostic::NEIGHBOR_DOWN)
    );
    assert!(change.is_failure());
    let packet = played.sent().unwrap();
    assert_eq!((packet.state, packet.diagnostic), (State::Down, Diagnostic::NEIGHBOR_DOWN));

    let mut played = Played::up(config(300, 300, 3), peer());
    played.now += ms(900);
    played.session.handle_timeout(played.now);
    let change = played.session.poll_event().unwrap();
    assert_eq!((change.to, change.diagnostic, change.remote), (State::Down, Diagnostic::TIME_EXPIRED, None));
    assert!(change.is_failure() && !change.is_relief());
    let packet = played.sent().unwrap();
    assert_eq!(packet.yours, None, "what the peer said is void (section 6.8.1)");
    assert_eq!(packet.desired_min_tx, Interval::SECOND);
}

#[test]
fn administrators_say_nothing_about_the_path() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.hear(Packet { state: State::AdminDown, yours: None, ..peer() });
    let change = played.session.poll_event().unwrap();
    assert_eq!((change.from, change.to), (State::Up, State::Down));
    assert!(!change.is_failure() && change.is_relief());

    let mut played = Played::up(config(300, 300, 3), peer());
    played.session.set_admin_down(played.now);
    let change = played.session.poll_event().unwrap();
    assert_eq!((change.to, change.diagnostic), (State::AdminDown, Diagnostic::ADMINISTRATIVE));
    assert!(!change.is_failure() && change.is_relief());
    assert_eq!(played.sent().unwrap().state, State::AdminDown);
    played.hear(Packet { poll: true, ..peer() });
    assert_eq!(played.sent(), None, "no answer while held down");
    played.session.set_admin_up(played.now);
    assert_eq!(played.sent().unwrap().state, State::Down);
}

#[test]
fn a_peer_given_up_after_a_failure_is_told_of() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.now += ms(900);
    played.session.handle_timeout(played.now);
    assert!(played.session.poll_event().unwrap().is_failure());
    played.hear(Packet { state: State::AdminDown, yours: None, ..peer() });
    let change = played.session.poll_event().unwrap();
    assert!(change.is_relief() && (change.from, change.to) == (State::Down, State::Down));
    played.hear(Packet { state: State::AdminDown, yours: None, ..peer() });
    assert_eq!(played.session.poll_event(), None);
}

#[test]
fn who_never_answered_has_not_failed() {
    let mut played = Played::new(config(300, 300, 3));
    for _ in 0..20 {
        let (waited, packet) = played.wait();
        assert!((ms(750)..=ms(1000)).contains(&waited), "slowly while not Up: {waited:?}");
        assert_eq!((packet.desired_min_tx, packet.poll), (Interval::SECOND, false));
    }
    assert_eq!(played.session.poll_event(), None);
}

/// Bug 23: the peer's Required Min RX and multiplier count, not only our own numbers.
#[test]
fn intervals_are_agreed_on_not_taken() {
    let slow = Packet {
        desired_min_tx: Interval::from_millis(1000),
        required_min_rx: Interval::from_millis(1000),
        multiplier: NonZeroU8::new(5).unwrap(),
        ..peer()
    };
    let mut played = Played::up(config(300, 300, 3), slow);
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(1000));
    assert_eq!(played.detection(), Some(ms(5000)), "its multiplier, the slower of the two");
    assert!(played.wait().0 >= ms(750));

    // It becomes faster in the middle of the session, and asks for the answer.
    played.hear(Packet { poll: true, ..peer() });
    let answer = played.sent().unwrap();
    assert!(answer.fin && !answer.poll);
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(300));
    assert_eq!(played.detection(), Some(ms(900)));
    assert!(played.wait().0 <= ms(300));

    // And slower again.
    played.hear(Packet { poll: true, ..slow });
    assert!(played.sent().unwrap().fin);
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(1000));
}

#[test]
fn a_peer_that_takes_nothing_is_sent_nothing() {
    let mute = Packet { required_min_rx: Interval::default(), ..peer() };
    let mut played = Played::up(config(300, 300, 3), peer());
    played.hear(mute);
    assert_eq!(played.session.poll_timeout(), Some(played.now + ms(900)), "only its silence is waited for");
    played.hear(Packet { poll: true, ..mute });
    assert!(played.sent().unwrap().fin, "an answer is no periodic packet");
    assert_eq!(played.session.status().transmit_interval, None);
    played.hear(peer());
    assert!(played.wait().0 <= ms(300));
}

#[test]
fn a_peer_in_demand_mode_is_left_alone_but_for_polls() {
    let on_demand = Packet { demand: true, ..peer() };
    let mut played = Played::up(config(300, 300, 3), on_demand);
    assert_eq!(played.session.status().transmit_interval, None);
    played.session.alter(config(500, 500, 3));
    assert!(played.sent().unwrap().poll);
    assert!(played.wait().1.poll, "until it answers");
    played.hear(Packet { fin: true, ..on_demand });
    assert_eq!(played.session.status().transmit_interval, None);
}

#[test]
fn sending_slower_waits_for_the_final_bit() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.session.alter(config(1000, 300, 3));
    let asked = played.sent().unwrap();
    assert!(asked.poll && asked.desired_min_tx == Interval::SECOND);
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(300));
    played.hear(Packet { fin: true, ..peer() });
    assert_eq!(played.session.transmit_interval(), Interval::SECOND);
    assert!(!played.wait().1.poll);
}

#[test]
fn expecting_more_waits_for_the_final_bit() {
    let quick = Packet { desired_min_tx: Interval::from_millis(100), ..peer() };
    let mut played = Played::up(config(300, 300, 3), quick);
    played.session.alter(config(300, 100, 3));
    assert_eq!(played.sent().unwrap().required_min_rx, Interval::from_millis(100));
    assert_eq!(played.detection(), Some(ms(900)));
    played.hear(quick);
    assert_eq!(played.detection(), Some(ms(900)), "an ordinary packet confirms nothing");
    played.hear(Packet { fin: true, ..quick });
    assert_eq!(played.detection(), Some(ms(300)));
}

#[test]
fn faster_and_more_patient_hold_at_once() {
    let mut played = Played::up(config(1000, 300, 3), peer());
    played.session.alter(config(300, 500, 3));
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(300));
    assert_eq!(played.detection(), Some(ms(1500)));
}

#[test]
fn a_change_during_a_poll_is_asked_again() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.session.alter(config(1000, 300, 3));
    assert!(played.sent().unwrap().poll);
    played.session.alter(config(2000, 300, 3));
    // This answers the first question.
    played.hear(Packet { fin: true, ..peer() });
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(300));
    let asked = played.sent().unwrap();
    assert!(asked.poll && asked.desired_min_tx == Interval::from_millis(2000));
    played.hear(Packet { fin: true, ..peer() });
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(2000));
}

#[test]
fn a_final_bit_that_nobody_asked_for_confirms_nothing() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.session.alter(config(1000, 300, 3));
    // Before a packet with the Poll bit has left.
    played.hear(Packet { fin: true, ..peer() });
    assert_eq!(played.session.transmit_interval(), Interval::from_millis(300));
    assert!(played.sent().unwrap().poll);
}

#[test]
fn an_alteration_bounces_nothing() {
    let mut played = Played::up(config(300, 300, 3), peer());
    played.session.alter(config(50, 50, 5));
    let packet = played.sent().unwrap();
    assert_eq!((packet.state, packet.multiplier.get()), (State::Up, 5));
    assert_eq!(played.session.poll_event(), None);
}

#[test]
fn jitter_stays_within_its_bounds_and_varies() {
    for (multiplier, most) in [(3, 1000), (1, 900)] {
        let patient = Packet { multiplier: NonZeroU8::MAX, ..peer() };
        let mut played = Played::up(config(1000, 1, multiplier), patient);
        let mut waits = Vec::new();
        for _ in 0..200 {
            played.hear(patient);
            waits.push(played.wait().0);
        }
        let (least, longest) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
        assert!(least >= ms(750) && longest <= ms(most), "{least:?} to {longest:?}");
        assert!(longest - least > ms(100), "{least:?} to {longest:?}");
    }
}

#[test]
fn a_detection_time_ends_exactly_when_it_is_over() {
    let mut played = Played::up(config(300, 300, 3), peer());
    let heard = played.now;
    played.now = heard + ms(900) - Duration::from_nanos(1);
    played.session.handle_timeout(played.now);
    assert_eq!(played.session.state, State::Up);
    played.now = heard + ms(900);
    played.session.handle_timeout(played.now);
    assert_eq!(played.session.state, State::Down);
}

/// Else two sides whose packets cross while both change state would send each other more and more.
#[test]
fn a_packet_causes_one_packet_at_most() {
    let mut played = Played::new(config(300, 300, 3));
    for said in [State::Down, State::Init, State::Up, State::Down, State::Down, State::Init] {
        played.hear(Packet { state: said, poll: true, ..peer() });
        let sent: Vec<_> = std::iter::from_fn(|| played.session.poll_transmit(played.now)).collect();
        assert_eq!(sent.len(), 1, "{said}");
        assert_eq!((sent[0].fin, sent[0].state), (true, played.session.state));
    }
    let (waited, packet) = played.wait();
    assert!(packet.poll && waited <= ms(300), "the own question is only put off");
}
