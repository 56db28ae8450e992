//! `isthmus-bench path`: outside, the choice of programs and the sandbox; inside, the rounds.

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use isthmus_lab::sandbox::{self, Lifetime, Support, processes};

use crate::{
    contender::Name,
    figure::{Figure, Samples},
    measure,
    plan::{Options, Output, Plan},
    process,
    report::{Machine, Report},
};

/// On the sandbox's own tmpfs: keys and logs go with it.
const DIRECTORY: &str = "/run/bench";

/// Enters a sandbox and measures there. The sandbox ends with this process, however that ends, and everything in it with it.
///
/// # Errors
/// When a program or tool is missing, the machine allows no sandbox, or the sandbox was ended from outside.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let plan = Plan::new(options, |why| note(&format!("SKIPPED {why}\n")))?;
    let user = match sandbox::support() {
        Support::Root => false,
        Support::UserNamespace => true,
        Support::None(why) => bail!("figures need network namespaces, which this machine refuses: {why}"),
    };
    let mut command = Command::new(env::current_exe()?);
    command.arg("inside").arg(serde_json::to_string(&plan)?);
    sandbox::enter_on_exec(&mut command, Lifetime::Caller, user);
    let mut child = command.spawn().context("entering the sandbox")?;
    if plan.keep {
        guide(child.id());
    }
    let status = child.wait()?;
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        // It has said why.
        Some(1) => Ok(ExitCode::FAILURE),
        _ => bail!("the sandbox ended with {status}; everything is removed"),
    }
}

/// How to look around from another terminal, known only out here: inside, processes have other numbers.
fn guide(sandbox: u32) {
    let init = processes::children_of(sandbox).into_iter().next().unwrap_or(sandbox);
    note(&format!(
        "look around: nsenter --target {init} --mount --pid --net; then ip netns exec near ..., and {DIRECTORY}\n"
    ));
}

/// Runs the rounds of `plan` and prints the report.
///
/// # Errors
/// As [`measure::round`].
pub(crate) fn inside(plan: &str) -> Result<ExitCode> {
    let plan: Plan =
        serde_json::from_str(plan).context("this command is the inner part of `isthmus-bench path`")?;
    process::check_proc()?;
    fs::create_dir(DIRECTORY).with_context(|| format!("making {DIRECTORY}"))?;
    let results = rounds(&plan).inspect_err(|error| hold(&plan, error))?;
    let report = Report::new(&plan, Machine::this(), &results);
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

/// To standard error. A reader who went away does not stop the run.
fn note(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
