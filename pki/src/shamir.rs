//! Shamir's secret sharing: 32 random bytes become N shares, any M of which give them back and fewer say nothing.
//!
//! Each byte of the secret is the value at 0 of a polynomial of its own of degree M - 1. Its other coefficients are random, each of
//! the 256 values as likely as any other, zero included. Share i holds the values at i. The field is that of AES (FIPS 197
//! section 4.2). Arithmetic with secret bytes takes the same time whatever they are; the indices are public.

use std::{fmt, hint::black_box, str::FromStr};

use zeroize::Zeroizing;

/// Length of what is split, in bytes.
pub const SECRET_LEN: usize = 32;

/// What is split: it must be random, because a share of a guessable secret can be tried out.
pub type Secret = Zeroizing<[u8; SECRET_LEN]>;

/// How many shares there are, and how many of them it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    threshold: u8,
    total: u8,
}

/// A quorum that protects nothing, or can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it like 2/3: at least two of at most 255 shares must be needed, and no more than there are")]
pub struct BadQuorum;

impl Quorum {
    /// `threshold` of `total`; one share that is enough alone would be a copy of the secret.
    pub fn new(threshold: u8, total: u8) -> Result<Self, BadQuorum> {
        if (2..=total).contains(&threshold) { Ok(Self { threshold, total }) } else { Err(BadQuorum) }
    }

    /// How many shares it takes: at least 2.
    pub fn threshold(self) -> u8 {
        self.threshold
    }

    /// How many shares there are.
    pub fn total(self) -> u8 {
        self.total
    }
}

impl FromStr for Quorum {
    type Err = BadQuorum;

    fn from_str(text: &str) -> Result<Self, BadQuorum> {
        let (threshold, total) = text.split_once('/').ok_or(BadQuorum)?;
        let number = |text: &str| text.parse().map_err(|_| BadQuorum);
        Self::new(number(threshold)?, number(total)?)
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.threshold, self.total)
    }
}

/// One share: the values of the 32 polynomials at `index`.
#[derive(Clone)]
pub struct Point {
    /// Where, from 1.
    pub index: u8,
    /// The values there.
    pub values: Secret,
}

/// Splits a secret; `fill` gives random bytes. The shares have the indices 1 to N.
pub fn split<E>(
    secret: &Secret,
    quorum: Quorum,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Vec<Point>, E> {
    let mut coefficients = vec![secret.clone()];
    for _ in 1..quorum.threshold {
        let mut random = Secret::default();
        fill(random.as_mut_slice())?;
        coefficients.push(random);
    }
    Ok((1..=quorum.total).map(|index| Point { index, values: evaluate(&coefficients, index) }).collect())
}

/// Horner's rule for all 32 polynomials.
fn evaluate(coefficients: &[Secret], x: u8) -> Secret {
    let mut values = Secret::default();
    for coefficient in coefficients.iter().rev() {
        for (value, term) in values.iter_mut().zip(coefficient.iter()) {
            *value = multiply(*value, x) ^ term;
        }
    }
    values
}

/// The values at `x` of the polynomials of least degree through the points, whose indices must differ; the secret is at 0.
pub fn interpolate(points: &[Point], x: u8) -> Secret {
    let mut values = Secret::default();
    for point in points {
        let weight = weight(points, point.index, x);
        for (value, y) in values.iter_mut().zip(point.values.iter()) {
            *value ^= multiply(*y, weight);
        }
    }
    values
}

/// Lagrange's basis polynomial of `index`, at `x`. Subtraction is exclusive or in this field.
fn weight(points: &[Point], index: u8, x: u8) -> u8 {
    let others = points.iter().map(|point| point.index).filter(|other| *other != index);
    others.fold(1, |product, other| multiply(product, multiply(x ^ other, inverse(index ^ other))))
}

/// Product in GF(256), by masks instead of branches and tables.
fn multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= a & black_box(0u8.wrapping_sub((b >> bit) & 1));
        a = (a << 1) ^ (0x1b & black_box(0u8.wrapping_sub(a >> 7)));
    }
    product
}

/// `a` to the power of 254; that of 0 is 0.
fn inverse(a: u8) -> u8 {
    let square_and_multiply = |power: u8, _| multiply(multiply(power, power), a);
    let to_127 = (0..6).fold(a, square_and_multiply);
    multiply(to_127, to_127)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, convert::Infallible};

    use proptest::prelude::*;

    use super::*;

    fn random(bytes: &mut [u8]) -> Result<(), Infallible> {
        aws_lc_rs::rand::fill(bytes).unwrap();
        Ok(())
    }

    fn quorum(threshold: u8, total: u8) -> Quorum {
        Quorum::new(threshold, total).unwrap()
    }

    fn shares(secret: u8, threshold: u8, total: u8) -> Vec<Point> {
        split(&Secret::new([secret; SECRET_LEN]), quorum(threshold, total), random).unwrap()
    }

    #[test]
    fn the_field_is_that_of_aes() {
        // FIPS 197 sections 4.2 and 4.2.1; 0xca is the inverse of 0x53 there.
        for (a, b, product) in [(0x57, 0x83, 0xc1), (0x57, 0x13, 0xfe), (0x57, 0x02, 0xae), (0x53, 0xca, 1)] {
            assert_eq!((multiply(a, b), multiply(b, a)), (product, product));
        }
        assert_eq!((inverse(0x53), inverse(0), inverse(1)), (0xca, 0, 1));
        assert!((1..=255).all(|a| multiply(a, inverse(a)) == 1));
        // Schoolbook: multiply as polynomials, then reduce.
        for (a, b) in (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))) {
            let long = (0..8).fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit) * (u16::from(b) >> bit & 1));
            let reduce = |value: u16, bit: u16| value ^ (0x11b << bit) * (value >> (bit + 8) & 1);
            assert_eq!(u16::from(multiply(a, b)), (0..8).rev().fold(long, reduce), "{a} {b}");
        }
    }

    #[test]
    fn a_share_worked_out_by_hand() {
        // 0x42 + 0x57 x, at 1, 2 and 3: the products are those of the field's table.
        let fill = |bytes: &mut [u8]| {
            bytes.fill(0x57);
            Ok::<_, Infallible>(())
        };
        let points = split(&Secret::new([0x42; SECRET_LEN]), quorum(2, 3), fill).unwrap();
        let values: Vec<_> = points.iter().map(|point| (point.index, point.values[31])).collect();
        assert_eq!(values, [(1, 0x42 ^ 0x57), (2, 0x42 ^ 0xae), (3, 0x42 ^ 0x57 ^ 0xae)]);
    }

    #[test]
    fn quorums() {
        assert_eq!("2/3".parse(), Ok(quorum(2, 3)));
        assert_eq!(quorum(3, 5).to_string(), "3 of 5");
        for bad in ["", "3", "1/3", "0/0", "4/3", "2/256", "2/3/4", "-2/3", "a/b"] {
            assert_eq!(bad.parse::<Quorum>(), Err(BadQuorum), "{bad}");
        }
    }

    /// RUSTSEC-2024-0398, mikelodder7/vsss-rs#24: coefficients that are never zero, or not uniform, tell about the secret.
    #[test]
    fn share_bytes_are_uniform() {
        const SPLITS: u32 = 100_000;
        let (secret, mut counts) = (0x5a, [0u32; 256]);
        for _ in 0..SPLITS {
            counts[usize::from(shares(secret, 2, 2)[0].values[0])] += 1;
        }
        let expected = f64::from(SPLITS) / 256.0;
        let chi_squared: f64 = counts.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
        // 255 degrees of freedom: mean 255, deviation 22.6. Chance passes 420 once in some 10^9 runs; one value left out makes 645.
        assert!((130.0..420.0).contains(&chi_squared), "chi squared {chi_squared}");
        assert!(counts[usize::from(secret)] > 0, "a coefficient of zero never occurred");
    }

    #[test]
    fn too_few_shares_leave_every_secret_possible() {
        for threshold in [2, 3, 5] {
            let mut known = shares(0xa7, threshold, threshold);
            let last = known.pop().unwrap().index;
            let mut seen = BTreeSet::new();
            for candidate in 0..=255 {
                let mut points = known.clone();
                points.push(Point { index: 0, values: Secret::new([candidate; SECRET_LEN]) });
                let missing = Point { index: last, values: interpolate(&points, last) };
                seen.insert(missing.values[0]);
                points.pop();
                points.push(missing);
                assert_eq!(interpolate(&points, 0)[0], candidate);
            }
            assert_eq!(seen.len(), 256, "each candidate belongs to one value of the missing share");
        }
    }

    proptest! {
        #[test]
        fn any_quorum_gives_the_secret_back(
            secret in any::<[u8; SECRET_LEN]>(), threshold in 2u8..6, more in 0u8..5, skip in 0usize..5,
        ) {
            let secret = Secret::new(secret);
            let mut points = split(&secret, quorum(threshold, threshold + more), random).unwrap();
            points.rotate_left(skip % usize::from(threshold));
            points.truncate(threshold.into());
            prop_assert_eq!(interpolate(&points, 0), secret.clone());
            points.pop();
            prop_assert_ne!(interpolate(&points, 0), secret);
        }
    }
}
