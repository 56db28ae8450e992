//! When a key that signs tokens is made, comes into use, and goes. Pure; times are seconds since the Unix epoch.
//!
//! ```text
//! made, published ---- lead ----> signs ---- half its life ----> next one signs ---- last token dies ----> gone
//!                                    |-- lead --|
//!                              next one is made and published before it signs
//! ```

use serde::{Deserialize, Serialize};

/// How long a key may sign, were there no other.
pub(super) const LIFE: i64 = 24 * 3600;
/// What consumers of the bundle are told to wait between two looks at it (SPIFFE Federation section 6).
pub(super) const REFRESH_HINT: i64 = 300;
/// From publishing a key to its first use: three looks, and a minute for clocks.
const LEAD: i64 = 3 * REFRESH_HINT + 60;
/// Longest life of a token (`jwt_ttl`), and what validators forgive.
const LONGEST_TOKEN: i64 = 3600 + 60;

/// The life of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    /// It signs from here on, as long as no later one does.
    pub(super) from: i64,
    /// Nothing that it signed is valid after this.
    pub(super) until: i64,
}

impl Span {
    fn starting(from: i64) -> Self {
        Self { from, until: from + LIFE }
    }
}

/// The one that signs now: the latest that may.
pub(super) fn active(spans: &[Span], now: i64) -> Option<usize> {
    let usable = spans.iter().enumerate().filter(|(_, span)| span.from <= now && now < span.until);
    usable.max_by_key(|(_, span)| span.from).map(|(index, _)| index)
}

/// The life of the key that is to be made now, if one is.
pub(super) fn next(spans: &[Span], now: i64) -> Option<Span> {
    // A clock that was set back leaves keys that begin far from now: they do not count.
    let near = |span: &&Span| span.from <= now + LEAD && now < span.until;
    let Some(latest) = spans.iter().filter(near).max_by_key(|span| span.from) else {
        // Nobody has a token of ours that a key could be prepared for.
        return Some(Span::starting(now));
    };
    let half = latest.from + LIFE / 2;
    (now >= half - LEAD).then(|| Span::starting((now + LEAD).min(latest.until)))
}

/// Is nothing valid any more of what it signed?
pub(super) fn is_over(spans: &[Span], index: usize, now: i64) -> bool {
    let own = spans[index];
    let successor = spans.iter().filter(|span| span.from > own.from).map(|span| span.from).min();
    now >= own.until || successor.is_some_and(|from| now >= from.saturating_add(LONGEST_TOKEN))
}

/// When something happens next: one is made, comes into use, or goes.
pub(super) fn due(spans: &[Span], now: i64) -> i64 {
    let moments = spans
        .iter()
        .flat_map(|span| [span.from, span.from + LIFE / 2 - LEAD, span.from + LONGEST_TOKEN, span.until]);
    moments.filter(|moment| *moment > now).min().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lives through some days in steps of a minute; tells who signed and who was published at each.
    fn live(days: i64, mut each: impl FnMut(i64, Span, &[Span])) {
        let mut spans: Vec<Span> = Vec::new();
        for now in (0..days * 86_400).step_by(60) {
            if let Some(span) = next(&spans, now) {
                spans.push(span);
            }
            let gone: Vec<usize> = (0..spans.len()).filter(|index| is_over(&spans, *index, now)).collect();
            gone.into_iter().rev().for_each(|index| {
                spans.remove(index);
            });
            let active = active(&spans, now).expect("somebody signs at any time");
            each(now, spans[active], &spans);
        }
    }

    #[test]
    fn a_key_is_published_three_hints_before_it_signs_and_stays_until_its_last_token_died() {
        let mut published: Vec<(Span, i64, i64)> = Vec::new();
        let mut signed: Vec<(Span, i64, i64)> = Vec::new();
        let note = |list: &mut Vec<(Span, i64, i64)>, span: Span, now| match list
            .iter_mut()
            .find(|(known, ..)| *known == span)
        {
            Some((_, _, last)) => *last = now,
            None => list.push((span, now, now)),
        };
        live(5, |now, active, all| {
            all.iter().for_each(|span| note(&mut published, *span, now));
            note(&mut signed, active, now);
            assert!(all.len() <= 2, "{all:?}");
        });
        assert!(signed.len() >= 9, "twice a day: {}", signed.len());
        for (number, (span, first, last)) in signed.iter().enumerate() {
            let (_, seen, until) = published.iter().find(|(known, ..)| known == span).unwrap();
            assert!(number == 0 || first - seen >= 3 * REFRESH_HINT, "{span:?}");
            assert!(last - first <= LIFE / 2 + 60, "rotated at half its life");
            let over = number + 1 < signed.len() && last + 3600 < 5 * 86_400;
            assert!(!over || until - last >= 3600, "{span:?}: its tokens outlived it");
        }
    }

    #[test]
    fn after_a_long_pause_there_is_a_key_at_once() {
        let old = [Span::starting(0)];
        assert_eq!(next(&old, 3 * LIFE), Some(Span::starting(3 * LIFE)));
        assert!(is_over(&old, 0, 3 * LIFE));
        let late = next(&old, LIFE - 10).unwrap();
        assert_eq!(late.from, LIFE, "no gap between the two");
    }

    #[test]
    fn a_clock_set_back_does_not_leave_us_without() {
        let future = [Span::starting(10 * LIFE)];
        assert_eq!(active(&future, 0), None);
        assert_eq!(next(&future, 0), Some(Span::starting(0)));
    }

    #[test]
    fn due_is_never_in_the_past() {
        let mut spans = Vec::new();
        let mut now = 0;
        for _ in 0..50 {
            spans.extend(next(&spans, now));
            spans.retain(|span: &Span| now < span.until);
            let then = due(&spans, now);
            assert!(then > now);
            now = then;
        }
        assert!(now > LIFE);
    }
}
