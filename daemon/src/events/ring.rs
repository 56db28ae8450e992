//! The events themselves: a queue of fixed length, numbered.

use std::{collections::VecDeque, sync::Arc, time::SystemTime};

use super::Event;

/// Looked at for one page, at most: the lock is held that long.
const LOOK: usize = 256;

/// The last events, each with a number that rises by one from 1.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    capacity: usize,
    /// Number of the first event that is kept, or of the next one where none is.
    first: u64,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only those with a higher number.
    pub after: u64,
    /// Only those of then or later.
    pub since: Option<SystemTime>,
    /// Only those of this subsystem.
    pub subsystem: Option<String>,
}

/// An answer to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Events with their numbers, oldest first; perhaps none although there are more.
    pub events: Vec<(u64, Arc<Event>)>,
    /// So many were asked for, or may have been, and are gone.
    pub lost: u64,
    /// Where to go on.
    pub next: u64,
    /// All that is there has been looked at.
    pub complete: bool,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { events: VecDeque::new(), capacity, first: 1 }
    }

    pub(super) fn push(&mut self, event: Event) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(Arc::new(event));
    }

    pub(super) fn page(&self, query: &Query) -> Page {
        let from = self.first.max(query.after.saturating_add(1));
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let seen = || (from..).zip(self.events.iter().skip(skip)).take(LOOK);
        let events =
            seen().filter(|(_, event)| query.wants(event)).map(|(number, event)| (number, event.clone()));
        let next = from - 1 + seen().count() as u64;
        Page {
            events: events.collect(),
            lost: self.lost(query),
            next,
            complete: next + 1 >= self.first + self.events.len() as u64,
        }
    }

    /// Nothing that is asked for is gone when the oldest event that is kept is older than all that is asked for.
    fn lost(&self, query: &Query) -> u64 {
        let too_old = |since| self.events.front().is_some_and(|oldest| oldest.time < since);
        if query.since.is_some_and(too_old) { 0 } else { (self.first - 1).saturating_sub(query.after) }
    }
}

impl Query {
    fn wants(&self, event: &Event) -> bool {
        self.since.is_none_or(|since| event.time >= since)
            && self.subsystem.as_deref().is_none_or(|subsystem| event.subsystem == subsystem)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::events::Level;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    /// A ring of four after events at seconds 1 to `count`, every second one of BGP.
    fn ring(count: u64) -> Ring {
        let mut ring = Ring::new(4);
        for second in 1..=count {
            let subsystem = if second % 2 == 0 { "bgp" } else { "fib" };
            ring.push(Event::new(at(second), Level::Info, subsystem));
        }
        ring
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.events.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn the_oldest_go_and_the_gap_is_told() {
        for (count, kept, lost) in [(0, 1..1, 0), (3, 1..4, 0), (4, 1..5, 0), (9, 6..10, 5)] {
            let page = ring(count).page(&Query::default());
            assert_eq!(numbers(&page), kept.collect::<Vec<_>>());
            assert_eq!((page.lost, page.next, page.complete), (lost, count, true), "{count}");
        }
    }

    #[test]
    fn a_reader_goes_on_where_it_stopped() {
        let query = |after| Query { after, ..Query::default() };
        let page = ring(9).page(&query(7));
        assert_eq!((numbers(&page), page.lost, page.next), (vec![8, 9], 0, 9));
        let page = ring(9).page(&query(3));
        assert_eq!((numbers(&page), page.lost), (vec![6, 7, 8, 9], 2));
        let page = ring(9).page(&query(9));
        assert_eq!((numbers(&page), page.next, page.complete), (vec![], 9, true));
    }

    #[test]
    fn conditions_must_all_hold() {
        let query = Query { since: Some(at(7)), subsystem: Some("bgp".into()), after: 0 };
        let page = ring(9).page(&query);
        // What is gone is older than what is asked for.
        assert_eq!((numbers(&page), page.lost, page.next), (vec![8], 0, 9));
        let page = ring(9).page(&Query { since: Some(at(2)), ..query });
        assert_eq!((numbers(&page), page.lost), (vec![6, 8], 5));
    }

    #[test]
    fn a_long_journal_comes_in_pages() {
        let mut ring = Ring::new(1000);
        (0..600).for_each(|second| ring.push(Event::new(at(second), Level::Info, "bgp")));
        let (mut query, mut all, mut pages) = (Query::default(), Vec::new(), 0);
        loop {
            let page = ring.page(&query);
            all.extend(numbers(&page));
            (query.after, pages) = (page.next, pages + 1);
            if page.complete {
                break;
            }
        }
        assert_eq!((all, pages), ((1..=600).collect(), 3));
    }
}
