//! Why a command did not succeed, what to do about it, and the exit code that says so.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::text;

const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
const UNREACHABLE: u8 = 4;
const DEGRADED: u8 = 5;

/// The end of a command that did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something to tell: what happened, and how to go on where that is known.
    Told { code: u8, what: String, help: Option<String> },
    /// A program that was run for the user has spoken for itself and ended with this code.
    Passed(u8),
    /// The reader of stdout has gone, as in `isthmusctl routes | head`: it has what it wanted.
    StdoutClosed,
}

impl Failure {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Told { code: FAILED, what: what.into(), help: None }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::Told { code: USAGE, what: what.into(), help: Some("see isthmusctl --help".to_owned()) }
    }

    pub(crate) fn unreachable(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Told { code: UNREACHABLE, what: what.into(), help: Some(help.into()) }
    }

    pub(crate) fn degraded(what: impl Into<String>) -> Self {
        Self::Told { code: DEGRADED, what: what.into(), help: None }
    }

    /// Adds how to go on.
    #[must_use]
    pub(crate) fn with_help(self, advice: impl Into<String>) -> Self {
        match self {
            Self::Told { code, what, .. } => Self::Told { code, what, help: Some(advice.into()) },
            other => other,
        }
    }

    /// The daemon cannot be reached now; asking again may succeed.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Told { code: UNREACHABLE, .. })
    }

    /// Writes the message to stderr and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let code = match &self {
            Self::StdoutClosed => 0,
            Self::Passed(code) | Self::Told { code, .. } => *code,
        };
        self.write();
        ExitCode::from(code)
    }

    /// Writes the message to stderr. Parts that came from elsewhere are cleaned so that they cannot drive the terminal.
    pub(crate) fn write(&self) {
        let Self::Told { code, what, help } = self else { return };
        let label = if *code == DEGRADED { "degraded" } else { "error" };
        let mut message = format!("isthmusctl: {label}: {}\n", text::clean(what));
        if let Some(help) = help {
            message.push_str(&format!("  help: {}\n", text::clean(help)));
        }
        // With stderr gone there is nobody left to tell; the exit code still says it.
        let _ = io::stderr().lock().write_all(message.as_bytes());
    }
}

/// A failed write to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::StdoutClosed;
        }
        Self::failed(format!("cannot write to stdout: {error}"))
    }
}
