//! Sending a family again on request, both ways (RFC 2918, RFC 7313).
//!
//! ```text
//!   what we receive                                   what we send
//!
//!            BoRR: mark                                        request: begin
//!   Quiet ───────────────► Open ──┐ BoRR: mark        Quiet ───────────────► Sending ──┐ request: once more
//!     ▲                     │ ▲───┘                     ▲                     │ ▲──────┘
//!     └─────────────────────┘                           └─────────────────────┘
//!        EoRR, time: sweep                                all sent: end; or begin once more
//! ```
//! Without the enhanced kind there are no marks: what we asked for just comes, and what the peer does not have any more it has
//! withdrawn long ago. Before the peer's End-of-RIB there is nothing to refresh: a mark then would sweep what graceful restart keeps.

use std::time::{Duration, Instant};

use crate::{Families, Family, fsm::Negotiated, wire::RouteRefresh};

/// How long the peer has from BoRR to EoRR (RFC 7313 section 4 asks for such a limit).
const WINDOW: Duration = Duration::from_secs(300);

/// Subtypes of ROUTE-REFRESH (RFC 7313 section 3.2).
mod subtype {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const BEGIN: u8 = 1;
    pub(super) const END: u8 = 2;
}

/// What to do about a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send this message: a request of ours, or EoRR.
    Send(RouteRefresh),
    /// Send this mark, if there is one, then everything that the peer should have, even if it has it; say so when that is done.
    SendAll(Family, Option<RouteRefresh>),
    /// Mark the peer's routes as not refreshed.
    Mark(Family),
    /// Delete those that still are.
    Sweep(Family),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    /// The peer has not said End-of-RIB yet.
    Initial,
    Quiet,
    /// Between BoRR and EoRR.
    Open {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    Quiet,
    /// Everything is being sent; `again`: it was asked for meanwhile. `marked`: with BoRR.
    Sending {
        again: bool,
        marked: bool,
    },
}

/// Both ways of one session.
#[derive(Clone, Debug)]
pub struct Refresh {
    families: Families,
    supported: bool,
    enhanced: bool,
    /// Indexed by family.
    inbound: [Inbound; 2],
    outbound: [Outbound; 2],
}

impl Refresh {
    /// Of a session that has just come up: both sides are sending everything for the first time.
    pub fn new(negotiated: &Negotiated) -> Self {
        Self {
            families: negotiated.families,
            supported: negotiated.route_refresh || negotiated.enhanced_refresh,
            enhanced: negotiated.enhanced_refresh,
            inbound: [Inbound::Initial; 2],
            outbound: [Outbound::Sending { again: false, marked: false }; 2],
        }
    }

    /// We want a family again. `None`: the peer cannot, or does not carry it.
    pub fn ask(&self, family: Family) -> Option<Order> {
        let possible = self.supported && self.families.contains(family);
        possible.then(|| Order::Send(message(family, subtype::REQUEST)))
    }

    /// The peer's ROUTE-REFRESH. What was not agreed on, and what RFC 7313 does not know, is ignored.
    pub fn handle_message(&mut self, message: RouteRefresh, now: Instant) -> Option<Order> {
        let family = Family::from_codes(message.afi, message.safi)?;
        if !self.families.contains(family) {
            return None;
        }
        match message.subtype {
            subtype::REQUEST => self.handle_request(family),
            subtype::BEGIN if self.enhanced => self.handle_begin(family, now),
            subtype::END if self.enhanced => self.close(family),
            _ => None,
        }
    }

    /// The peer's End-of-RIB.
    pub fn handle_end_of_rib(&mut self, family: Family) {
        let inbound = &mut self.inbound[family.index()];
        if *inbound == Inbound::Initial {
            *inbound = Inbound::Quiet;
        }
    }

    /// Everything of a family has been sent. The first time that is what End-of-RIB stands for, which is the caller's to send.
    pub fn handle_sent_all(&mut self, family: Family) -> Vec<Order> {
        let outbound = &mut self.outbound[family.index()];
        let Outbound::Sending { again, marked } = std::mem::replace(outbound, Outbound::Quiet) else {
            return Vec::new();
        };
        let end = marked.then(|| Order::Send(message(family, subtype::END)));
        let begin = if again { self.handle_request(family) } else { None };
        end.into_iter().chain(begin).collect()
    }

    /// Ends what the peer has not ended in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Order> {
        let due =
            |family: &Family| matches!(self.inbound[family.index()], Inbound::Open { until } if until <= now);
        let due: Vec<_> = Family::ALL.into_iter().filter(due).collect();
        due.into_iter().filter_map(|family| self.close(family)).collect()
    }

    /// When to call [`Refresh::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.inbound.iter().filter_map(|inbound| match inbound {
            Inbound::Open { until } => Some(*until),
            Inbound::Initial | Inbound::Quiet => None,
        });
        open.min()
    }

    fn handle_request(&mut self, family: Family) -> Option<Order> {
        match &mut self.outbound[family.index()] {
            Outbound::Sending { again, .. } => {
                *again = true;
                None
            }
            quiet @ Outbound::Quiet => {
                *quiet = Outbound::Sending { again: false, marked: self.enhanced };
                let begin = self.enhanced.then(|| message(family, subtype::BEGIN));
                Some(Order::SendAll(family, begin))
            }
        }
    }

    fn handle_begin(&mut self, family: Family, now: Instant) -> Option<Order> {
        let inbound = &mut self.inbound[family.index()];
        if *inbound == Inbound::Initial {
            return None;
        }
        *inbound = Inbound::Open { until: now + WINDOW };
        Some(Order::Mark(family))
    }

    fn close(&mut self, family: Family) -> Option<Order> {
        let inbound = &mut self.inbound[family.index()];
        let open = matches!(inbound, Inbound::Open { .. });
        if open {
            *inbound = Inbound::Quiet;
        }
        open.then_some(Order::Sweep(family))
    }
}

fn message(family: Family, subtype: u8) -> RouteRefresh {
    RouteRefresh { afi: family.afi(), subtype, safi: family.safi() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restart::agreement;

    const V4: Family = Family::Ipv4Unicast;
    const V6: Family = Family::Ipv6Unicast;

    /// Both initial dumps are done.
    fn quiet(enhanced: bool) -> Refresh {
        let negotiated = Negotiated { enhanced_refresh: enhanced, ..agreement(Families::ALL, true) };
        let mut refresh = Refresh::new(&negotiated);
        for family in Family::ALL {
            refresh.handle_end_of_rib(family);
            assert_eq!(refresh.handle_sent_all(family), [], "the end of the first time is End-of-RIB");
        }
        refresh
    }

    #[test]
    fn we_ask_where_the_peer_can_answer() {
        let request = Order::Send(RouteRefresh { afi: 2, subtype: 0, safi: 1 });
        assert_eq!(quiet(true).ask(V6), Some(request));
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
        let (begin, end) = (message(V4, 1), message(V4, 2));
        assert_eq!(refresh.handle_message(end, now), None, "nothing was open");
        assert_eq!(refresh.handle_message(begin, now), Some(Order::Mark(V4)));
        assert_eq!(refresh.handle_message(end, now), Some(Order::Sweep(V4)));
        assert_eq!(refresh.poll_timeout(), None);
        refresh.handle_message(begin, now);
        let again = now + Duration::from_secs(9);
        assert_eq!(refresh.handle_message(begin, again), Some(Order::Mark(V4)), "it starts over");
        let until = refresh.poll_timeout().unwrap();
        assert_eq!(until, again + WINDOW);
        assert_eq!(refresh.handle_timeout(until - Duration::from_secs(1)), []);
        assert_eq!(refresh.handle_timeout(until), [Order::Sweep(V4)]);
        assert_eq!(refresh.handle_message(end, until), None);
    }

    /// rustbgpd PR #688: a window must not sweep what graceful restart keeps.
    #[test]
    fn before_end_of_rib_no_window_opens() {
        let now = Instant::now();
        let mut refresh = Refresh::new(&agreement(Families::ALL, true));
        assert_eq!(refresh.handle_message(message(V4, 1), now), None);
        assert_eq!(refresh.handle_message(message(V4, 2), now), None);
        refresh.handle_end_of_rib(V4);
        assert_eq!(refresh.handle_message(message(V4, 1), now), Some(Order::Mark(V4)));
    }

    #[test]
    fn requests_while_one_is_served_are_one_more() {
        let now = Instant::now();
        let mut refresh = quiet(true);
        let all = Order::SendAll(V4, Some(message(V4, 1)));
        assert_eq!(refresh.handle_message(message(V4, 0), now), Some(all));
        for _ in 0..5 {
            assert_eq!(refresh.handle_message(message(V4, 0), now), None);
        }
        let end = Order::Send(message(V4, 2));
        assert_eq!(refresh.handle_sent_all(V4), [end, all]);
        assert_eq!(refresh.handle_sent_all(V4), [end]);
        assert_eq!(refresh.handle_sent_all(V4), []);
    }

    #[test]
    fn a_request_during_the_first_sending_follows_it() {
        let mut refresh = Refresh::new(&agreement(Families::ALL, true));
        assert_eq!(refresh.handle_message(message(V4, 0), Instant::now()), None);
        assert_eq!(refresh.handle_sent_all(V4), [Order::SendAll(V4, Some(message(V4, 1)))]);
    }

    #[test]
    fn the_plain_kind_has_no_marks() {
        let now = Instant::now();
        let mut refresh = quiet(false);
        assert_eq!(refresh.handle_message(message(V4, 1), now), None);
        assert_eq!(refresh.handle_message(message(V4, 0), now), Some(Order::SendAll(V4, None)));
        assert_eq!(refresh.handle_sent_all(V4), []);
    }

    #[test]
    fn what_was_not_agreed_on_is_ignored() {
        let now = Instant::now();
        let negotiated = Negotiated { families: Families::from_iter([V4]), ..agreement(Families::ALL, true) };
        let mut refresh = Refresh::new(&negotiated);
        refresh.handle_sent_all(V4);
        for (afi, subtype, safi) in [(2, 0, 1), (1, 0, 128), (1, 3, 1), (25, 0, 70)] {
            assert_eq!(refresh.handle_message(RouteRefresh { afi, subtype, safi }, now), None);
        }
    }
}
