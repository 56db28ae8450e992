//! One real `isthmusd` in a namespace: its directory, its process, its control API.

mod client;
mod secrets;

pub use client::unix_channel;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{bins::Bins, netns::Netns, wait};

/// How long a daemon may take to answer on its control socket, or to leave after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(15);
/// How much of a log an error quotes, in lines.
const TAIL: usize = 15;

/// A place for one daemon: `DIR/{isthmusd.toml,isthmusd.log,isthmusd.sock,workload.sock,state/}`, and the daemon if it runs. When it is
/// dropped, a secret in the log fails the test.
#[derive(Debug)]
pub struct Node {
    name: String,
    netns: Netns,
    dir: PathBuf,
    bins: Bins,
    child: Option<Child>,
}

impl Node {
    /// Makes `parent/name` (0700) for a daemon that will run in `netns`.
    ///
    /// # Errors
    /// When the directory can't be made.
    pub fn new(name: &str, netns: &Netns, parent: &Path, bins: &Bins) -> Result<Self> {
        let dir = parent.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir.join("state"));
        made.with_context(|| format!("making {}", dir.display()))?;
        Ok(Self { name: name.to_owned(), netns: netns.clone(), dir, bins: bins.clone(), child: None })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it runs.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// For `[node] state_dir`.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.join("isthmusd.toml")
    }

    /// For `[api] socket`.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("isthmusd.sock")
    }

    /// For `[workload_api] socket`.
    pub fn workload_socket(&self) -> PathBuf {
        self.dir.join("workload.sock")
    }

    /// What the daemon writes to standard output and standard error.
    pub fn log(&self) -> PathBuf {
        self.dir.join("isthmusd.log")
    }

    /// Writes the configuration (0600) and starts the daemon; it need not be ready when this returns.
    ///
    /// # Errors
    /// When it runs already, a file can't be written or the program can't be started.
    pub fn start(&mut self, config: &str) -> Result<()> {
        self.write_config(config)?;
        self.restart()
    }

    /// Writes the configuration without starting anything.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_config(&self, config: &str) -> Result<()> {
        let _ = fs::remove_file(self.config());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.config())?;
        Ok(file.write_all(config.as_bytes())?)
    }

    /// Starts the daemon with the configuration that is there.
    ///
    /// # Errors
    /// When it runs already, or the program can't be started.
    pub fn restart(&mut self) -> Result<()> {
        self.restart_with(|_| ())
    }

    /// [`Node::restart`] after `prepare` has changed the command: environment, streams, privileges.
    ///
    /// # Errors
    /// As [`Node::restart`].
    pub fn restart_with(&mut self, prepare: impl FnOnce(&mut Command)) -> Result<()> {
        ensure!(self.child.is_none(), "{} runs already", self.name);
        let mut command = self.netns.command(&self.bins.isthmusd)?;
        command.arg("--config").arg(self.config());
        self.spawn(command, prepare)
    }

    /// [`Node::restart`] by a shell that first does what `script` says, such as lowering a limit, and then becomes the daemon.
    ///
    /// # Errors
    /// As [`Node::restart`].
    pub fn restart_in_shell(&mut self, script: &str, prepare: impl FnOnce(&mut Command)) -> Result<()> {
        ensure!(self.child.is_none(), "{} runs already", self.name);
        let mut command = self.netns.command("sh")?;
        command.arg("-c").arg(format!("{script}; exec \"$0\" --config \"$1\""));
        command.arg(&self.bins.isthmusd).arg(self.config());
        self.spawn(command, prepare)
    }

    fn spawn(&mut self, mut command: Command, prepare: impl FnOnce(&mut Command)) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(self.log())?;
        command.current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        prepare(&mut command);
        let child = command.spawn().with_context(|| format!("starting {}", self.bins.isthmusd.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the daemon says that it is ready.
    ///
    /// # Errors
    /// When it ends before, or is not ready in time: what it waits for, and the end of its log.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        self.wait_until("readiness", limit, |node| {
            let status = node.status()?;
            ensure!(status.ready, "it waits for {}", status.waiting_for.join(", "));
            Ok(())
        })
    }

    /// Waits for a condition of this daemon; stops waiting when the daemon is gone.
    ///
    /// # Errors
    /// When `limit` passes or the daemon ends: the last complaint of `check`, and the end of the log.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut check: impl FnMut(&Self) -> Result<T>,
    ) -> Result<T> {
        let mut gone = None;
        let result = wait::until(&format!("{what} of {}", self.name), limit, || {
            gone = self.ensure_alive().err();
            if gone.is_some() { Ok(None) } else { check(self).map(Some) }
        });
        match (gone, result) {
            (Some(error), _) => Err(error),
            (None, Ok(value)) => value.context("the condition gave no value"),
            (None, Err(error)) => Err(self.blame(error)),
        }
    }

    /// Is the process there?
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// # Errors
    /// When the daemon is not running: its name, how it ended and the end of its log.
    pub fn ensure_alive(&mut self) -> Result<()> {
        let how = match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => return Ok(()),
            Some(Ok(Some(status))) => format!("{} ended by itself: {status}", self.name),
            Some(Err(error)) => format!("{} can't be watched: {error}", self.name),
            None => format!("{} is not running", self.name),
        };
        Err(self.blame(anyhow!(how)))
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When it was not running, or is still there after 15 s (then it is killed).
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait_end()
    }

    /// Waits for the end of a daemon that was told to leave.
    ///
    /// # Errors
    /// As [`Node::stop`].
    pub fn wait_end(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().with_context(|| format!("{} is not running", self.name))?;
        let ended = wait::until(&format!("{} to leave", self.name), PATIENCE, || {
            child.try_wait()?.context("it is still there")
        });
        ended.map_err(|error| {
            let _ = child.kill();
            let _ = child.wait();
            self.blame(error)
        })
    }

    /// SIGKILL: the daemon has no chance to tell anybody.
    ///
    /// # Errors
    /// When it was not running.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().with_context(|| format!("{} is not running", self.name))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Sends a signal, SIGHUP for a reload.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} is not running", self.name))?;
        Ok(kill(Pid::from_raw(pid.cast_signed()), signal)?)
    }

    /// Writes another configuration, has it read and waits until that is over: the generation in force, and why the new one was refused
    /// (empty: it was not).
    ///
    /// # Errors
    /// When the daemon ends or is not done within `limit`.
    pub fn reload(&mut self, config: &str, limit: Duration) -> Result<(u64, String)> {
        let count = |node: &Self| node.log_text().matches("configuration ").count();
        let before = count(self);
        self.write_config(config)?;
        self.signal(Signal::SIGHUP)?;
        self.wait_until("the end of the reload", limit, |node| {
            ensure!(count(node) > before, "nothing new in the log");
            Ok(())
        })?;
        // The log line comes first, the state right after it.
        let log = self.log_text();
        let last = log.lines().rfind(|line| line.contains("configuration "));
        let refused = last.is_some_and(|line| line.contains("refused"));
        self.wait_until("the state of the reload", limit, |node| {
            let config = node.status()?.config.context("no configuration")?;
            ensure!(config.last_error.is_empty() != refused, "not noted: {config:?}");
            Ok((config.generation, config.last_error))
        })
    }

    /// Its process number.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `isthmusctl --socket ... ARGUMENTS`, run to its end.
    ///
    /// # Errors
    /// When the program can't be run or does not end within 15 s; its own failure is in the output.
    pub fn ctl(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.bins.isthmusctl);
        command.arg("--socket").arg(self.socket()).args(arguments).stdin(Stdio::null());
        let (sender, output) = channel();
        thread::spawn(move || sender.send(command.output()));
        let output = output.recv_timeout(PATIENCE);
        let output =
            output.with_context(|| format!("isthmusctl {} on {} hangs", arguments.join(" "), self.name))?;
        output.with_context(|| format!("running {}", self.bins.isthmusctl.display()))
    }

    /// [`Node::ctl`], which must succeed: what it printed.
    ///
    /// # Errors
    /// When it fails: what it said.
    pub fn ctl_ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.ctl(arguments)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            bail!("isthmusctl {} on {}: {}: {said}", arguments.join(" "), self.name, output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// `error` with the end of this daemon's log.
    pub fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\n--- the end of {}:\n{}", self.log().display(), self.log_tail())
    }

    /// Everything in the log so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = File::open(self.log()).and_then(std::io::read_to_string).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.is_some() {
            let _ = self.kill();
        }
        // A second panic while one unwinds would hide the first.
        if !thread::panicking()
            && let Some(fault) = secrets::find(&self.log(), &self.dir)
        {
            panic!("the log of {} holds a secret: {fault}", self.name);
        }
    }
}
