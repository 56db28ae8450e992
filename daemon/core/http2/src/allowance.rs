//! How much of what costs the client nothing is put up with.

use std::time::{Duration, Instant};

/// Most that is left at any time.
const MOST: u32 = 400;
/// One more for each of these.
const EACH: Duration = Duration::from_millis(20);

/// Streams that are begun and reset (CVE-2023-44487), frames of nothing, and streams that we have to reset: 400 at once and 50 a second.
/// Clients that time out and try again stay far below.
#[derive(Debug)]
pub struct Allowance {
    left: u32,
    since: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: MOST, since: None }
    }
}

impl Allowance {
    /// Takes one; false: there is none left.
    pub fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let grown = now.saturating_duration_since(since).as_millis() / EACH.as_millis();
        if let Ok(grown @ 1..) = u32::try_from(grown) {
            self.left = self.left.saturating_add(grown).min(MOST);
            self.since = Some(now);
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_up_and_grows_again() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        assert_eq!((0..1000).filter(|_| allowance.take(start)).count(), 400);
        let later = start + Duration::from_millis(101);
        assert_eq!((0..1000).filter(|_| allowance.take(later)).count(), 5);
        let much_later = later + Duration::from_secs(3600);
        assert_eq!((0..1000).filter(|_| allowance.take(much_later)).count(), 400);
    }
}
