//! Two sessions on one virtual clock, and a line between them that loses, delays and reorders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What the line does to a packet.
#[derive(Clone, Copy)]
struct Line {
    /// Lost, per hundred.
    loss: u32,
    /// Longest delay in milliseconds; a random one is taken, so packets overtake each other.
    delay: u32,
    /// Cut: nothing passes, from side 0 and from side 1.
    cut: [bool; 2],
}

struct World {
    ends: [Session; 2],
    line: Line,
    now: Instant,
    /// (arrival, number) -> (receiver, packet)
    travelling: BTreeMap<(Instant, u64), (usize, Packet)>,
    number: u64,
    random: Random,
    changes: [Vec<Change>; 2],
}

impl World {
    fn new(configs: [Config; 2], line: Line, seed: u64) -> Self {
        let now = Instant::now();
        let end = |n: usize| {
            let id = NonZeroU32::new(u32::try_from(n).unwrap() + 1).unwrap();
            Session::new(configs[n], id, seed + id.get() as u64, now)
        };
        let (ends, random) = ([end(0), end(1)], Random::new(seed));
        Self { ends, line, now, travelling: BTreeMap::new(), number: 0, random, changes: [vec![], vec![]] }
    }

    fn collect(&mut self) {
        for end in 0..2 {
            while let Some(packet) = self.ends[end].poll_transmit(self.now) {
                self.send(end, packet);
            }
            self.changes[end].extend(std::iter::from_fn(|| self.ends[end].poll_event()));
        }
    }

    fn send(&mut self, from: usize, packet: Packet) {
        let lost = self.random.below(100) < self.line.loss;
        let delay = ms(self.random.below(self.line.delay + 1).into());
        if !lost && !self.line.cut[from] {
            self.number += 1;
            self.travelling.insert((self.now + delay, self.number), (1 - from, packet));
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        loop {
            let arrival = self.travelling.first_key_value().map(|(key, _)| key.0);
            let next = self.ends.iter().filter_map(Session::poll_timeout).chain(arrival).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            // A shorter interval may make something due that was not before.
            self.now = next.max(self.now);
            self.step();
        }
        self.now = end;
    }

    /// What has arrived counts before any timer does.
    fn step(&mut self) {
        while let Some(entry) = self.travelling.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (receiver, packet) = entry.remove();
            // Names that the peer has forgotten meanwhile do not reach the session.
            self.ends[receiver].handle_packet(&packet, self.now);
            self.collect();
        }
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
        self.collect();
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state, self.ends[1].state]
    }

    /// Lets both come up. Packets that overtake each other may take a session down again meanwhile; that does not count.
    fn settle(&mut self) {
        self.run(ms(6000));
        assert_eq!(self.states(), [State::Up; 2]);
        self.changes = [vec![], vec![]];
    }

    fn failures(&self) -> usize {
        self.changes.iter().flatten().filter(|change| change.is_failure()).count()
    }
}

const QUIET: Line = Line { loss: 0, delay: 20, cut: [false; 2] };

#[test]
fn two_come_up_and_settle_on_the_slower_interval() {
    let mut world = World::new([config(300, 300, 3), config(100, 1000, 5)], QUIET, 1);
    world.run(ms(5000));
    assert_eq!(world.states(), [State::Up; 2]);
    let [one, two] = [world.ends[0].status(), world.ends[1].status()];
    assert_eq!(one.transmit_interval, Some(ms(1000)), "the other takes no more");
    assert_eq!(two.transmit_interval, Some(ms(300)), "the first takes no more");
    assert_eq!(one.detection_time, Some(ms(1500)), "its multiplier 5 times 300");
    assert_eq!(two.detection_time, Some(ms(3000)), "its multiplier 3 times 1000");
}

#[test]
fn a_cut_line_is_noticed_within_the_detection_time_and_comes_back() {
    for seed in 0..50 {
        let mut world = World::new([config(300, 300, 3); 2], QUIET, seed);
        world.settle();
        world.line.cut = [true; 2];
        let cut = world.now;
        world.run(ms(2000));
        for end in 0..2 {
            let change = world.changes[end].last().unwrap();
            assert!(change.is_failure() && change.diagnostic == Diagnostic::TIME_EXPIRED);
            let took = change.at - cut;
            assert!((ms(580)..=ms(920)).contains(&took), "{took:?}");
        }
        world.line.cut = [false; 2];
        world.run(ms(5000));
        assert_eq!(world.states(), [State::Up; 2]);
    }
}

#[test]
fn one_way_failure_takes_both_down() {
    let mut world = World::new([config(300, 300, 3); 2], QUIET, 3);
    world.settle();
    world.line.cut = [true, false];
    world.run(ms(2000));
    let why = |end: usize| world.changes[end].iter().find(|change| change.is_failure()).unwrap().diagnostic;
    assert_eq!((why(0), why(1)), (Diagnostic::NEIGHBOR_DOWN, Diagnostic::TIME_EXPIRED));
    assert!(world.states().iter().all(|state| *state != State::Up));
}

#[test]
fn intervals_change_in_the_middle_without_a_bounce() {
    for seed in 0..50 {
        let mut world = World::new([config(300, 300, 3); 2], Line { delay: 0, ..QUIET }, seed);
        world.settle();
        for (end, new) in [(0, config(50, 50, 3)), (1, config(50, 50, 3)), (0, config(2000, 1000, 3))] {
            world.ends[end].alter(new);
            world.run(ms(6000));
        }
        assert_eq!((world.states(), world.failures()), ([State::Up; 2], 0));
        assert_eq!(world.ends[0].status().transmit_interval, Some(ms(2000)));
        assert!(world.ends.iter().all(|end| end.poll == Poll::Idle));
    }
}

#[test]
fn a_peer_that_is_taken_down_by_its_administrator_has_not_failed() {
    let mut world = World::new([config(300, 300, 3); 2], QUIET, 9);
    world.settle();
    let now = world.now;
    world.ends[0].set_admin_down(now);
    world.run(ms(3000));
    assert_eq!((world.states(), world.failures()), ([State::AdminDown, State::Down], 0));
    let now = world.now;
    world.ends[0].set_admin_up(now);
    world.run(ms(5000));
    assert_eq!(world.states(), [State::Up; 2]);
}

#[test]
fn a_driver_that_was_late_takes_nobody_for_dead() {
    let mut world = World::new([config(300, 300, 3); 2], QUIET, 4);
    world.settle();
    // The machine stood still for ten seconds; the packets of the other side lie in the socket.
    let late = world.now + ms(10_000);
    let waiting = world.ends[1].packet();
    world.ends[0].handle_packet(&waiting, late);
    world.ends[0].handle_timeout(late);
    assert_eq!(world.ends[0].state, State::Up);
}

fn any_config() -> impl Strategy<Value = Config> {
    (10u32..2000, 10u32..2000, 3u8..10).prop_map(|(tx, rx, multiplier)| config(tx, rx, multiplier))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was lost, late or altered before: once the line is good, both come up and agree.
    #[test]
    fn quiet_comes_after_the_storm(
        configs in [any_config(), any_config()],
        altered in proptest::collection::vec((0usize..2, any_config()), 0..6),
        loss in 0u32..70, delay in 0u32..300, seed in any::<u64>(),
    ) {
        let mut world = World::new(configs, Line { loss, delay, cut: [false; 2] }, seed >> 1);
        for (end, config) in altered {
            world.run(ms(1500));
            world.ends[end].alter(config);
        }
        world.run(ms(5000));
        world.line = Line { loss: 0, delay: 2, cut: [false; 2] };
        world.run(ms(30_000));
        prop_assert_eq!(world.states(), [State::Up; 2]);
        for (end, other) in [(0, 1), (1, 0)] {
            let (own, peer) = (world.ends[end].config, world.ends[other].config);
            prop_assert_eq!(world.ends[end].poll, Poll::Idle);
            let agreed = own.desired_min_tx.max(peer.required_min_rx);
            prop_assert_eq!(world.ends[end].transmit_interval(), agreed);
            let detection = agreed.duration() * u32::from(own.multiplier.get());
            prop_assert_eq!(world.ends[other].detection_time(), Some(detection));
        }
    }

    /// Loss that never takes a whole detection time of packets, and any alteration, cause no failure.
    #[test]
    fn alterations_on_a_good_line_cause_no_failure(
        altered in proptest::collection::vec((0usize..2, any_config(), 0u64..3000), 0..10), seed in any::<u64>(),
    ) {
        let patient = |config: Config| Config { multiplier: NonZeroU8::new(3).unwrap(), ..config };
        let mut world = World::new([config(300, 300, 3); 2], Line { delay: 0, ..QUIET }, seed >> 1);
        world.settle();
        for (end, config, pause) in altered {
            world.ends[end].alter(patient(config));
            world.run(ms(pause));
        }
        world.run(ms(10_000));
        prop_assert_eq!(world.failures(), 0);
    }
}
