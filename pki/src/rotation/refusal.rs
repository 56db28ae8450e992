//! Why a step is not taken.

use std::fmt;

use super::fleet::Lag;
use crate::facts::utc;

/// Everything that stands in the way of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// At least one.
    pub obstacles: Vec<Obstacle>,
}

/// One thing in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A known node is not there yet.
    Lagging(Lag),
    /// It is too early.
    TooEarly {
        /// What is waited for.
        what: String,
        /// Until when.
        until: i64,
    },
    /// Istio can't be asked: the operator must say so.
    IstioUnchecked,
    /// There is no CA to reissue leaves with.
    NoSuccessor,
    /// Can't be done at all.
    Impossible(String),
}

impl Obstacle {
    /// May an operator with a reason pass it over?
    pub fn can_be_overridden(&self) -> bool {
        !matches!(self, Self::Impossible(_))
    }
}

impl Refusal {
    /// May an operator with a reason pass over all of it?
    pub fn can_be_overridden(&self) -> bool {
        self.obstacles.iter().all(Obstacle::can_be_overridden)
    }

    pub(super) fn impossible(reason: impl Into<String>) -> Self {
        Self { obstacles: vec![Obstacle::Impossible(reason.into())] }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagging(Lag { node, what }) => write!(f, "node {node} lags: {what}"),
            Self::TooEarly { what, until } => write!(f, "too early: {what}, until {}", utc(*until)),
            Self::IstioUnchecked => f.write_str(
                "nobody said that Istio's cacerts hold the new root in every cluster; check with `isthmusctl certs doctor`, then say --istio-checked WHAT-WAS-CHECKED",
            ),
            Self::NoSuccessor => f.write_str(
                "no prepared site CA to reissue leaves with: holders would be left without an identity when theirs end",
            ),
            Self::Impossible(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.obstacles.iter().map(ToString::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

impl std::error::Error for Refusal {}
