//! The real binary against a server with canned answers on a unix socket: what it prints, where, and how it exits.

mod answers;
mod bgp;
mod doctor;
mod documents;
mod ending;
mod events;
mod hostile;
mod nouns;
mod server;
mod svid;
mod tables;
mod watching;

use std::path::Path;
use std::process::{Command, Output};

/// The program under test with an environment that decides nothing.
fn isthmusctl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmusctl"));
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "SPIFFE_ENDPOINT_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

/// Runs it against the control socket with arguments separated by blanks.
fn run(socket: &Path, arguments: &str) -> Run {
    let output = isthmusctl().arg("--socket").arg(socket).args(arguments.split_whitespace()).output();
    Run::from(output.expect("the binary starts"))
}

/// How a run ended and what it wrote.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}

impl Run {
    /// The data of a run that must have gone well and silently.
    #[track_caller]
    fn data(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "stdout: {}", self.stdout);
        self.stdout
    }
}
