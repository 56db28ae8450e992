//! A family that a peer sends once more, on request (RFC 2918, RFC 7313).
//!
//! ```text
//!              BoRR: mark
//!   Quiet ───────────────────► Open ──┐ BoRR: mark
//!     ▲                         │ ▲───┘
//!     └─────────────────────────┘
//!          EoRR, time: sweep
//! ```
//! Without the enhanced kind there are no marks: what we asked for just comes, and what the peer does not have any more it has
//! withdrawn long ago. Before the peer's End-of-RIB there is nothing to refresh: a mark then would sweep what graceful restart keeps.
//! What the peer asks of us is answered by [`crate::adj_out`].

use std::time::{Duration, Instant};

use crate::{Families, Family, fsm::Negotiated, wire::RouteRefresh};

/// How long the peer has from BoRR to EoRR (RFC 7313 section 4 asks for such a limit).
const WINDOW: Duration = Duration::from_secs(300);
/// Least time between two marks of a family. Each mark looks at the whole table, and a BoRR is 23 octets: without this, one peer could
/// keep us from all others. What it refreshes sooner is taken as plain announcements.
const PAUSE: Duration = Duration::from_secs(1);

/// Subtypes of ROUTE-REFRESH (RFC 7313 section 3.2).
mod subtype {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const BEGIN: u8 = 1;
    pub(super) const END: u8 = 2;
}

/// What to do about a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send the peer everything that it should have, even if it has it.
    SendAll(Family),
    /// Mark the peer's routes as not refreshed.
    Mark(Family),
    /// Delete those that still are.
    Sweep(Family),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    /// The peer owes us an End-of-RIB.
    Initial,
    Quiet,
    /// Between BoRR and EoRR.
    Open {
        until: Instant,
    },
}

/// Refreshes of one session.
#[derive(Clone, Debug)]
pub struct Refresh {
    families: Families,
    supported: bool,
    enhanced: bool,
    /// Indexed by family.
    windows: [Window; 2],
    /// When a family was last marked; indexed likewise.
    marked: [Option<Instant>; 2],
}

impl Refresh {
    /// Of a session that has just come up.
    pub fn new(negotiated: &Negotiated) -> Self {
        let window = if negotiated.restart.is_some() { Window::Initial } else { Window::Quiet };
        Self {
            families: negotiated.families,
            supported: negotiated.route_refresh || negotiated.enhanced_refresh,
            enhanced: negotiated.enhanced_refresh,
            windows: [window; 2],
            marked: [None; 2],
        }
    }

    /// The message that asks for a family again. `None`: the peer cannot, or does not carry it.
    pub fn ask(&self, family: Family) -> Option<RouteRefresh> {
        let possible = self.supported && self.families.contains(family);
        possible.then(|| RouteRefresh::new(family, subtype::REQUEST))
    }

    /// The peer's ROUTE-REFRESH. What was not agreed on, and what RFC 7313 does not know, is ignored.
    pub fn handle_message(&mut self, message: RouteRefresh, now: Instant) -> Option<Order> {
        let family = Family::from_codes(message.afi, message.safi)?;
        if !self.families.contains(family) {
            return None;
        }
        match message.subtype {
            subtype::REQUEST => Some(Order::SendAll(family)),
            subtype::BEGIN if self.enhanced => self.open(family, now),
            subtype::END if self.enhanced => self.close(family).then_some(Order::Sweep(family)),
            _ => None,
        }
    }

    /// The peer's End-of-RIB.
    pub fn handle_end_of_rib(&mut self, family: Family) {
        let window = &mut self.windows[family.index()];
        if *window == Window::Initial {
            *window = Window::Quiet;
        }
    }

    /// Ends what the peer has not ended in time: families to sweep.
    pub fn handle_timeout(&mut self, now: Instant) -> Families {
        let due =
            |family: &Family| matches!(self.windows[family.index()], Window::Open { until } if until <= now);
        let due: Vec<_> = Family::ALL.into_iter().filter(due).collect();
        due.into_iter().filter(|family| self.close(*family)).collect()
    }

    /// When to call [`Refresh::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.windows.iter().filter_map(|window| match window {
            Window::Open { until } => Some(*until),
            Window::Initial | Window::Quiet => None,
        });
        open.min()
    }

    fn open(&mut self, family: Family, now: Instant) -> Option<Order> {
        let (window, marked) = (&mut self.windows[family.index()], &mut self.marked[family.index()]);
        let paused = marked.is_some_and(|at| now.saturating_duration_since(at) < PAUSE);
        if *window == Window::Initial || paused {
            return None;
        }
        (*window, *marked) = (Window::Open { until: now + WINDOW }, Some(now));
        Some(Order::Mark(family))
    }

    fn close(&mut self, family: Family) -> bool {
        let window = &mut self.windows[family.index()];
        let open = matches!(window, Window::Open { .. });
        if open {
            *window = Window::Quiet;
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restart::agreement;

    const V4: Family = Family::Ipv4Unicast;
    const V6: Family = Family::Ipv6Unicast;

    fn initial(enhanced: bool) -> Refresh {
        Refresh::new(&Negotiated { enhanced_refresh: enhanced, ..agreement(Families::ALL, true) })
    }

    fn quiet(enhanced: bool) -> Refresh {
        let mut refresh = initial(enhanced);
        Family::ALL.into_iter().for_each(|family| refresh.handle_end_of_rib(family));
        refresh
    }

    fn message(subtype: u8) -> RouteRefresh {
        RouteRefresh::new(V4, subtype)
    }

    #[test]
    fn we_ask_where_the_peer_can_answer() {
        assert_eq!(quiet(true).ask(V6), Some(RouteRefresh { afi: 2, subtype: 0, safi: 1 }));
        let agreed = agreement(Families::ALL, true);
        let deaf = Negotiated { route_refresh: false, enhanced_refresh: false, ..agreed.clone() };
        assert_eq!(Refresh::new(&deaf).ask(V4), None);
        let one = Negotiated { families: Families::from_iter([V4]), ..agreed };
        assert_eq!(Refresh::new(&one).ask(V6), None);
    }

    #[test]
    fn the_window_sweeps_at_its_end_or_in_time() {
        let now = Instant::now();
        let mut refresh = quiet(true);
        let (begin, end) = (message(1), message(2));
        assert_eq!(refresh.handle_message(end, now), None, "nothing was open");
        assert_eq!(refresh.handle_message(begin, now), Some(Order::Mark(V4)));
        assert_eq!(refresh.handle_message(end, now), Some(Order::Sweep(V4)));
        assert_eq!(refresh.poll_timeout(), None);
        refresh.handle_message(begin, now);
        let again = now + Duration::from_secs(9);
        assert_eq!(refresh.handle_message(begin, again), Some(Order::Mark(V4)), "it starts over");
        let until = refresh.poll_timeout().unwrap();
        assert_eq!(until, again + WINDOW);
        assert!(refresh.handle_timeout(until - Duration::from_secs(1)).is_empty());
        assert_eq!(refresh.handle_timeout(until), Families::from_iter([V4]));
        assert_eq!(refresh.handle_message(end, until), None);
    }

    #[test]
    fn a_flood_of_marks_is_one_mark_a_second() {
        let now = Instant::now();
        let mut refresh = quiet(true);
        let orders = |refresh: &mut Refresh, now| {
            let all = [1, 1, 2].repeat(1000).into_iter();
            all.filter_map(|subtype| refresh.handle_message(message(subtype), now)).collect::<Vec<_>>()
        };
        assert_eq!(orders(&mut refresh, now), [Order::Mark(V4), Order::Sweep(V4)]);
        assert_eq!(orders(&mut refresh, now + PAUSE / 2), []);
        let other = RouteRefresh::new(V6, 1);
        assert_eq!(refresh.handle_message(other, now), Some(Order::Mark(V6)), "families are apart");
        assert_eq!(orders(&mut refresh, now + PAUSE), [Order::Mark(V4), Order::Sweep(V4)]);
    }

    #[test]
    fn before_an_end_of_rib_that_is_owed_no_window_opens() {
        let now = Instant::now();
        let mut refresh = initial(true);
        assert_eq!(refresh.handle_message(message(1), now), None);
        assert_eq!(refresh.handle_message(message(2), now), None);
        refresh.handle_end_of_rib(V4);
        assert_eq!(refresh.handle_message(message(1), now), Some(Order::Mark(V4)));
        let owes_nothing =
            Negotiated { enhanced_refresh: true, restart: None, ..agreement(Families::ALL, true) };
        assert_eq!(Refresh::new(&owes_nothing).handle_message(message(1), now), Some(Order::Mark(V4)));
    }

    #[test]
    fn the_plain_kind_has_no_marks() {
        let now = Instant::now();
        let mut refresh = quiet(false);
        assert_eq!(refresh.handle_message(message(1), now), None);
        assert_eq!(refresh.handle_message(message(0), now), Some(Order::SendAll(V4)));
    }

    #[test]
    fn what_was_not_agreed_on_is_ignored() {
        let negotiated = Negotiated { families: Families::from_iter([V4]), ..agreement(Families::ALL, true) };
        let mut refresh = Refresh::new(&negotiated);
        for (afi, subtype, safi) in [(2, 0, 1), (1, 0, 128), (1, 3, 1), (25, 0, 70)] {
            assert_eq!(refresh.handle_message(RouteRefresh { afi, subtype, safi }, Instant::now()), None);
        }
    }
}
