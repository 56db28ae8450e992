//! A report that is no more than figures side by side.

use anyhow::Result;
use serde::Serialize;

use super::{
    Comparison, Machine,
    table::{tables, versions},
};
use crate::{
    contender::{Contender, Name},
    figure::Samples,
    plan::Output,
};

/// All figures, in the order of the plan.
#[derive(Debug, Serialize)]
pub(crate) struct Plain {
    schema: &'static str,
    machine: Machine,
    rounds: u32,
    #[serde(flatten)]
    comparison: Comparison,
}

impl Plain {
    /// `schema` is the form's name; it has another number when a reader of this one would misread it.
    pub(crate) fn new(
        schema: &'static str,
        rounds: u32,
        contenders: &[Contender],
        results: &[(Name, Samples)],
    ) -> Self {
        let comparison = Comparison::new(contenders, results);
        Self { schema, machine: Machine::this(), rounds, comparison }
    }

    /// Something is worse than it must be.
    pub(crate) fn failed(&self) -> bool {
        self.comparison.failed()
    }

    /// For people or for programs.
    ///
    /// # Errors
    /// When it holds what JSON can't, such as a number that is none.
    pub(crate) fn text(&self, output: Output) -> Result<String> {
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
