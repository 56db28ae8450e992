//! What many values come to.

use serde::Serialize;

/// What the rounds come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Half of the rounds were below.
    pub(crate) median: f64,
    /// The lowest round.
    pub(crate) min: f64,
    /// The highest round.
    pub(crate) max: f64,
}

impl Summary {
    /// `None` of no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (quantile(values, 0.0)?, quantile(values, 1.0)?);
        Some(Self { median: quantile(values, 0.5)?, min, max })
    }
}

/// The value below which `share` (0 to 1) of the values lie, interpolated between neighbours; `None` of no values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let below = (0..sorted.len()).rev().find(|index| *index as f64 <= place)?;
    let next = sorted.get(below + 1).unwrap_or(&sorted[below]);
    Some(sorted[below] + (next - sorted[below]) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_in_the_middle() {
        for (values, median, min, max) in [
            (&[3.0][..], 3.0, 3.0, 3.0),
            (&[4.0, 1.0], 2.5, 1.0, 4.0),
            (&[9.0, 1.0, 2.0], 2.0, 1.0, 9.0),
            (&[1.0, 1.0, 8.0, 2.0], 1.5, 1.0, 8.0),
        ] {
            assert_eq!(Summary::of(values), Some(Summary { median, min, max }), "{values:?}");
        }
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn quantiles_are_interpolated() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&[0.0, 10.0], 0.99), Some(9.9));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
