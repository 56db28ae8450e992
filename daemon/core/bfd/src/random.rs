//! Numbers that differ from session to session, from a seed.

/// SplitMix64: enough to keep packets of different systems from marching in step, which is all that jitter is for.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in 0..`limit`.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        // The high 32 bits scaled: the product of two u32 shifted by 32 fits again.
        let scaled = ((self.next() >> 32) * u64::from(limit)) >> 32;
        u32::try_from(scaled).unwrap_or(0)
    }
}
