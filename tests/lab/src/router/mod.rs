//! Other people's BGP speakers in a namespace: BIRD 2, FRR and GoBGP, as Debian packages them.
//!
//! [`Router::start`] with a configuration in the program's own language, [`Router::ask`] in its own words, [`Router::until`] to wait for
//! something; it ends with the value. Nothing but its directory is shared with another that runs on the same machine.

mod answer;
mod bird;
mod daemon;
mod frr;
mod gobgp;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::{sys::signal::Signal, unistd::geteuid};

pub use answer::{Route, Updates};
use daemon::Daemon;

use crate::{netns::Netns, peers, wait};

/// From a start to the first answer.
const START: Duration = Duration::from_secs(15);

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// BIRD 2: one process, asked by `birdc`.
    Bird,
    /// FRR: zebra, bfdd and bgpd, asked by `vtysh`.
    Frr,
    /// GoBGP: one process without a kernel table, asked by `gobgp`.
    Gobgp,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bird, Self::Frr, Self::Gobgp];

    /// The program that speaks BGP.
    pub fn program(self) -> &'static str {
        match self {
            Self::Bird => "bird",
            Self::Frr => frr::BGPD,
            Self::Gobgp => "gobgpd",
        }
    }

    /// All programs that [`Router`] runs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Bird => &["bird", "birdc"],
            Self::Frr => &[frr::ZEBRA, frr::BFDD, frr::BGPD, "vtysh"],
            Self::Gobgp => &["gobgpd", "gobgp"],
        }
    }

    /// As [`peers::installed`]: what is missing is skipped aloud, or fails where it is required.
    /// FRR becomes a user of its own, whom only root has.
    pub fn installed(self, test: &str) -> bool {
        if self == Self::Frr && !geteuid().is_root() {
            peers::skipped(test, "FRR needs root");
            return false;
        }
        peers::installed(test, self.programs())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bird => "bird",
            Self::Frr => "frr",
            Self::Gobgp => "gobgp",
        })
    }
}

/// How much of a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// With what it needs for BFD and the kernel's routes.
    Whole,
    /// BGP alone: of FRR only bgpd, which then takes every next hop for reachable.
    Bgp,
}

/// A speaker.
#[derive(Debug)]
pub struct Router {
    kind: Kind,
    netns: Netns,
    dir: PathBuf,
    daemons: Vec<Daemon>,
}

impl Router {
    /// Starts one with this configuration and waits for its first answer; its files are in the new directory `dir`.
    ///
    /// # Errors
    /// When it does not start: why, and its log.
    pub fn start(kind: Kind, netns: &Netns, dir: &Path, config: &str) -> Result<Self> {
        Self::start_scoped(kind, Scope::Whole, netns, dir, config)
    }

    /// [`Router::start`] of a part of it.
    ///
    /// # Errors
    /// As [`Router::start`].
    pub fn start_scoped(kind: Kind, scope: Scope, netns: &Netns, dir: &Path, config: &str) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        fs::write(dir.join("config"), config)?;
        let commands = match kind {
            Kind::Bird => bird::commands(netns, dir),
            Kind::Frr => frr::commands(netns, dir, scope),
            Kind::Gobgp => gobgp::commands(netns, dir),
        }?;
        let mut router = Self { kind, netns: netns.clone(), dir: dir.to_owned(), daemons: commands };
        router.restart()?;
        Ok(router)
    }

    /// Starts what does not run, with the configuration that is there, and waits for an answer.
    ///
    /// # Errors
    /// As [`Router::start`].
    pub fn restart(&mut self) -> Result<()> {
        let log = self.log_file();
        let started = self.daemons.iter_mut().try_for_each(|daemon| daemon.start(&log, START));
        started.map_err(|error| self.blame(&error))?;
        let answers = wait::until("an answer", START, || self.ask(self.hello()));
        answers.map(drop).map_err(|error| self.blame(&error))
    }

    /// Which program it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What its own client prints for a command: of `birdc`, `vtysh -c` or `gobgp`.
    ///
    /// # Errors
    /// When the client fails: what it said.
    pub fn ask(&self, command: &str) -> Result<String> {
        let mut client = match self.kind {
            Kind::Bird => bird::client(&self.netns, &self.dir, command),
            Kind::Frr => frr::client(&self.netns, command),
            Kind::Gobgp => gobgp::client(&self.netns, command),
        }?;
        said_by(&mut client).with_context(|| format!("{} {command}", self.kind))
    }

    /// Its best route to a prefix, where that came by BGP; `None`: it has none.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn route(&self, prefix: &str) -> Result<Option<Route>> {
        match self.kind {
            Kind::Bird => bird::route(self, prefix),
            Kind::Frr => frr::route(self, prefix),
            Kind::Gobgp => gobgp::route(self, prefix),
        }
    }

    /// All its routes to a prefix that came by BGP.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn routes(&self, prefix: &str) -> Result<Vec<Route>> {
        match self.kind {
            Kind::Bird => bird::routes(self, prefix),
            Kind::Frr => frr::routes(self, prefix),
            Kind::Gobgp => gobgp::routes(self, prefix),
        }
    }

    /// What its session with `neighbor` has carried.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn updates(&self, neighbor: &str) -> Result<Updates> {
        match self.kind {
            Kind::Bird => bird::updates(self),
            Kind::Frr => frr::updates(self, neighbor),
            Kind::Gobgp => gobgp::updates(self, neighbor),
        }
    }

    /// Asks `neighbor` to send everything again (RFC 2918).
    ///
    /// # Errors
    /// When it refuses.
    pub fn refresh(&self, neighbor: &str) -> Result<()> {
        let command = match self.kind {
            Kind::Bird => "reload in isthmus".to_owned(),
            Kind::Frr => format!("clear bgp {neighbor} soft in"),
            Kind::Gobgp => format!("neighbor {neighbor} softresetin"),
        };
        self.ask(&command).map(drop)
    }

    /// Ends the session with `neighbor` for good, with a word in one piece for it (RFC 9003).
    ///
    /// # Errors
    /// When it refuses.
    pub fn shut_down(&self, neighbor: &str, word: &str) -> Result<()> {
        let command = match self.kind {
            Kind::Bird => format!("disable isthmus \"{word}\""),
            Kind::Frr => {
                format!("configure terminal\nrouter bgp\nneighbor {neighbor} shutdown message {word}")
            }
            Kind::Gobgp => format!("neighbor {neighbor} shutdown --reason {word}"),
        };
        self.ask(&command).map(drop)
    }

    /// What it tells of its session with `neighbor` in its own words, and its log.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn story(&self, neighbor: &str) -> Result<String> {
        let told = match self.kind {
            Kind::Bird => self.ask("show protocols all isthmus"),
            Kind::Frr => self.ask(&format!("show bgp neighbors {neighbor}")),
            Kind::Gobgp => self.ask(&format!("neighbor {neighbor}")),
        }?;
        Ok(told + &self.log())
    }

    /// The state of its session with `neighbor`, an address, in RFC 4271's words.
    ///
    /// # Errors
    /// When it does not answer, or knows no such neighbor.
    pub fn session(&self, neighbor: &str) -> Result<String> {
        match self.kind {
            Kind::Bird => bird::session(self, neighbor),
            Kind::Frr => frr::session(self, neighbor),
            Kind::Gobgp => gobgp::session(self, neighbor),
        }
    }

    /// Begins or ends to originate a prefix, with community 65000:7 where the program lets a client say so.
    ///
    /// # Errors
    /// When it refuses.
    pub fn originate(&self, prefix: &str, wanted: bool) -> Result<()> {
        match self.kind {
            Kind::Bird => bird::originate(self, prefix, wanted),
            Kind::Frr => frr::originate(self, prefix, wanted),
            Kind::Gobgp => gobgp::originate(self, prefix, wanted),
        }
    }

    /// Waits for a condition; a failure has the log.
    ///
    /// # Errors
    /// When `limit` passes: the last complaint of `check`.
    pub fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        mut check: impl FnMut(&Self) -> Result<T>,
    ) -> Result<T> {
        wait::until(what, limit, || check(self)).map_err(|error| self.blame(&error))
    }

    /// Waits until the session with `neighbor` is established.
    ///
    /// # Errors
    /// As [`Router::until`].
    pub fn wait_established(&self, neighbor: &str, limit: Duration) -> Result<()> {
        self.until(&format!("the session with {neighbor}"), limit, |router| {
            let state = router.session(neighbor)?;
            ensure!(state == "Established", "{state}");
            Ok(())
        })
    }

    /// Process numbers of all that runs of it, the speaker's last.
    pub fn pids(&self) -> Vec<u32> {
        self.daemons.iter().filter_map(Daemon::pid).collect()
    }

    /// Ends the process that speaks BGP without a goodbye; what runs beside it stays.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> Result<()> {
        self.daemons.last_mut().context("no daemons")?.kill()
    }

    /// It neither reads nor writes any more, but its connections stay.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self) -> Result<()> {
        self.daemons.iter().try_for_each(|daemon| daemon.signal(Signal::SIGSTOP))
    }

    /// Sends a signal to the process that speaks BGP.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.daemons.last().context("no daemons")?.signal(signal)
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn blame(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\n--- {}:\n{}", self.kind, self.log())
    }

    /// A question that it can answer from its first moment.
    fn hello(&self) -> &'static str {
        match self.kind {
            Kind::Bird => "show status",
            Kind::Frr => "show bgp summary json",
            Kind::Gobgp => "global",
        }
    }
}

impl Drop for Router {
    /// In reverse, so that nothing mourns another that went before.
    fn drop(&mut self) {
        while self.daemons.pop().is_some() {}
    }
}

fn said_by(command: &mut Command) -> Result<String> {
    let output = command.output().context("running the client")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}{complaint}", output.status);
    Ok(said)
}
