//! Any sequence of events, sensible or not, keeps what every owner of a session relies on.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::{tests::config, *};
use crate::{
    Families,
    wire::{Capability, Open, RestartFamily, RouteRefresh},
};

#[derive(Clone, Debug)]
enum Event {
    Start,
    Stop,
    Restart(bool),
    Clear,
    Suspend,
    Connected,
    DialFailed,
    Accepted,
    Heard(u64),
    Sent(u64),
    Closed(u64),
    Error(u64, u8, u8),
    Input(u64, Input),
    PathDown,
    LinkDown,
    /// Milliseconds, and whether the owner wakes up in time.
    Wait(u64, bool),
}

fn open() -> impl Strategy<Value = Input> {
    (prop_oneof![Just(65_002u32), 1u32..70_000], any::<[bool; 3]>(), 0u16..20).prop_map(
        |(asn, [graceful, restarting, notification], hold_time)| {
            let mut open = Open::new(asn, hold_time, Ipv4Addr::new(10, 0, 0, 2), Families::ALL);
            let families = vec![RestartFamily { afi: 1, safi: 1, forwarding: true }];
            let restart = Capability::GracefulRestart { restarting, notification, time: 9, families };
            open.capabilities.extend(graceful.then_some(restart));
            Input::Open(open)
        },
    )
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => open(),
        6 => Just(Input::Keepalive),
        1 => Just(Input::Update),
        1 => Just(Input::RouteRefresh(RouteRefresh { afi: 1, subtype: 0, safi: 1 })),
        1 => (0u8..9, 0u8..12).prop_map(|(code, sub)| Input::Notification(Notification::new(code, sub))),
    ]
}

/// Connections are named by how long ago they were made.
fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Start),
        1 => Just(Event::Stop),
        1 => any::<bool>().prop_map(Event::Restart),
        1 => Just(Event::Clear),
        1 => Just(Event::Suspend),
        6 => Just(Event::Connected),
        2 => Just(Event::DialFailed),
        6 => Just(Event::Accepted),
        2 => (0u64..3).prop_map(Event::Heard),
        2 => (0u64..3).prop_map(Event::Sent),
        3 => (0u64..3).prop_map(Event::Closed),
        1 => (0u64..3, 0u8..9, 0u8..12).prop_map(|(id, code, sub)| Event::Error(id, code, sub)),
        20 => (0u64..3, input()).prop_map(|(id, input)| Event::Input(id, input)),
        1 => Just(Event::PathDown),
        1 => Just(Event::LinkDown),
        4 => (0u64..100_000, any::<bool>()).prop_map(|(time, wakes)| Event::Wait(time, wakes)),
    ]
}

/// A session, its owner's view of it, and the clock.
struct Run {
    session: Session,
    now: Instant,
    connections: u64,
    /// What Up and Down have said.
    up: Option<ConnectionId>,
    /// Connections handed over and not closed.
    open: Vec<ConnectionId>,
}

impl Run {
    fn new(passive: bool) -> Self {
        let now = Instant::now();
        let mut session = Session::new(configured(passive), Jitter::new(5), now);
        session.start(now);
        let (open, up) = Default::default();
        Self { session, now, connections: 0, up, open }
    }

    fn id(&self, ago: u64) -> ConnectionId {
        ConnectionId(self.connections.saturating_sub(ago))
    }

    fn apply(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Start => self.session.start(now),
            Event::Stop => self.session.stop(&Notification::new(6, 2), "stopped", now),
            Event::Restart(passive) => {
                self.session.set_config(configured(passive));
                self.session.restart(&Notification::new(6, 6), "changed", now);
            }
            Event::Clear => self.session.clear("cleared", now),
            Event::Suspend => self.session.suspend("restarting", now),
            Event::Connected => self.connected(),
            Event::DialFailed => self.session.handle_dial_failed("refused", now),
            Event::Accepted => self.accepted(),
            Event::Heard(ago) => self.session.handle_heard(self.id(ago), now),
            Event::Sent(ago) => self.session.handle_sent(self.id(ago)),
            Event::Closed(ago) => self.session.handle_closed(self.id(ago), "closed", now),
            Event::Error(ago, code, subcode) => {
                self.session.handle_error(self.id(ago), Notification::new(code, subcode), now);
            }
            Event::Input(ago, input) => self.session.handle_input(self.id(ago), input, now),
            Event::PathDown => self.session.handle_path_down("path", now),
            Event::LinkDown => self.session.handle_link_down("link", now),
            Event::Wait(time, wakes) => self.wait(Duration::from_millis(time), wakes),
        }
        self.drain();
        self.check();
    }

    fn connected(&mut self) {
        self.connections += 1;
        if self.session.handle_connected(ConnectionId(self.connections), self.now) {
            self.open.push(ConnectionId(self.connections));
        }
    }

    fn accepted(&mut self) {
        self.connections += 1;
        if self.session.handle_accepted(ConnectionId(self.connections), self.now).is_ok() {
            self.open.push(ConnectionId(self.connections));
        }
    }

    fn wait(&mut self, time: Duration, wakes: bool) {
        let end = self.now + time;
        while let Some((at, _)) = self.session.poll_timeout().filter(|(at, _)| wakes && *at <= end) {
            self.now = self.now.max(at);
            self.session.handle_timeout(self.now);
            self.drain();
            let next = self.session.poll_timeout();
            assert!(next.is_none_or(|(next, _)| next > self.now), "a timer that does not move on: {next:?}");
        }
        self.now = end;
        self.session.handle_timeout(self.now);
    }

    fn drain(&mut self) {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Dial => {}
                Action::SendOpen(id, _) | Action::SendKeepalive(id) => assert!(self.open.contains(&id)),
                Action::Close(id, _) => {
                    assert!(self.open.contains(&id), "closed twice");
                    self.open.retain(|open| *open != id);
                }
                Action::Up(id, _) => assert_eq!(self.up.replace(id), None, "up while up"),
                Action::Down(id, _) => assert_eq!(self.up.take(), Some(id), "down without up"),
                Action::Changed { from, to } => assert_ne!(from, to),
            }
        }
    }

    fn check(&self) {
        let session = &self.session;
        assert!(session.connections.len() <= 2 && self.open.len() == session.connections.len());
        assert_eq!(session.established().map(|(id, _)| id), self.up);
        assert_eq!(session.state() == State::Established, self.up.is_some());
        assert!(!session.reason().is_empty() || !session.connections.is_empty());
        for (at, what) in session.timers() {
            let limit = if what == "hold-down" { 750 } else { 480 };
            assert!(at <= self.now + Duration::from_secs(limit), "{what} is too far away");
        }
        let idle = session.connections.is_empty() && matches!(session.dialing, Dialing::Waiting(_));
        assert!(!idle || session.poll_timeout().is_some(), "it would never try again");
    }
}

fn configured(passive: bool) -> SessionConfig {
    let mut config = SessionConfig { passive, ..config(65_001, 1, 65_002) };
    config.offer.restart =
        Some(RestartOffer { time: 120, restarting: true, forwarding: Families::ALL, preserving: true });
    config
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_events_keep_the_invariants(passive: bool, events in prop::collection::vec(event(), 0..120)) {
        let mut run = Run::new(passive);
        run.drain();
        events.into_iter().for_each(|event| run.apply(event));
    }
}
