//! Where everything is measured: this program again, inside a sandbox that ends with it.

use std::{
    env, fs,
    io::{self, Write},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use isthmus_lab::sandbox::{self, Lifetime, Support, processes};
use serde::{Deserialize, Serialize};

use crate::{converge, path, plan::Plan, process, routes, soak, streams};

/// On the sandbox's own tmpfs: keys and logs go with it.
pub(crate) const DIRECTORY: &str = "/run/bench";

/// What to do inside.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Job {
    /// Figures.
    Path(Plan),
    /// Paths that die.
    Converge(converge::Plan),
    /// Prefixes through a speaker.
    Routes(routes::Plan),
    /// A long run.
    Soak(soak::Plan),
    /// Workloads.
    Streams(streams::Plan),
}

/// Enters a sandbox and does `job` there. The sandbox ends with this process, however that ends, and everything in it with it.
/// With `keep`, says how to look around in it.
///
/// # Errors
/// When the machine allows no sandbox, or it was ended from outside.
pub(crate) fn enter(job: &Job, keep: bool) -> Result<ExitCode> {
    let user = match sandbox::support() {
        Support::Root => false,
        Support::UserNamespace => true,
        Support::None(why) => bail!("this needs network namespaces, which this machine refuses: {why}"),
    };
    let mut command = Command::new(env::current_exe()?);
    command.arg("inside").arg(serde_json::to_string(job)?);
    sandbox::enter_on_exec(&mut command, Lifetime::Caller, user);
    let mut child = command.spawn().context("entering the sandbox")?;
    if keep {
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

/// Does the job that the outer process passed on.
///
/// # Errors
/// Those of the job, and when this is no sandbox.
pub(crate) fn inside(job: &str) -> Result<ExitCode> {
    let job: Job = serde_json::from_str(job).context("this command is the inner part of the others")?;
    process::check_proc()?;
    fs::create_dir(DIRECTORY).with_context(|| format!("making {DIRECTORY}"))?;
    match job {
        Job::Path(plan) => path::inside(&plan),
        Job::Converge(plan) => converge::inside(&plan),
        Job::Routes(plan) => routes::inside(&plan),
        Job::Soak(plan) => soak::inside(&plan),
        Job::Streams(plan) => streams::inside(&plan),
    }
}

/// To standard error. A reader who went away does not stop the run.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
