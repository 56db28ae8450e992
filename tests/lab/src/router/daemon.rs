//! One process of a speaker, and how to start it again.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{netns::Netns, wait};

/// A program with its arguments; its process ends with the value.
#[derive(Debug)]
pub(super) struct Daemon {
    netns: Netns,
    program: &'static str,
    arguments: Vec<String>,
    /// More arguments from the second start on.
    again: &'static [&'static str],
    started: bool,
    /// It serves others as soon as this is there.
    socket: Option<PathBuf>,
    child: Option<Child>,
}

impl Daemon {
    pub(super) fn new(netns: &Netns, program: &'static str, arguments: Vec<String>) -> Self {
        Self {
            netns: netns.clone(),
            program,
            arguments,
            again: &[],
            started: false,
            socket: None,
            child: None,
        }
    }

    /// [`Daemon::start`] waits for this file.
    pub(super) fn with_socket(mut self, socket: PathBuf) -> Self {
        self.socket = Some(socket);
        self
    }

    /// What it is told when it is started for another time, so that it takes up what it left.
    pub(super) fn with_recovery(mut self, again: &'static [&'static str]) -> Self {
        self.again = again;
        self
    }

    /// Starts it and waits until it serves others; does nothing where it runs.
    pub(super) fn start(&mut self, log: &Path, limit: Duration) -> Result<()> {
        if self.child.is_none() {
            let child = self.command(log)?.spawn();
            self.child = Some(child.with_context(|| format!("starting {}", self.program))?);
            self.started = true;
        }
        self.wait_ready(limit)
    }

    fn command(&self, log: &Path) -> Result<Command> {
        if let Some(socket) = &self.socket {
            // One of an earlier process would pass for this one's.
            let _ = std::fs::remove_file(socket);
        }
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = self.netns.command(self.program)?;
        let again = if self.started { self.again } else { &[] };
        command.args(&self.arguments).args(again).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn wait_ready(&self, limit: Duration) -> Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        wait::until_true(&format!("{} of {}", socket.display(), self.program), limit, || socket.exists())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.program))?;
        Ok(kill(Pid::from_raw(pid.cast_signed()), signal)?)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().with_context(|| format!("{} does not run", self.program))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may never have run.
        let _ = self.kill();
    }
}
