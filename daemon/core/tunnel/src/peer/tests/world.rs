//! Two peers on a virtual clock and a line that loses what it is told to. They are called only when they asked to be.

use super::*;
use crate::{
    noise::message::{INITIATION, KEEPALIVE},
    path_mtu,
};

/// IPv4 and UDP.
pub(super) const HEADERS: usize = 28;
/// A path message that is no probe.
pub(super) const PATH_MESSAGE: usize = path_mtu::LENGTH + crate::OVERHEAD;

pub(super) struct World {
    pub(super) ends: [End; 2],
    /// What each asked for last.
    pub(super) deadlines: [Option<Instant>; 2],
    /// (time since the start, sender, length)
    pub(super) log: Vec<(Duration, usize, usize)>,
    /// Inner packets that arrived at each.
    pub(super) arrived: [Vec<Vec<u8>>; 2],
    /// The longest outer packet that arrives, if nobody may fragment it, and the longest that leaves.
    pub(super) width: usize,
    pub(super) kernel: usize,
    pub(super) start: Instant,
    /// One in so many datagrams is lost; 0: none.
    loss: u32,
    dice: u32,
}

impl World {
    pub(super) fn new() -> Self {
        let (a, b) = pair(None);
        b.peer.set_endpoint(address(A));
        let start = a.now.instant;
        let (deadlines, arrived) = ([None; 2], [vec![], vec![]]);
        Self {
            ends: [a, b],
            deadlines,
            log: vec![],
            arrived,
            width: 1500,
            kernel: 1500,
            start,
            loss: 0,
            dice: 1,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.dice = self.dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.dice >> 16) % 100 < self.loss
    }

    /// Ticks this end and delivers all that follows.
    pub(super) fn tick(&mut self, end: usize) {
        let datagrams = self.ends[end].tick();
        self.deadlines[end] = self.ends[end].deadline;
        let probes = std::mem::take(&mut self.ends[end].probes);
        self.deliver(end, datagrams);
        probes.into_iter().for_each(|probe| self.probe(end, probe));
    }

    fn probe(&mut self, from: usize, datagram: Vec<u8>) {
        let size = datagram.len() + HEADERS;
        if size > self.kernel {
            self.ends[from].peer.probe_refused(self.ends[from].now.instant);
            return self.tick(from);
        }
        if size > self.width {
            return self.log.push((self.ends[from].now.instant - self.start, from, datagram.len()));
        }
        self.deliver(from, vec![datagram]);
    }

    fn deliver(&mut self, from: usize, datagrams: Vec<Vec<u8>>) {
        let (to, source) = (1 - from, [A, B][from]);
        for datagram in datagrams {
            self.log.push((self.ends[from].now.instant - self.start, from, datagram.len()));
            if self.is_lost() {
                continue;
            }
            let (answers, packets) = self.ends[to].open(source, &[datagram]);
            self.arrived[to].extend(packets);
            if std::mem::take(&mut self.ends[to].earlier) {
                self.tick(to);
            }
            self.deliver(to, answers);
        }
    }

    pub(super) fn send(&mut self, from: usize, packet: Vec<u8>) {
        let datagrams = self.ends[from].seal(&[packet]);
        if std::mem::take(&mut self.ends[from].earlier) {
            self.tick(from);
        }
        self.deliver(from, datagrams);
    }

    fn set_time(&mut self, instant: Instant) {
        for end in &mut self.ends {
            let passed = instant.saturating_duration_since(end.now.instant);
            end.now.instant = instant;
            end.now.unix += passed;
        }
    }

    /// Lets time pass; whoever wants to be called is.
    pub(super) fn run(&mut self, time: Duration) {
        let until = self.ends[0].now.instant + time;
        loop {
            let due = |at: &Option<Instant>| at.filter(|at| *at <= until);
            let next = self.deadlines.iter().filter_map(due).min();
            let Some(next) = next else { break };
            self.set_time(next.max(self.ends[0].now.instant));
            for end in 0..2 {
                if self.deadlines[end].is_some_and(|at| at <= next) {
                    self.tick(end);
                    assert!(self.deadlines[end].is_none_or(|at| at > next), "a tick leaves nothing due");
                }
            }
        }
        self.set_time(until);
    }

    pub(super) fn keepalives(&mut self, interval: u64) {
        for end in 0..2 {
            self.ends[end].peer.set_keepalive(Some(seconds(interval)));
            self.tick(end);
        }
    }

    pub(super) fn count(&self, from: usize, length: usize) -> usize {
        self.log.iter().filter(|(_, sender, l)| (*sender, *l) == (from, length)).count()
    }

    /// Sends both ways each 200 ms; returns the longest time without an arrival at either.
    pub(super) fn converse(&mut self, time: Duration) -> Duration {
        let (mut longest, mut last) = (Duration::ZERO, [self.ends[0].now.instant; 2]);
        let until = self.ends[0].now.instant + time;
        while self.ends[0].now.instant < until {
            for from in 0..2 {
                let before = self.arrived[1 - from].len();
                self.send(from, inner(1, 100));
                let now = self.ends[0].now.instant;
                if self.arrived[1 - from].len() > before {
                    last[1 - from] = now;
                }
                longest = longest.max(now - last[1 - from]);
            }
            self.run(Duration::from_millis(200));
        }
        longest
    }
}

#[test]
fn ten_renewals_under_loss_leave_no_gap() {
    let mut world = World::new();
    world.converse(seconds(1));
    world.loss = 30;
    let longest = world.converse(seconds(1300));
    assert!(longest < seconds(3), "nothing arrived for {longest:?}");
    let waited: u64 = world.ends.iter().map(|end| end.drops(Dropped::NoSession)).sum();
    assert_eq!(waited, 0);
    assert!(world.count(0, INITIATION) + world.count(1, INITIATION) >= 10);
    for end in &world.ends {
        let failed = Dropped::ALL.iter().map(|reason| end.drops(*reason)).sum::<u64>();
        assert!(failed <= 3, "late handshakes at most, {failed}");
    }
    // Nobody had to go through a first handshake again: what was sent and not lost arrived.
    let sent = world.log.iter().filter(|(_, _, length)| *length == 160).count();
    let arrived = world.arrived[0].len() + world.arrived[1].len();
    assert!(arrived * 100 >= sent * 65, "{arrived} of {sent}");
}

#[test]
fn ten_idle_minutes_with_keepalives_on_both_sides() {
    let mut world = World::new();
    world.ends[0].peer.set_keepalive(Some(seconds(25)));
    world.tick(0);
    world.keepalives(25);
    world.log.clear();
    world.run(seconds(600));
    let initiations = [world.count(0, INITIATION), world.count(1, INITIATION)];
    assert_eq!(initiations, [4, 0], "{:?}", world.log);
    let keepalives = world.count(0, KEEPALIVE) + world.count(1, KEEPALIVE);
    // One breaks each silence of 25 seconds, perhaps both at once, and one confirms each renewal.
    assert!((24..=2 * 24 + 4).contains(&keepalives), "{keepalives}: {:?}", world.log);
    // Both ask and are answered once under each session.
    assert_eq!([world.count(0, PATH_MESSAGE), world.count(1, PATH_MESSAGE)], [8, 8]);
    assert_eq!(world.log.len(), keepalives + 2 * 4 + 16);
    assert!(world.ends.iter().all(|end| end.live.load(Ordering::Relaxed)));
}

#[test]
fn only_data_is_answered_with_a_keepalive() {
    let mut world = World::new();
    world.send(0, inner(1, 0));
    world.log.clear();
    world.run(seconds(100));
    let answers: Vec<_> = world.log.iter().map(|(at, from, length)| (at.as_secs(), *from, *length)).collect();
    assert_eq!(answers, [(10, 1, KEEPALIVE)]);
}

#[test]
fn idle_peers_sleep_and_let_go_of_their_keys() {
    let mut world = World::new();
    world.send(0, inner(1, 0));
    world.run(seconds(200));
    assert_eq!(world.deadlines, [None, None]);
    for end in &world.ends {
        assert_eq!(end.peer.state().keyring.expiry(), None);
        assert!(end.peer.state().pending.is_none());
        assert_eq!(end.peer.status(end.now.instant).state, State::Idle);
    }
    world.run(seconds(10_000));
    world.send(1, inner(2, 0));
    assert_eq!(world.arrived[0], [inner(2, 0)]);
}

#[test]
fn clocks_that_jump_an_hour_either_way_stop_nothing() {
    let hour = seconds(3600);
    let mut world = World::new();
    world.keepalives(25);
    world.set_time(world.start + 3 * hour);
    world.converse(seconds(30));
    for (instant, unix) in [(true, true), (false, false), (true, false), (false, true), (false, false)] {
        for end in &mut world.ends {
            let now = &mut end.now;
            now.instant = if instant { now.instant + hour } else { now.instant - hour };
            now.unix = if unix { now.unix + hour } else { now.unix - hour };
        }
        world.start = world.start.min(world.ends[0].now.instant);
        world.converse(seconds(20));
        let before = world.arrived.each_ref().map(Vec::len);
        world.converse(seconds(2));
        let after = world.arrived.each_ref().map(Vec::len);
        assert!(after[0] >= before[0] + 10 && after[1] >= before[1] + 10, "{before:?} {after:?}");
    }
}

#[test]
fn both_call_at_once_and_understand_each_other() {
    let mut world = World::new();
    let crossing = [0, 1].map(|end| world.ends[end].seal(&[inner(1, 0)]));
    let [from_a, from_b] = crossing;
    world.deliver(0, from_a);
    world.deliver(1, from_b);
    assert!(world.converse(seconds(300)) < seconds(1));
    assert_eq!(world.arrived[0].len(), world.arrived[1].len());
}

#[test]
fn a_peer_that_restarts_is_reached_again() {
    let mut world = World::new();
    world.converse(seconds(10));
    let (now, mut fresh) = (world.ends[1].now, End::new(2, 1, None));
    fresh.now = now;
    world.ends[1] = fresh;
    world.deadlines[1] = None;
    world.arrived[1].clear();
    for _ in 0..100 {
        world.send(0, inner(1, 0));
        world.run(Duration::from_millis(200));
    }
    assert!(!world.arrived[1].is_empty(), "data unanswered for 15 s begins a handshake");
}
