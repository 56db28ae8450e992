//! The figures, for programs and for people.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;

use super::meter::Rate;
use crate::{goal::Mark, report::Machine};

/// The form of [`Report`]; another number when a reader of this one would misread it.
const SCHEMA: &str = "isthmus-bench/issue/1";

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Of what.
    pub(crate) what: String,
    /// Whose.
    pub(crate) by: String,
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// What a core must reach, and is to reach, in a second.
    #[serde(skip)]
    pub(crate) goal: Option<(f64, f64)>,
}

/// Everything that a run found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    machine: Machine,
    rows: Vec<Judged>,
}

#[derive(Clone, Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    row: Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
}

impl Report {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        let rows = rows.into_iter().map(|row| Judged { mark: row.mark(), row }).collect();
        Self { schema: SCHEMA, machine: Machine::this(), rows }
    }

    /// Whether a figure is less than it must be.
    pub(crate) fn failed(&self) -> bool {
        self.rows.iter().any(|judged| judged.mark == Some(Mark::Fail))
    }

    /// # Errors
    /// None that can happen with these types.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header([
            "figure",
            "by",
            "per core and second",
            "per second",
            "least",
            "aim",
            "",
        ]);
        for judged in &self.rows {
            let Judged { row, mark } = judged;
            let goal = |pick: fn((f64, f64)) -> f64| {
                row.goal.map_or(String::new(), |goal| format!("{:.0}", pick(goal)))
            };
            let mark = mark.map_or(String::new(), |mark| format!("{mark:?}").to_lowercase());
            let numbers = [format!("{:.0}", row.rate.per_core), format!("{:.0}", row.rate.per_second)];
            let [per_core, per_second] = numbers;
            table.add_row([
                row.what.clone(),
                row.by.clone(),
                per_core,
                per_second,
                goal(|(least, _)| least),
                goal(|(_, aim)| aim),
                mark,
            ]);
        }
        for column in table.column_iter_mut().skip(2).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\nOne thread; per core: for each second of processor time\n\n{table}\n", self.machine)
    }
}

impl Row {
    fn mark(&self) -> Option<Mark> {
        let (least, aim) = self.goal?;
        Some(match self.rate.per_core {
            rate if rate >= aim => Mark::Aim,
            rate if rate >= least => Mark::Pass,
            _ => Mark::Fail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_held_against_its_goal() {
        let row = |per_core| Row {
            what: "X".into(),
            by: "us".into(),
            rate: Rate { per_core, per_second: 1.0 },
            goal: Some((3000.0, 6000.0)),
        };
        let report = Report::new(vec![row(6000.0), row(3000.0), row(2999.0), Row { goal: None, ..row(1.0) }]);
        let marks: Vec<_> = report.rows.iter().map(|row| row.mark).collect();
        assert_eq!(marks, [Some(Mark::Aim), Some(Mark::Pass), Some(Mark::Fail), None]);
        assert!(report.failed());
        let met = Report::new(vec![row(3000.0), Row { goal: None, ..row(1.0) }]);
        assert!(!met.failed(), "what has no goal can't miss it");
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["rows"][1]["per_core"], 3000.0);
        assert!(report.table().contains("2999"), "{}", report.table());
    }
}
