//! Random bytes from a seed.

use super::hash::{Secret, kdf};

/// A generator that forgets: each draw replaces its key by one that does not tell what was drawn before, so keys that were made from
/// earlier draws stay secret even from somebody who reads it later.
pub(crate) struct Random {
    key: Secret,
}

impl Random {
    /// The seed is secret, random, and used once.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { key: Secret::new(seed) }
    }

    pub(crate) fn draw(&mut self) -> Secret {
        let [key, drawn] = kdf::<2>(&self.key, b"isthmus random");
        self.key = key;
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_follow_from_the_seed() {
        let draws = |seed| {
            let mut random = Random::new([seed; 32]);
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        let [a, b, c] = draws(1);
        assert!(a != b && b != c && a != c);
    }
}
