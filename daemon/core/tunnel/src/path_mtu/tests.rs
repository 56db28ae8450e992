use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MTU: u16 = 1420;
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// A path with the far end, on a clock of its own.
struct Net {
    near: PathMtu,
    now: Instant,
    /// The largest outer packet that arrives.
    truth: u16,
    /// What the own kernel lets out.
    kernel: u16,
    /// Does the far end answer?
    isthmus: bool,
    /// Fate of the next messages that fit: true is lost.
    losses: VecDeque<bool>,
    /// Outer sizes of what was sent since the last look, HELLOs included.
    sent: Vec<u16>,
    random: u32,
}

impl Net {
    fn new(truth: u16) -> Self {
        let now = Instant::now();
        Self {
            near: PathMtu::new(MTU),
            now,
            truth,
            kernel: u16::MAX,
            isthmus: true,
            losses: VecDeque::new(),
            sent: vec![],
            random: 0,
        }
    }

    /// With a session over IPv4.
    fn connected(truth: u16) -> Self {
        let mut net = Self::new(truth);
        net.session("192.0.2.1:51820");
        net
    }

    fn session(&mut self, remote: &str) {
        self.near.on_session(self.now, remote.parse().unwrap());
    }

    /// Lets time pass; the traffic is that of before.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.near.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step();
            assert!(self.sent.len() < 10_000, "no end of probes");
        }
        self.now = end;
    }

    /// With traffic in every second.
    fn busy(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.near.on_traffic();
            self.run(Duration::from_secs(1));
        }
    }

    fn step(&mut self) {
        self.random += 1;
        let Some(probe) = self.near.poll(self.now, self.random) else { return };
        self.sent.push(probe.outer_size);
        if probe.outer_size > self.kernel {
            return self.near.on_refused(probe.message.id, self.now);
        }
        let fits = self.isthmus && probe.outer_size <= self.truth;
        if fits && !self.losses.pop_front().unwrap_or(false) {
            let ack = answer(probe);
            self.now += ROUND_TRIP;
            self.near.on_ack(ack.id, ack.size, self.now);
        }
    }

    fn sent(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.sent)
    }

    fn knows(&self) -> (State, Option<u16>, u16) {
        (self.near.state(), self.near.found(), self.near.inner_mtu())
    }
}

/// What the far end makes of a probe's payload.
fn answer(probe: Probe) -> Message {
    let mut payload = vec![0; probe.message.length()];
    probe.message.encode(&mut payload);
    Message::decode(&payload).unwrap().reply(payload.len()).unwrap()
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_full_path_costs_one_greeting_and_one_probe() {
    let mut net = Net::new(1500);
    assert_eq!(net.knows(), (State::Unknown, None, 1420));
    net.session("192.0.2.1:51820");
    net.run(seconds(1));
    assert_eq!(net.sent(), [76, 1480]);
    assert_eq!(net.knows(), (State::Whole, Some(1480), 1420));
    net.session("[2001:db8::1]:51820");
    net.run(seconds(1));
    assert_eq!(net.sent(), [96, 1500]);
    assert_eq!(net.knows(), (State::Whole, Some(1500), 1420));
}

#[test]
fn sizes_are_found_to_the_byte() {
    for (truth, remote, expected) in [
        (1492, "192.0.2.1:1", (State::Whole, Some(1480), 1420)),
        (1492, "[::ffff:192.0.2.1]:1", (State::Whole, Some(1480), 1420)),
        (1492, "[2001:db8::1]:1", (State::Limited, Some(1492), 1412)),
        (1400, "192.0.2.1:1", (State::Limited, Some(1400), 1340)),
        (1400, "[2001:db8::1]:1", (State::Limited, Some(1400), 1320)),
        (1281, "192.0.2.1:1", (State::Limited, Some(1281), 1221)),
        (1280, "192.0.2.1:1", (State::Floor, Some(1280), 1220)),
        (1280, "[2001:db8::1]:1", (State::Floor, Some(1280), 1200)),
        // Nothing below the floor is ever believed.
        (1279, "192.0.2.1:1", (State::Floor, Some(1280), 1220)),
        (1279, "[2001:db8::1]:1", (State::Floor, Some(1280), 1200)),
    ] {
        let mut net = Net::new(truth);
        net.session(remote);
        net.run(seconds(40));
        assert_eq!(net.knows(), expected, "{truth} {remote}");
        assert!(net.sent().len() <= 1 + 3 * 9 + 1);
    }
}

#[test]
fn nothing_above_what_passes_is_announced_once_the_full_size_failed() {
    let mut net = Net::connected(1400);
    assert_eq!(net.near.inner_mtu(), 1420);
    net.run(Duration::from_millis(2900));
    assert_eq!((net.near.state(), net.near.inner_mtu()), (State::Searching, 1420));
    net.run(Duration::from_millis(200));
    assert_eq!((net.near.state(), net.near.found()), (State::Searching, None));
    assert!(net.near.inner_mtu() <= 1400 - 60);
}

#[test]
fn small_tunnels_need_no_search() {
    for mtu in [0, 68, 1200, 1220] {
        let mut net = Net::connected(1280);
        net.near = PathMtu::new(mtu);
        net.session("192.0.2.1:51820");
        net.busy(2000);
        assert_eq!(net.sent(), [76], "{mtu}");
        assert_eq!(net.knows(), (State::Whole, Some(mtu + 60), mtu));
    }
}

#[test]
fn large_tunnels_are_searched_too() {
    let mut net = Net::new(9001);
    net.near = PathMtu::new(u16::MAX);
    net.session("192.0.2.1:51820");
    net.run(seconds(60));
    assert_eq!(net.knows(), (State::Limited, Some(9001), 8941));
}

#[test]
fn a_foreign_peer_hears_three_greetings_for_each_session() {
    let mut net = Net::connected(1500);
    net.isthmus = false;
    for _ in 0..3 {
        net.session("192.0.2.1:51820");
        net.busy(2000);
        assert_eq!(net.sent(), [76, 76, 76]);
        assert_eq!(net.knows(), (State::Foreign, None, 1420));
        assert_eq!(net.near.next_deadline(), None);
    }
    net.isthmus = true;
    net.session("192.0.2.1:51820");
    net.run(seconds(1));
    assert_eq!(net.near.state(), State::Whole);
}

#[test]
fn tries_are_a_second_apart_and_a_late_answer_counts() {
    let mut net = Net::connected(1500);
    let start = net.now;
    let first = net.near.poll(start, 7).unwrap();
    assert_eq!(net.near.poll(start, 8), None);
    assert_eq!(net.near.next_deadline(), Some(start + seconds(1)));
    assert_eq!(net.near.poll(start + seconds(1), 9), Some(first));
    assert_eq!(net.near.poll(start + seconds(2), 10), Some(first));
    net.near.on_ack(7, 16, start + Duration::from_millis(2900));
    assert_eq!(net.near.state(), State::Searching);
}

#[test]
fn answers_that_do_not_fit_change_nothing() {
    let mut net = Net::connected(1500);
    let hello = net.near.poll(net.now, 1).unwrap().message;
    net.near.on_ack(2, hello.size, net.now);
    net.near.on_ack(1, hello.size + 1, net.now);
    net.near.on_refused(2, net.now);
    assert_eq!(net.near.state(), State::Unknown);
    net.near.on_ack(1, hello.size, net.now);
    let probe = net.near.poll(net.now, 3).unwrap().message;
    net.near.on_ack(1, hello.size, net.now);
    net.near.on_ack(3, probe.size - 1, net.now);
    assert_eq!(net.near.state(), State::Searching);
    net.near.on_ack(3, probe.size, net.now);
    net.near.on_ack(3, probe.size, net.now);
    assert_eq!(net.near.state(), State::Whole);
    net.near.on_refused(3, net.now);
    assert_eq!(net.near.state(), State::Whole);
}

#[test]
fn a_refused_size_is_not_tried_again() {
    let mut net = Net::connected(1500);
    net.kernel = 1400;
    net.run(Duration::from_millis(500));
    assert_eq!(net.knows(), (State::Refused, Some(1400), 1340));
    assert!(net.sent().len() <= 10);
}

#[test]
fn an_idle_peer_costs_nothing_and_traffic_wakes_the_check() {
    let mut net = Net::connected(1500);
    net.run(seconds(1));
    net.sent();
    net.run(seconds(3600));
    assert_eq!((net.sent(), net.near.next_deadline()), (vec![], None));
    assert!(net.near.on_traffic());
    assert!(!net.near.on_traffic());
    net.run(seconds(3600));
    assert_eq!(net.sent(), [1480]);
    net.busy(300);
    assert_eq!(net.sent(), [1480; 30]);
    net.near.on_session_end(net.now);
    net.busy(300);
    assert_eq!((net.sent(), net.near.inner_mtu()), (vec![], 1420));
}

#[test]
fn a_path_that_shrinks_is_found_out_and_one_that_grows_too() {
    let mut net = Net::connected(1500);
    net.busy(2);
    net.truth = 1400;
    net.busy(14);
    assert!(net.near.inner_mtu() <= 1340, "three unanswered looks");
    net.busy(30);
    assert_eq!(net.knows(), (State::Limited, Some(1400), 1340));
    net.truth = 1500;
    net.busy(400);
    assert_eq!(net.near.found(), Some(1400));
    net.busy(220);
    assert_eq!(net.knows(), (State::Whole, Some(1480), 1420));
}

#[test]
fn doubt_is_looked_into_at_once_and_only_what_is_found_counts() {
    let mut net = Net::connected(1500);
    net.near.on_doubt(net.now);
    net.run(seconds(1));
    net.sent();
    net.near.on_doubt(net.now);
    assert_eq!(net.near.next_deadline(), Some(net.now));
    net.run(seconds(9));
    assert_eq!((net.sent(), net.knows()), (vec![1480], (State::Whole, Some(1480), 1420)));
    net.kernel = 1300;
    net.near.on_doubt(net.now);
    net.run(Duration::from_millis(500));
    assert_eq!(net.knows(), (State::Refused, Some(1300), 1240));
    net.near.on_session_end(net.now);
    net.near.on_doubt(net.now);
    assert_eq!(net.near.next_deadline(), None);
}

#[test]
fn a_clock_that_goes_back_puts_nothing_off() {
    let mut net = Net::connected(1400);
    for time in [500, 1500, 60_000] {
        net.run(Duration::from_millis(time));
        net.near.on_traffic();
        net.now -= seconds(3600);
        net.near.rebase(net.now);
        assert!(net.near.next_deadline().unwrap() <= net.now + CONFIRM_INTERVAL);
    }
    net.busy(60);
    assert_eq!(net.knows(), (State::Limited, Some(1400), 1340));
}

#[test]
fn a_path_that_grows_a_little_is_found_to_the_byte() {
    let mut net = Net::connected(1300);
    net.busy(40);
    net.truth = 1433;
    net.busy(640);
    assert_eq!(net.near.found(), Some(1433));
}

#[test]
fn looking_upward_in_vain_costs_one_size() {
    let mut net = Net::connected(1400);
    net.busy(40);
    net.sent();
    net.busy(605);
    let sent = net.sent();
    assert_eq!(sent.iter().filter(|size| **size == 1401).count(), 3);
    assert!(sent.iter().all(|size| [1400, 1401].contains(size)), "{sent:?}");
    assert_eq!(net.knows(), (State::Limited, Some(1400), 1340));
}

#[test]
fn rekeying_does_not_put_off_the_look_upward() {
    let mut net = Net::connected(1400);
    net.busy(40);
    net.truth = 1500;
    for _ in 0..6 {
        net.session("192.0.2.1:51820");
        net.busy(120);
    }
    assert_eq!(net.near.found(), Some(1480));
}

#[test]
fn an_outage_is_no_black_hole() {
    let mut net = Net::connected(1500);
    net.busy(2);
    net.isthmus = false;
    net.busy(120);
    assert_eq!(net.near.state(), State::Foreign);
    net.isthmus = true;
    net.session("192.0.2.1:51820");
    net.run(seconds(1));
    assert_eq!(net.knows(), (State::Whole, Some(1480), 1420));
}

#[test]
fn an_outage_in_a_search_ends_it_without_a_verdict() {
    let mut net = Net::connected(1500);
    net.step();
    net.isthmus = false;
    net.run(seconds(60));
    assert_eq!(net.near.state(), State::Foreign);
    net.isthmus = true;
    net.session("192.0.2.1:51820");
    net.run(seconds(1));
    assert_eq!(net.near.state(), State::Whole);
}

#[test]
fn what_was_found_outlives_a_session_that_nobody_answers() {
    let mut net = Net::connected(1400);
    net.run(seconds(40));
    net.isthmus = false;
    net.session("192.0.2.1:51820");
    net.run(seconds(40));
    assert_eq!(net.knows(), (State::Foreign, Some(1400), 1340));
}

#[test]
fn another_endpoint_is_another_path() {
    let mut net = Net::connected(1400);
    net.run(seconds(5));
    assert_eq!(net.near.state(), State::Searching);
    let outstanding = net.near.pending.unwrap().probe;
    net.near.on_path(net.now, "192.0.2.1:51820".parse().unwrap());
    assert_eq!(net.near.state(), State::Searching);
    net.near.on_path(net.now, "[2001:db8::1]:51820".parse().unwrap());
    assert_eq!(net.knows(), (State::Unknown, None, 1420));
    let ack = answer(outstanding);
    net.near.on_ack(ack.id, ack.size, net.now);
    assert_eq!(net.knows(), (State::Unknown, None, 1420));
    net.truth = 1450;
    net.run(seconds(40));
    assert_eq!(net.knows(), (State::Limited, Some(1450), 1370));
}

#[test]
fn without_a_session_a_new_endpoint_starts_nothing() {
    let mut net = Net::connected(1400);
    net.near.on_session_end(net.now);
    net.near.on_path(net.now, "192.0.2.9:1".parse().unwrap());
    assert_eq!(net.near.next_deadline(), None);
}

#[test]
fn each_direction_has_its_own_size() {
    let (mut out, mut back) = (Net::connected(1300), Net::connected(1400));
    out.run(seconds(40));
    back.run(seconds(40));
    assert_eq!((out.near.found(), back.near.found()), (Some(1300), Some(1400)));
}

/// Losses, at most two in a row.
fn losses() -> impl Strategy<Value = VecDeque<bool>> {
    proptest::collection::vec(0..3_usize, 0..60).prop_map(|runs| {
        runs.into_iter().flat_map(|lost| [true, true].into_iter().take(lost).chain([false])).collect()
    })
}

#[test]
fn a_peer_that_moves_all_the_time_is_not_greeted_all_the_time() {
    let mut mtu = PathMtu::new(1420);
    let start = Instant::now();
    mtu.on_session(start, "192.0.2.1:1".parse().unwrap());
    let mut greetings = 0;
    for millisecond in 0..3000_u32 {
        let (now, port) = (start + Duration::from_millis(millisecond.into()), 1 + millisecond % 2);
        mtu.on_path(now, format!("192.0.2.1:{port}").parse().unwrap());
        greetings += usize::from(mtu.poll(now, millisecond).is_some());
    }
    assert_eq!(greetings, 3);
}

proptest! {
    #[test]
    fn a_search_ends_at_the_truth(truth in 1280..=1500_u16, losses in losses(), six: bool, mtu in 1200..=1460_u16) {
        let overhead = if six { 80 } else { 60 };
        let mut net = Net::new(truth);
        (net.near, net.losses) = (PathMtu::new(mtu), losses);
        net.session(if six { "[2001:db8::1]:1" } else { "192.0.2.1:1" });
        for _ in 0..600 {
            net.run(Duration::from_millis(100));
            prop_assert!(net.near.inner_mtu() <= mtu);
            if net.near.found().is_some() || net.sent.iter().filter(|size| **size == mtu + overhead).count() > 3 {
                prop_assert!(net.near.inner_mtu() + overhead <= truth);
            }
        }
        prop_assert_eq!(net.near.found(), Some(truth.min(mtu + overhead)));
    }

    #[test]
    fn nothing_a_peer_does_breaks_it(
        truths in proptest::collection::vec((0..1600_u16, any::<bool>(), 0..8_u8, 1..700_u32), 1..30),
        mtu: u16,
        acks in proptest::collection::vec((0..40_u32, any::<u16>()), 0..30),
    ) {
        let mut net = Net::new(0);
        net.near = PathMtu::new(mtu);
        for ((truth, isthmus, event, time), (id, size)) in truths.into_iter().zip(acks.into_iter().cycle().chain([(0, 0)])) {
            (net.truth, net.isthmus) = (truth, isthmus);
            match event {
                0..3 => net.session("192.0.2.1:1"),
                3 => net.session("[2001:db8::1]:1"),
                4 => net.near.on_path(net.now, "192.0.2.2:1".parse().unwrap()),
                5 => net.near.on_session_end(net.now),
                6 => net.near.on_refused(id, net.now),
                _ => net.near.on_ack(id, size, net.now),
            }
            net.busy(time);
            // Two greetings and a search through 16 bits at most, and the regular looks.
            prop_assert!(net.sent().len() < 200 + usize::try_from(time).unwrap());
            prop_assert!(net.near.inner_mtu() <= mtu);
        }
    }
}
