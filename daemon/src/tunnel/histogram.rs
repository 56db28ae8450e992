//! How large batches are, in powers of two.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets: 1, up to 2, up to 4, ... up to 512, more.
pub(super) const BOUNDS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Counts of batches by size.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

/// A copy of a [`Histogram`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes {
    /// (upper bound of the bucket, batches of this size and below); ends with the count of all under `None`.
    pub cumulative: Vec<(Option<u64>, u64)>,
    /// Packets in all batches together.
    pub packets: u64,
}

impl Histogram {
    /// Counts a batch of so many packets; an empty one is none.
    pub(super) fn record(&self, size: u64) {
        if size > 0 {
            let bucket = BOUNDS.partition_point(|bound| *bound < size);
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(size, Ordering::Relaxed);
        }
    }

    pub(super) fn sizes(&self) -> BatchSizes {
        let mut total = 0;
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        let cumulative = bounds.zip(&self.buckets).map(|(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (bound, total)
        });
        BatchSizes { cumulative: cumulative.collect(), packets: self.sum.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for size in [0, 1, 1, 2, 3, 64, 65, 10_000] {
            histogram.record(size);
        }
        let sizes = histogram.sizes();
        assert_eq!(sizes.packets, 1 + 1 + 2 + 3 + 64 + 65 + 10_000);
        let at = |bound| sizes.cumulative.iter().find(|(of, _)| *of == bound).unwrap().1;
        assert_eq!((at(Some(1)), at(Some(2)), at(Some(4)), at(Some(64))), (2, 3, 4, 5));
        assert_eq!((at(Some(128)), at(Some(512)), at(None)), (6, 6, 7));
    }
}
