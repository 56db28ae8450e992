//! The figures, what they must reach, and what they are to reach.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use super::{Plan, quantile};
use crate::report::Machine;

/// The form of [`Report`]; another number when a reader of this one would misread it.
const SCHEMA: &str = "isthmus-bench/streams/1";

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    machine: Machine,
    version: String,
    streams: usize,
    connected: usize,
    per_connection: u8,
    figures: Vec<Figure>,
}

/// One of them.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    value: f64,
    /// Not above this.
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<f64>,
}

impl Figure {
    fn verdict(&self) -> &'static str {
        let within = |bound: Option<f64>| bound.is_none_or(|bound| self.value <= bound);
        match (within(self.aim), within(self.least)) {
            _ if self.least.is_none() => "",
            (true, true) => "aim reached",
            (false, true) => "ok",
            _ => "MISSED",
        }
    }
}

impl Report {
    /// `first` is sorted here; of a change there is when the first and when the last stream had it, and what it cost the daemon; memory is in
    /// bytes: with nobody, with everybody, and after the changes.
    pub(super) fn new(
        plan: &Plan,
        machine: Machine,
        mut first: Vec<Duration>,
        gathering: Duration,
        changes: &[[Duration; 3]],
        memory: [u64; 3],
    ) -> Self {
        first.sort_unstable();
        let time = |name, value: Duration| Figure {
            name,
            unit: "ms",
            value: value.as_secs_f64() * 1e3,
            least: None,
            aim: None,
        };
        let goal =
            |figure: Figure, least: f64, aim: f64| Figure { least: Some(least), aim: Some(aim), ..figure };
        let size =
            |name, bytes: u64| Figure { unit: "MiB", value: mebibytes(bytes), ..time(name, Duration::ZERO) };
        let slowest = changes.iter().map(|change| change[1]).max().unwrap_or_default();
        let spread =
            changes.iter().map(|change| change[1].saturating_sub(change[0])).max().unwrap_or_default();
        let processors = changes.iter().map(|change| change[2]).max().unwrap_or_default();
        let figures = vec![
            time("first response, median", quantile(&first, 500)),
            goal(time("first response, p99", quantile(&first, 990)), 5.0, 1.0),
            time("first response, slowest", quantile(&first, 1000)),
            time("the rest has connected after", gathering),
            goal(time("bundle change to the last stream, slowest of all", slowest), 2_000.0, 500.0),
            time("from the first stream to the last, slowest of all", spread),
            time("the daemon's processor time for a change, most", processors),
            size("memory with nobody", memory[0]),
            goal(size("memory with all streams", memory[1]), 150.0, 80.0),
            goal(size("memory after the changes", memory[2]), 150.0, 80.0),
        ];
        let Plan { streams, connected, per_connection, .. } = *plan;
        let version = plan.daemon.version.clone();
        Self { schema: SCHEMA, machine, version, streams, connected, per_connection, figures }
    }

    /// Something is worse than it must be at worst.
    pub(super) fn failed(&self) -> bool {
        self.figures.iter().any(|figure| figure.verdict() == "MISSED")
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{}, {} streams, {} on a connection ({} while the first answers were timed)\n",
            self.version, self.streams, self.per_connection, self.connected
        );
        for figure in &self.figures {
            let Figure { name, unit, value, .. } = figure;
            // A String takes everything.
            let _ = writeln!(text, "{name:50} {value:10.2} {unit:4} {}", figure.verdict());
        }
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 20) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let figure = |value, least, aim| Figure { name: "x", unit: "ms", value, least, aim };
        for (value, verdict) in [(0.5, "aim reached"), (1.0, "aim reached"), (4.0, "ok"), (5.1, "MISSED")] {
            assert_eq!(figure(value, Some(5.0), Some(1.0)).verdict(), verdict);
        }
        assert_eq!(figure(9.0, None, None).verdict(), "");
    }
}
