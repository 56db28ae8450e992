//! How keys are hashed.

use foldhash::{SharedSeed, fast::SeedableRandomState};

/// Makes the hashes of a table.
pub type Hasher = SeedableRandomState;

/// The hasher's constants follow from a seed by multiplication, which makes nothing of a zero: 2^64 over the golden ratio, which no test
/// picks by chance.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The secret of hash tables. Others choose the prefixes that we store: without a secret they could choose ones that all fall into one
/// bucket.
///
/// Make one in a process, from randomness, and copy it: what a seed needs is never freed.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    own: u64,
    shared: &'static SharedSeed,
}

impl Seed {
    /// `entropy`: 64 bits that nobody outside can know.
    pub fn new(entropy: u64) -> Self {
        let shared = SharedSeed::from_u64(entropy ^ ODD);
        Self { own: entropy.rotate_left(32), shared: Box::leak(Box::new(shared)) }
    }

    /// A hasher with this secret, for other tables whose keys others choose.
    pub fn hasher(self) -> Hasher {
        SeedableRandomState::with_seed(self.own, self.shared)
    }
}
