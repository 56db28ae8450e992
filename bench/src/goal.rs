//! What must be reached, against the others in the same run.

mod list;

use serde::Serialize;

use Bound::{Fixed, Plus, Times};
use list::GOALS;

use crate::{
    contender::Name,
    figure::{Figure, Samples},
    summary::Summary,
};

/// A figure, what it must reach and what it is to reach.
#[derive(Clone, Copy, Debug)]
struct Goal {
    figure: Figure,
    least: Bound,
    aim: Bound,
}

/// A limit for our own median: from above where less is better, from below where more is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// So many times the rival's.
    Times(Name, f64),
    /// So much more than the rival's.
    Plus(Name, f64),
    /// A number.
    Fixed(f64),
}

/// How a goal was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// What it is to reach.
    Aim,
    /// What it must reach.
    Pass,
    /// Less.
    Fail,
}

/// One line of the judgement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// Of what.
    pub(crate) figure: Figure,
    /// Our median in terms of the lower bound: "1.52x wireguard-go".
    pub(crate) measured: String,
    /// The same as a number.
    pub(crate) value: f64,
    /// What it must reach.
    pub(crate) at_least: String,
    /// What it is to reach.
    pub(crate) aim: String,
    /// How it went.
    pub(crate) mark: Mark,
}

/// Judges every goal whose figures were measured.
pub(crate) fn judge(results: &[(Name, Samples)]) -> Vec<Verdict> {
    GOALS.iter().filter_map(|goal| goal.judge(results)).collect()
}

/// The median of one program's figure.
fn median(results: &[(Name, Samples)], name: Name, figure: Figure) -> Option<f64> {
    let (_, samples) = results.iter().find(|(of, _)| *of == name)?;
    Some(Summary::of(samples.get(&figure)?)?.median)
}

impl Goal {
    fn judge(&self, results: &[(Name, Samples)]) -> Option<Verdict> {
        let ours = median(results, Name::Isthmus, self.figure)?;
        let reaches = |bound: Bound| -> Option<bool> {
            let limit = bound.limit(results, self.figure)?;
            Some(if self.figure.more_is_better() { ours >= limit } else { ours <= limit })
        };
        let mark = match (reaches(self.least)?, reaches(self.aim)?) {
            (true, true) => Mark::Aim,
            (true, false) => Mark::Pass,
            (false, _) => Mark::Fail,
        };
        let value = self.least.value(ours, results, self.figure)?;
        Some(Verdict {
            figure: self.figure,
            measured: self.least.with(value).text(self.figure),
            value,
            at_least: self.least.text(self.figure),
            aim: self.aim.text(self.figure),
            mark,
        })
    }
}

impl Bound {
    /// What our median is compared with.
    fn limit(self, results: &[(Name, Samples)], figure: Figure) -> Option<f64> {
        Some(match self {
            Times(rival, factor) => factor * median(results, rival, figure)?,
            Plus(rival, more) => more + median(results, rival, figure)?,
            Fixed(value) => value,
        })
    }

    /// Our median on this bound's scale.
    fn value(self, ours: f64, results: &[(Name, Samples)], figure: Figure) -> Option<f64> {
        Some(match self {
            Times(rival, _) => ours / Some(median(results, rival, figure)?).filter(|theirs| *theirs > 0.0)?,
            Plus(rival, _) => ours - median(results, rival, figure)?,
            Fixed(_) => ours,
        })
    }

    fn with(self, value: f64) -> Self {
        match self {
            Times(rival, _) => Times(rival, value),
            Plus(rival, _) => Plus(rival, value),
            Fixed(_) => Fixed(value),
        }
    }

    fn text(self, figure: Figure) -> String {
        match self {
            Times(rival, factor) => format!("{factor:.2}x {rival}"),
            Plus(rival, more) => format!("{rival} {more:+.0}"),
            Fixed(value) => format!("{value:.*} {}", figure.decimals(), figure.unit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use Name::{BoringtunCli, WireguardGo};

    use super::*;

    fn results(
        ours: &[(Figure, f64)],
        go: &[(Figure, f64)],
        boringtun: &[(Figure, f64)],
    ) -> Vec<(Name, Samples)> {
        let samples =
            |values: &[(Figure, f64)]| values.iter().map(|(figure, value)| (*figure, vec![*value])).collect();
        vec![(Name::Isthmus, samples(ours)), (WireguardGo, samples(go)), (BoringtunCli, samples(boringtun))]
    }

    fn mark(figure: Figure, ours: f64, theirs: f64) -> Mark {
        let both = [(figure, theirs)];
        let verdicts = judge(&results(&[(figure, ours)], &both, &both));
        assert_eq!(verdicts.len(), 1);
        verdicts[0].mark
    }

    #[test]
    fn more_than_the_rival_is_wanted_of_rates_and_less_of_costs() {
        for (figure, ours, theirs, expected) in [
            (Figure::Tcp1, 4.0, 2.0, Mark::Aim),
            (Figure::Tcp1, 3.0, 2.0, Mark::Pass),
            (Figure::Tcp1, 2.9, 2.0, Mark::Fail),
            (Figure::Udp64, 60.0, 30.0, Mark::Fail),
            (Figure::Udp64, 120.0, 30.0, Mark::Aim),
            (Figure::Ping, 0.1, 0.1, Mark::Pass),
            (Figure::Ping, 0.06, 0.1, Mark::Aim),
            (Figure::Ping, 0.2, 0.1, Mark::Fail),
            (Figure::CpuPerGbit, 0.5, 1.0, Mark::Pass),
            (Figure::Tcp4Retransmits, 60.0, 10.0, Mark::Pass),
            (Figure::Tcp4Retransmits, 61.0, 10.0, Mark::Fail),
            (Figure::Tcp4Retransmits, 0.0, 10.0, Mark::Aim),
            (Figure::PeakRss, 65.0, 590.0, Mark::Fail),
            (Figure::PeakRss, 24.0, 590.0, Mark::Aim),
            (Figure::ManyPeersIdle, 0.9, 0.0, Mark::Pass),
            (Figure::Failover, 1.1, 0.0, Mark::Fail),
            (Figure::Failover, 0.09, 0.0, Mark::Aim),
            (Figure::FailoverStrays, 0.0, 0.0, Mark::Aim),
            (Figure::FailoverStrays, 1.0, 0.0, Mark::Fail),
        ] {
            assert_eq!(mark(figure, ours, theirs), expected, "{figure:?} {ours} against {theirs}");
        }
    }

    #[test]
    fn a_verdict_says_how_much() {
        let both = results(&[(Figure::Tcp1, 3.04)], &[(Figure::Tcp1, 2.0)], &[]);
        let verdict = &judge(&both)[0];
        assert_eq!(
            (verdict.measured.as_str(), verdict.at_least.as_str(), verdict.aim.as_str()),
            ("1.52x wireguard-go", "1.50x wireguard-go", "2.00x wireguard-go")
        );
    }

    #[test]
    fn nothing_is_judged_without_the_rival_or_us() {
        assert!(judge(&results(&[(Figure::Tcp1, 3.0)], &[], &[(Figure::Tcp1, 1.0)])).is_empty());
        assert!(judge(&results(&[], &[(Figure::Tcp1, 3.0)], &[])).is_empty());
        assert!(judge(&results(&[(Figure::Tcp1, 3.0)], &[(Figure::Tcp1, 0.0)], &[])).is_empty());
        assert_eq!(judge(&results(&[(Figure::PeakRss, 3.0)], &[], &[])).len(), 1);
    }
}
