//! What a run found.

use anyhow::Result;
use serde::Serialize;

use super::Plan;
use crate::{
    contender::Name,
    figure::Samples,
    plan::Output,
    report::{
        Comparison, Machine,
        table::{tables, versions},
    },
};

/// The form of [`Report`]; another number when a reader of this one would misread it.
const SCHEMA: &str = "isthmus-bench/routes/1";

/// All figures, in the order of the plan.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    machine: Machine,
    rounds: u32,
    #[serde(flatten)]
    comparison: Comparison,
}

impl Report {
    pub(super) fn new(plan: &Plan, results: &[(Name, Samples)]) -> Self {
        let comparison = Comparison::new(&plan.contenders, results);
        Self { schema: SCHEMA, machine: Machine::this(), rounds: plan.rounds, comparison }
    }

    /// Something is worse than it must be.
    pub(super) fn failed(&self) -> bool {
        self.comparison.failed()
    }

    pub(super) fn text(&self, output: Output) -> Result<String> {
        Ok(match output {
            Output::Json => serde_json::to_string_pretty(self)? + "\n",
            Output::Table => format!(
                "{}; median of {} rounds (lowest..highest round){}\n\n{}",
                self.machine,
                self.rounds,
                versions(&self.comparison),
                tables(&self.comparison)
            ),
        })
    }
}
