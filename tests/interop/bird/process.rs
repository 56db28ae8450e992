//! A BIRD process in a namespace, and what `birdc` says of it.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{netns::Netns, wait};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// From its start to its first answer.
const START: Duration = Duration::from_secs(15);

/// One BIRD; it ends with the value.
pub(crate) struct Bird {
    netns: Netns,
    dir: PathBuf,
    child: Child,
}

impl Bird {
    /// Starts one with this configuration, with its files in the new directory `dir`.
    pub(crate) fn start(netns: &Netns, dir: PathBuf, config: &str) -> Self {
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("bird.conf"), config).unwrap();
        let child = spawn(netns, &dir);
        let bird = Self { netns: netns.clone(), dir, child };
        bird.wait_for_answer();
        bird
    }

    /// Ends it without a goodbye and starts another in its place.
    pub(crate) fn replace(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = fs::remove_file(self.dir.join("bird.ctl"));
        self.child = spawn(&self.netns, &self.dir);
        self.wait_for_answer();
    }

    /// It neither reads nor writes any more, but its connections stay.
    pub(crate) fn freeze(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGSTOP).unwrap();
    }

    /// What a command prints.
    pub(crate) fn ask(&self, command: &str) -> Result<String> {
        let mut birdc = self.netns.command("birdc")?;
        birdc.arg("-s").arg(self.dir.join("bird.ctl")).args(command.split(' ')).stdin(Stdio::null());
        let output = birdc.output().context("running birdc")?;
        let said = String::from_utf8(output.stdout)?;
        ensure!(
            output.status.success(),
            "birdc {command}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }

    /// All it says about its best route to a prefix; empty where it has none.
    pub(crate) fn route(&self, prefix: &str) -> Result<String> {
        let said = self.ask(&format!("show route {prefix} primary all"))?;
        Ok(said.lines().filter(|line| !line.starts_with("BIRD ")).map(|line| format!("{line}\n")).collect())
    }

    /// The log, for a failed test.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("bird.log")).unwrap_or_default()
    }

    fn wait_for_answer(&self) {
        let ready = wait::until("an answer of BIRD", START, || self.ask("show status"));
        ready.unwrap_or_else(|error| panic!("{error:#}\n--- BIRD:\n{}", self.log()));
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(netns: &Netns, dir: &std::path::Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("bird.log")).unwrap();
    let mut command = netns.command("bird").unwrap();
    command.arg("-f").arg("-c").arg(dir.join("bird.conf")).arg("-s").arg(dir.join("bird.ctl"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}
