//! The receiving speaker (RFC 4724 section 4.2): what becomes of a peer's routes when its session ends.
//!
//! ```text
//!            lost, kept                  back, with F
//!   Fresh ─────────────────► Away ─────────────────────► Back
//!    ▲ ▲     mark             │ ▲       lost, kept        │ │
//!    │ └──────────────────────┘ └─────────────────────────┘ │
//!    │   back without F, not kept,     sweep, mark          │
//!    │   path dead, time: drop                              │
//!    └──────────────────────────────────────────────────────┘
//!        End-of-RIB, time, path dead: sweep; not kept: drop
//! ```
//! Each family has a state of its own. In Away every route is stale, until the peer's restart time or our ceiling is over; in Back
//! those are that the new session has not announced again, until its End-of-RIB or a limit.
//!
//! Nothing is remembered of how a session ended but this state, so no mark of one session can reach into the next.

use std::time::{Duration, Instant};

use crate::{
    Families, Family,
    fsm::{Ending, Negotiated, PeerRestart},
};

/// Limits of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperConfig {
    /// The longest that routes are kept for a peer that is away, whatever it asks for.
    pub longest_absence: Duration,
    /// The longest from its return to its End-of-RIB.
    pub longest_return: Duration,
    /// A path that BFD calls dead may only mean that the peer's process is: keep the routes. For peers whose BFD shares the fate of
    /// their control plane (C bit zero, RFC 5882 section 4.3), and only where something else notices dead paths.
    pub keep_when_path_down: bool,
}

impl Default for KeeperConfig {
    fn default() -> Self {
        Self {
            longest_absence: Duration::from_secs(300),
            longest_return: Duration::from_secs(360),
            keep_when_path_down: false,
        }
    }
}

/// What to do with the peer's routes of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Mark all as stale.
    Mark(Family),
    /// Delete those that are stale.
    Sweep(Family),
    /// Delete all.
    Drop(Family),
}

/// A peer's routes over its restarts. Do the orders that come back, in their order.
#[derive(Clone, Debug)]
pub struct Keeper {
    config: KeeperConfig,
    /// Indexed by family.
    states: [Kept; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Fresh,
    Away { until: Instant },
    Back { until: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The session ended; the family is kept until then.
    Lost(Option<Instant>),
    /// It stands again; true: the peer forwarded on. The time is the limit for End-of-RIB.
    Returned(bool, Instant),
    EndOfRib,
    /// The state's time is over.
    Expired,
    /// The path to the peer is dead, or the peer is not configured any more.
    Abandoned,
}

/// What is to be done, as constructors: the family is the caller's.
type Orders = &'static [fn(Family) -> Order];

impl Kept {
    /// The table.
    fn next(self, event: Event) -> (Self, Orders) {
        match (self, event) {
            (Self::Fresh, Event::Lost(Some(until))) => (Self::Away { until }, &[Order::Mark]),
            (_, Event::Lost(None)) => (Self::Fresh, &[Order::Drop]),
            (Self::Fresh, _) => (Self::Fresh, &[]),
            // There is no session to lose.
            (Self::Away { .. }, Event::Lost(Some(_)) | Event::EndOfRib) => (self, &[]),
            (Self::Away { .. }, Event::Returned(true, until)) => (Self::Back { until }, &[]),
            (Self::Away { .. }, _) => (Self::Fresh, &[Order::Drop]),
            // RFC 4724 section 4.2: what was stale before a second restart does not get a second chance.
            (Self::Back { .. }, Event::Lost(Some(until))) => {
                (Self::Away { until }, &[Order::Sweep, Order::Mark])
            }
            (Self::Back { .. }, Event::Returned(true, _)) => (self, &[]),
            (Self::Back { .. }, _) => (Self::Fresh, &[Order::Sweep]),
        }
    }

    fn until(self) -> Option<Instant> {
        match self {
            Self::Fresh => None,
            Self::Away { until } | Self::Back { until } => Some(until),
        }
    }
}

impl Keeper {
    /// Of a peer without routes.
    pub fn new(config: KeeperConfig) -> Self {
        Self { config, states: [Kept::Fresh; 2] }
    }

    /// Other limits, for what happens from now on.
    pub fn set_config(&mut self, config: KeeperConfig) {
        self.config = config;
    }

    /// The session ended like this, under this agreement.
    pub fn handle_down(&mut self, ending: Ending, negotiated: &Negotiated, now: Instant) -> Vec<Order> {
        let kept = negotiated.restart.filter(|restart| self.keeps(ending, restart));
        let families =
            kept.map_or(Families::NONE, |restart| restart.families.intersection(negotiated.families));
        let time = kept.map_or(Duration::ZERO, |restart| restart.time.min(self.config.longest_absence));
        let until = |family| (families.contains(family) && !time.is_zero()).then(|| now + time);
        self.each(negotiated.families, |family| Event::Lost(until(family)))
    }

    fn keeps(&self, ending: Ending, restart: &PeerRestart) -> bool {
        match ending {
            Ending::Transport => true,
            Ending::Notification { hard } => restart.notification && !hard,
            Ending::PathDown => self.config.keep_when_path_down,
            Ending::Stopped => false,
        }
    }

    /// A session stands again. What it does not carry, or was not forwarded meanwhile, goes now.
    pub fn handle_up(&mut self, negotiated: &Negotiated, now: Instant) -> Vec<Order> {
        let restart = negotiated.restart.map_or(Families::NONE, |restart| restart.forwarding);
        let forwarded = restart.intersection(negotiated.families);
        let until = now + self.config.longest_return;
        self.each(Families::ALL, |family| Event::Returned(forwarded.contains(family), until))
    }

    /// The peer has announced all it has.
    pub fn handle_end_of_rib(&mut self, family: Family) -> Vec<Order> {
        self.each(Families::from_iter([family]), |_| Event::EndOfRib)
    }

    /// What BFD or the tunnel says of the path while the peer is away; its session's own end says it otherwise.
    pub fn handle_path_down(&mut self) -> Vec<Order> {
        if self.config.keep_when_path_down {
            return Vec::new();
        }
        self.abandon()
    }

    /// The peer is not coming back: removed, or stopped by an operator.
    pub fn abandon(&mut self) -> Vec<Order> {
        self.each(Families::ALL, |_| Event::Abandoned)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Order> {
        let due = Family::ALL
            .into_iter()
            .filter(|family| self.states[family.index()].until().is_some_and(|until| until <= now));
        self.each(due.collect(), |_| Event::Expired)
    }

    /// When to call [`Keeper::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.states.iter().filter_map(|state| state.until()).min()
    }

    /// Families with stale routes, or that could have some.
    pub fn stale(&self) -> Families {
        Family::ALL.into_iter().filter(|family| self.states[family.index()] != Kept::Fresh).collect()
    }

    /// When what is kept of a family goes at the latest.
    pub fn until(&self, family: Family) -> Option<Instant> {
        self.states[family.index()].until()
    }

    fn each(&mut self, families: Families, event: impl Fn(Family) -> Event) -> Vec<Order> {
        let mut orders = Vec::new();
        for family in families.iter() {
            let state = &mut self.states[family.index()];
            let (next, make) = state.next(event(family));
            *state = next;
            orders.extend(make.iter().map(|order| order(family)));
        }
        orders
    }
}

#[cfg(test)]
pub(super) mod tests;
