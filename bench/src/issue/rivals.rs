//! What other programs do of the same work on one core. One that is missing is left out, with a word.

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};

use super::{meter::Rate, report::Row};
use crate::sandboxed::note;

/// As an issuer in Go does it, istiod for one: request parsed and checked, certificate made. No log.
const GO: &str = include_str!("rivals/issue.go");

/// Every rival that is there.
pub(crate) fn measure(seconds: u32) -> Vec<Row> {
    let found = [("openssl", openssl(seconds)), ("go", go(seconds))];
    let row = |(name, rows): (&str, Result<Vec<Row>>)| match rows {
        Ok(rows) => rows,
        Err(error) => {
            note(&format!("SKIPPED {name}: {error:#}\n"));
            Vec::new()
        }
    };
    found.into_iter().flat_map(row).collect()
}

/// The ceiling: a signature, and a verification, and nothing else.
fn openssl(seconds: u32) -> Result<Vec<Row>> {
    let mut command = Command::new("openssl");
    let output = run(command.args(["speed", "-mr", "-seconds", &seconds.to_string(), "ecdsap256"]))?;
    // "+F4:2:256:0.000030:0.000080": seconds a signature, seconds a verification, of processor time.
    let line =
        output.lines().find_map(|line| line.strip_prefix("+F4:")).context("no line +F4 in its output")?;
    let fields: Vec<&str> = line.split(':').collect();
    let rate = |index: usize| -> Result<Rate> {
        let one: f64 = fields.get(index).context("too few fields")?.parse()?;
        ensure!(one > 0.0, "a signature in no time");
        Ok(Rate { per_core: 1.0 / one, per_second: 1.0 / one })
    };
    let row = |what: &str, rate| Row { what: what.into(), by: "openssl speed".into(), rate, goal: None };
    Ok(vec![row("P-256 signature", rate(2)?), row("P-256 verification", rate(3)?)])
}

fn go(seconds: u32) -> Result<Vec<Row>> {
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("issue.go");
    fs::write(&source, GO)?;
    let mut command = Command::new("go");
    let command = command.arg("run").arg(&source).arg(seconds.to_string()).env("GOMAXPROCS", "1");
    let output = run(command.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local").current_dir(&directory))?;
    let (cpu, wall) = output.trim().split_once(' ').context("not two numbers")?;
    let rate = Rate { per_core: cpu.parse()?, per_second: wall.parse()? };
    Ok(vec![Row {
        what: "X.509-SVID, agent's key".into(),
        by: "Go crypto/x509, no log".into(),
        rate,
        goal: None,
    }])
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
