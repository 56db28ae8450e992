//! `isthmusctl config check`: the daemon itself judges a configuration, so that there is one set of rules.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde::Serialize;

use crate::cli::Format;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{Document, Output};
use crate::page::Page;

const DAEMON: &str = "isthmusd";

/// Runs `isthmusd --check --config FILE` and ends as that does. In a table its own words go straight through; a document carries them.
///
/// # Errors
/// The daemon's exit code, or that there is no daemon to run.
pub(crate) fn check(output: &Output, file: &Path) -> Result<(), Failure> {
    let daemon = find()?;
    let mut command = Command::new(&daemon);
    command.arg("--check").arg("--config").arg(file);
    if output.format() == Format::Table {
        let status = command.status().map_err(|error| not_run(&daemon, &error))?;
        return pass(status);
    }
    let result = command.output().map_err(|error| not_run(&daemon, &error))?;
    let messages = [result.stdout, result.stderr].concat();
    output.print(&CheckDocument {
        schema: "isthmus.v1/config-check",
        file: file.display().to_string(),
        valid: result.status.success(),
        messages: String::from_utf8_lossy(&messages).lines().map(str::to_owned).collect(),
    })?;
    pass(result.status)
}

/// Schema `isthmus.v1/config-check`.
#[derive(Debug, Serialize)]
struct CheckDocument {
    schema: &'static str,
    file: String,
    valid: bool,
    /// What isthmusd printed, line by line.
    messages: Vec<String>,
}

impl Document for CheckDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        for message in &self.messages {
            page.line(message);
        }
    }
}

/// The daemon that was installed with this program, else the first on PATH.
fn find() -> Result<PathBuf, Failure> {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(DAEMON)));
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(DAEMON));
    beside.into_iter().chain(on_path).find(|program| is_program(program)).ok_or_else(|| {
        Failure::failed(
            "found no isthmusd beside isthmusctl or on PATH, and only it can judge a configuration",
        )
        .with_help("install the isthmusd package, or add its directory to PATH")
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn pass(status: ExitStatus) -> Result<(), Failure> {
    match status.code().map(u8::try_from) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(Failure::Passed(code)),
        _ => Err(Failure::failed(format!("{DAEMON} --check ended abnormally: {status}"))),
    }
}

fn not_run(daemon: &Path, error: &io::Error) -> Failure {
    let name = daemon.file_name().unwrap_or(OsStr::new(DAEMON)).display();
    Failure::failed(format!("cannot run {name} at {}: {error}", daemon.display()))
}
