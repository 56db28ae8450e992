//! What a check says.

use serde::Serialize;

use super::checks::Check;

/// How bad it is, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// There was nothing that this check could look at.
    Skipped,
    /// Looked at, and nothing is wrong.
    Ok,
    /// It works now, and will not always.
    Warn,
    /// Something is refused, by somebody, now.
    Error,
}

/// One line of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Number of the check, from 1 to 17.
    pub check: u8,
    /// Its name.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The file, or the object and its key; empty where all is well.
    pub file: String,
    /// The field in it.
    pub field: String,
    /// What is there.
    pub what: String,
    /// What comes of it.
    pub why: &'static str,
    /// What to do.
    pub remedy: String,
}

/// Collects what one check says.
pub(super) struct Reporter {
    check: &'static Check,
    looked: usize,
    findings: Vec<Finding>,
}

impl Reporter {
    pub(super) fn new(check: &'static Check) -> Self {
        Self { check, looked: 0, findings: Vec::new() }
    }

    /// One thing was looked at.
    pub(super) fn looked(&mut self) {
        self.looked += 1;
    }

    pub(super) fn error(
        &mut self,
        file: &str,
        field: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.say(Severity::Error, file, field, what.into(), remedy.into());
    }

    pub(super) fn warn(
        &mut self,
        file: &str,
        field: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.say(Severity::Warn, file, field, what.into(), remedy.into());
    }

    fn say(&mut self, severity: Severity, file: &str, field: &str, what: String, remedy: String) {
        let Check { number, name, why, .. } = *self.check;
        let (file, field) = (file.to_owned(), field.to_owned());
        let finding = Finding { check: number, name, severity, file, field, what, why, remedy };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    pub(super) fn finish(mut self) -> Vec<Finding> {
        if self.findings.is_empty() {
            let (severity, what) = match self.looked {
                0 => (Severity::Skipped, format!("nothing to look at; it needs {}", self.check.needs)),
                count => (Severity::Ok, format!("{count} looked at")),
            };
            self.say(severity, "", "", what, String::new());
        }
        self.findings
    }
}
