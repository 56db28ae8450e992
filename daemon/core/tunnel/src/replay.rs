//! Which counters of a session were seen: a ring of bits behind the greatest one (RFC 6479).

/// A counter this far behind the greatest one seen is still judged; older ones are refused.
pub const WINDOW: u64 = 8192;

const BITS: u64 = u64::BITS as u64;
/// One word more than the window needs: the word of the greatest counter is only partly in use.
const WORDS: usize = (WINDOW / BITS) as usize + 1;

/// The counters seen. Nothing enters it before it is authentic.
#[derive(Debug)]
pub struct Window {
    words: Box<[u64; WORDS]>,
    /// One more than the greatest counter seen.
    next: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { words: Box::new([0; WORDS]), next: 0 }
    }
}

impl Window {
    /// Remembers a counter; false if it was seen before or is too old to tell.
    pub fn mark(&mut self, counter: u64) -> bool {
        if is_too_old(self.next, counter) {
            return false;
        }
        if counter >= self.next {
            self.advance(counter);
        }
        let (word, bit) = position(counter);
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// One more than the greatest counter seen.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Clears the words between the greatest counter so far and a greater one.
    fn advance(&mut self, counter: u64) {
        let (old, new) = (self.next.checked_sub(1).map_or(0, |last| last / BITS), counter / BITS);
        let steps = (new - old).min(WORDS as u64);
        for step in 1..=steps {
            self.words[index(old + step)] = 0;
        }
        self.next = counter.saturating_add(1);
    }
}

/// True if a counter is behind the window whose greatest counter is `next - 1`.
pub fn is_too_old(next: u64, counter: u64) -> bool {
    counter.saturating_add(WINDOW) < next
}

fn position(counter: u64) -> (usize, u64) {
    (index(counter / BITS), 1 << (counter % BITS))
}

fn index(word: u64) -> usize {
    usize::try_from(word % WORDS as u64).expect("below the number of words")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The rule, without the ring.
    #[derive(Default)]
    struct Naive {
        seen: HashSet<u64>,
        next: u64,
    }

    impl Naive {
        fn mark(&mut self, counter: u64) -> bool {
            let fresh = !is_too_old(self.next, counter) && self.seen.insert(counter);
            self.next = self.next.max(counter.saturating_add(1));
            fresh
        }
    }

    #[test]
    fn reordering_by_the_whole_window_and_not_more() {
        let mut window = Window::default();
        assert!(window.mark(10_000));
        assert!(window.mark(2_000), "8000 late");
        assert!(window.mark(10_001 - WINDOW));
        assert!(!window.mark(10_000 - WINDOW));
        assert!(!window.mark(1_000), "9000 late");
        assert!(!window.mark(10_000) && !window.mark(2_000), "seen");
    }

    #[test]
    fn ends_of_the_range() {
        let mut window = Window::default();
        assert!(window.mark(0) && !window.mark(0));
        assert!(window.mark(u64::MAX - 1) && !window.mark(u64::MAX - 1) && !window.mark(0));
        assert!(window.mark(u64::MAX) && !window.mark(u64::MAX));
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_model(
            start in prop_oneof![Just(0), 0..100_000_u64, any::<u64>().prop_map(|n| n / 2)],
            steps in proptest::collection::vec(
                prop_oneof![-70_i64..70, -9000..9000_i64, Just(0), -100_000..100_000_i64], 1..400,
            ),
        ) {
            let (mut window, mut naive, mut counter) = (Window::default(), Naive::default(), start);
            for step in steps {
                counter = counter.saturating_add_signed(step);
                prop_assert_eq!(window.mark(counter), naive.mark(counter), "counter {}", counter);
                prop_assert_eq!(window.next(), naive.next);
            }
        }
    }
}
