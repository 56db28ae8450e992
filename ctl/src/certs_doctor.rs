//! `isthmusctl certs doctor`: seventeen checks of directories, files and clusters that share a root. Asks no daemon.

mod gather;
mod kubectl;

use isthmus_pki::doctor::{self, Finding, Severity};
use serde::Serialize;
use time::OffsetDateTime;

use crate::cli::CertsDoctor;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{Document, Output};
use crate::page::{Cell, Page, Tone};

/// Prints what each check found, and ends with 0 if nothing is wrong, 5 for warnings, 2 if something was named in which there is nothing to
/// look at, 1 for errors.
///
/// # Errors
/// What can't be read, and the verdict.
pub(crate) fn doctor(output: &Output, arguments: &CertsDoctor) -> Result<(), Failure> {
    if arguments.paths.is_empty() && arguments.context.is_empty() && arguments.envoy_admin.is_empty() {
        return Err(Failure::usage(
            "nothing to look at: name a directory or file, --context or --envoy-admin",
        ));
    }
    let now = OffsetDateTime::from(Moment::now());
    let (inventory, idle) = gather::inventory(arguments, now)?;
    let findings = doctor::examine(&inventory, now);
    let worst = doctor::worst(&findings);
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warn));
    output.print(&DoctorDocument { schema: "isthmus.v1/certs-doctor", worst, errors, warnings, findings })?;
    match worst {
        Severity::Error => Err(Failure::failed(format!("{errors} errors, {warnings} warnings"))),
        _ if !idle.is_empty() => Err(looked_at_nothing(&idle)),
        Severity::Warn => Err(Failure::degraded(format!("{warnings} warnings"))),
        Severity::Ok | Severity::Skipped => Ok(()),
    }
}

/// A check of nothing is no check: whoever named the wrong directory must not be told that all is well.
fn looked_at_nothing(places: &[String]) -> Failure {
    Failure::usage(format!("nothing to look at in {}", places.join(", "))).with_help(
        "of a directory the .pem, .crt, .cer, .der, .json and .yaml files count, and of all files those with certificates, Istio's objects \
         or a dump of a proxy: name these",
    )
}

/// Schema `isthmus.v1/certs-doctor`.
#[derive(Debug, Serialize)]
struct DoctorDocument {
    schema: &'static str,
    /// "skipped", "ok", "warn" or "error".
    worst: Severity,
    errors: usize,
    warnings: usize,
    /// At least one for each check.
    findings: Vec<Finding>,
}

impl Document for DoctorDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        let rows = self.findings.iter().map(|finding| {
            let place = if finding.file.is_empty() { "" } else { &finding.file };
            [
                u64::from(finding.check).into(),
                finding.name.into(),
                state(finding.severity),
                place.into(),
                finding.what.as_str().into(),
            ]
        });
        page.table(["CHECK", "NAME", "STATE", "FILE", "FOUND"], rows, "no checks");
        for finding in self.findings.iter().filter(|f| f.severity > Severity::Ok) {
            page.line("");
            page.facts([
                ("Check", format!("{} {}", finding.check, finding.name).into()),
                ("State", state(finding.severity)),
                ("File", finding.file.as_str().into()),
                ("Field", finding.field.as_str().into()),
                ("Found", finding.what.as_str().into()),
                ("Why it hurts", finding.why.into()),
                ("Remedy", finding.remedy.as_str().into()),
            ]);
        }
    }
}

fn state(severity: Severity) -> Cell {
    match severity {
        Severity::Skipped => Cell::new("skipped", Tone::Plain),
        Severity::Ok => Cell::new("ok", Tone::Good),
        Severity::Warn => Cell::new("warning", Tone::Warning),
        Severity::Error => Cell::new("error", Tone::Bad),
    }
}
