//! `isthmus-bench path`: outside, the choice of programs; inside, the rounds.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    contender::Name,
    figure::{Figure, Samples},
    measure,
    plan::{Options, Output, Plan},
    report::{Machine, Report},
    sandboxed::{self, DIRECTORY, Job, note},
};

/// Chooses programs and measures them in a sandbox.
///
/// # Errors
/// When a program or tool is missing, and as [`sandboxed::enter`].
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let plan = Plan::new(options, |why| note(&format!("SKIPPED {why}\n")))?;
    let keep = plan.keep;
    sandboxed::enter(&Job::Path(plan), keep)
}

/// Runs the rounds of `plan` and prints the report.
///
/// # Errors
/// As [`measure::round`].
pub(crate) fn inside(plan: &Plan) -> Result<ExitCode> {
    let results = rounds(plan).inspect_err(|error| hold(plan, error))?;
    let report = Report::new(plan, Machine::this(), &results);
    let text = match plan.output {
        Output::Table => report.table(),
        Output::Json => report.json()? + "\n",
    };
    io::stdout().write_all(text.as_bytes()).context("writing the report")?;
    Ok(ExitCode::SUCCESS)
}

/// Every program once a round, so that a noisy minute hits them all.
fn rounds(plan: &Plan) -> Result<Vec<(Name, Samples)>> {
    let mut results: Vec<(Name, Samples)> =
        plan.contenders.iter().map(|contender| (contender.name, Samples::new())).collect();
    for number in 1..=plan.rounds {
        for (contender, (name, samples)) in plan.contenders.iter().zip(&mut results) {
            note(&format!("round {number}/{}, {name}:", plan.rounds));
            let found = measure::round(plan, contender, Path::new(DIRECTORY), &mut tell);
            note("\n");
            for (figure, value) in found.with_context(|| format!("round {number}, {name}"))? {
                samples.entry(figure).or_default().push(value);
            }
        }
    }
    Ok(results)
}

fn tell(figure: Figure, value: f64) {
    note(&format!(" {} {value:.*} {};", figure.title(), figure.decimals(), figure.unit()));
}

/// With `--keep`, stays until something ends this process.
fn hold(plan: &Plan, error: &anyhow::Error) {
    if plan.keep {
        note(&format!("error: {error:#}\neverything is left up; Ctrl-C removes it\n"));
        loop {
            thread::sleep(Duration::MAX);
        }
    }
}
