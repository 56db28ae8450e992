//! How often an issuer's word makes a node renew. Pure.
//!
//! Nobody signs that word: any node of the site that sits at an issuer's address could give it, again and again. So it is followed a few
//! times in a row, for a rotation and what may go wrong with it, and in the long run once a minute. What is not followed now is not lost:
//! the issuer's last word stands, and is looked at again.

use std::time::{Duration, Instant};

/// As many words at once.
const WORDS: usize = 3;
/// In this time.
const SPAN: Duration = Duration::from_secs(180);

/// The last words that were followed.
#[derive(Debug, Default)]
pub(super) struct Pace(Vec<Instant>);

impl Pace {
    /// May one more be followed? It counts then.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        self.0.retain(|at| now.saturating_duration_since(*at) < SPAN);
        let room = self.0.len() < WORDS;
        if room {
            self.0.push(now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_a_row_and_one_a_minute_in_the_long_run() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!([0, 1, 2, 3, 179].map(|s| pace.allow(at(s))), [true, true, true, false, false]);
        assert_eq!([180, 180, 181, 182].map(|s| pace.allow(at(s))), [true, false, true, true]);
        let hour = (183..3783).filter(|s| pace.allow(at(*s))).count();
        assert_eq!(hour, 60);
    }
}
