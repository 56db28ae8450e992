//! `isthmus-bench streams`: the Workload API of a real isthmusd with as many workloads as a large node has, each on a connection of its own
//! unless it is told otherwise: a connection takes two descriptors of the daemon, and some machines have not enough.
//!
//! The daemon is a process by itself, so its memory is its own; this program is all the workloads. Each speaks HTTP/2 by hand (`client`),
//! because ten thousand of a usual client's connections would take gigabytes and most of the processors that are measured.

mod client;
mod report;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    pki::{Pki, identity_config},
};
use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::Signal,
};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, sync::watch, task::JoinSet};

use self::{
    client::{Client, Progress},
    report::Report,
};
use crate::{
    contender::{self, Contender, Name, Wanted},
    plan::Output,
    report::Machine,
    sandboxed::{self, DIRECTORY, Job, note},
};

const SITE: &str = "s1";
const LIMIT: Duration = Duration::from_secs(60);
/// How many connect at the same time while the crowd gathers: fewer than a listening socket holds.
const AT_ONCE: usize = 64;
/// How often the bundle is changed.
const CHANGES: usize = 3;
/// How long nothing may happen before something is counted as at rest.
const REST: Duration = Duration::from_secs(3);

/// Arguments of `isthmus-bench streams`.
#[derive(Args)]
pub(crate) struct Options {
    /// How many workloads.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: u32,
    /// How many are connected while the first answer is timed.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    connected: u32,
    /// How many streams a connection has.
    #[arg(long, default_value_t = 1, value_name = "STREAMS", value_parser = clap::value_parser!(u8).range(1..=16))]
    per_connection: u8,
    /// How many first answers are timed.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    probes: u32,
    /// The daemon to measure [default: the isthmusd beside this program].
    #[arg(long, value_name = "PATH")]
    isthmusd: Option<PathBuf>,
    /// Measure a debug build of isthmusd, which says little about speed.
    #[arg(long)]
    allow_debug: bool,
    /// Form of the result on standard output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// A run, as the outer process tells it to the one inside the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    daemon: Contender,
    streams: usize,
    connected: usize,
    per_connection: u8,
    probes: usize,
    output: Output,
}

/// Measures in a sandbox.
///
/// # Errors
/// When there is no daemon, and as [`sandboxed::enter`].
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { streams, connected, per_connection, probes, isthmusd, allow_debug, output } = options;
    let wanted =
        Wanted { of: &Name::TUNNELS, names: &[Name::Isthmus], isthmusd: isthmusd.as_deref(), allow_debug };
    let daemon = contender::select(wanted, |_| ())?.pop().context("no daemon was found")?;
    let number = |count: u32| usize::try_from(count).context("a number of streams");
    let (streams, connected, probes) = (number(streams)?, number(connected)?, number(probes)?);
    let connected = connected.min(streams);
    let plan = Plan { daemon, streams, connected, per_connection, probes, output };
    sandboxed::enter(&Job::Streams(plan), false)
}

/// Runs `plan` and prints what came of it.
///
/// # Errors
/// When the daemon does not start, or a stream ends.
pub(crate) fn inside(plan: &Plan) -> Result<ExitCode> {
    raise_descriptors(u64::try_from(plan.streams + 1_000)?)?;
    let mut issuer = Issuer::start(plan)?;
    let runtime = Runtime::new()?;
    let measured = runtime.block_on(measure(plan, &mut issuer)).map_err(|error| issuer.node.blame(error));
    let report = measured?;
    let text = match plan.output {
        Output::Table => report.table(),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    io::stdout().write_all(text.as_bytes()).context("writing the report")?;
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn raise_descriptors(wanted: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < wanted {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted));
        raised.with_context(|| format!("{wanted} descriptors are needed: ulimit -n {wanted}"))?;
    }
    Ok(())
}

async fn measure(plan: &Plan, issuer: &mut Issuer) -> Result<Report> {
    let mut crowd = Crowd::new(issuer.node.workload_socket(), plan.per_connection);
    let alone = issuer.memory()?;
    crowd.grow(plan.connected).await?;
    note(&format!("{} workloads are connected\n", crowd.size()));
    let first = crowd.probe(plan.probes).await?;
    let began = Instant::now();
    crowd.grow(plan.streams).await?;
    let gathering = began.elapsed();
    note(&format!("{} workloads are connected\n", crowd.size()));
    tokio::time::sleep(REST).await;
    let memory = issuer.memory()?;
    let mut changes = Vec::new();
    for round in 0..CHANGES {
        let (began, before) = (Instant::now(), issuer.processor_time()?);
        issuer.change_bundle(round)?;
        let [first, last] = crowd.wait_for(round + 2, began).await?;
        changes.push([first, last, issuer.processor_time()?.saturating_sub(before)]);
        // Nobody may be told twice.
        tokio::time::sleep(REST).await;
        crowd.check(round + 2)?;
    }
    let after = issuer.memory()?;
    let machine = Machine::this();
    Ok(Report::new(plan, machine, first, gathering, &changes, [alone, memory, after]))
}

/// The daemon and what it is made of.
struct Issuer {
    node: Node,
    /// `root.pem` as it was, and with another root.
    bundles: [String; 2],
    _netns: Netns,
}

impl Issuer {
    fn start(plan: &Plan) -> Result<Self> {
        let netns = Netns::create("issuer")?;
        let beside = |name: &str| plan.daemon.path.with_file_name(name);
        let (isthmusctl, isthmus_ca) = (beside("isthmusctl"), beside("isthmus-ca"));
        let bins = Bins { isthmusd: plan.daemon.path.clone(), isthmusctl, isthmus_ca };
        let mut node = Node::new("gw1", &netns, Path::new(DIRECTORY), &bins)?;
        let bundles = write_identity(node.dir())?;
        node.write_config(&config(&node, plan))?;
        node.restart_with(|command| {
            // One line for each SVID is what an operator gets, but this directory is in memory.
            command.env("ISTHMUS_LOG", "warn");
        })?;
        node.wait_ready(LIMIT).context("starting isthmusd")?;
        Ok(Self { node, bundles, _netns: netns })
    }

    /// Resident memory in bytes.
    fn memory(&self) -> Result<u64> {
        let pid = self.node.pid().context("the daemon is gone")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }

    /// What the daemon has used of processors so far, in user and kernel space.
    fn processor_time(&self) -> Result<Duration> {
        let pid = self.node.pid().context("the daemon is gone")?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Fields 14 and 15, counted behind the name, which may hold anything (proc_pid_stat(5)); a tick is a hundredth of a second.
        let behind = stat.rsplit_once(')').context("no process name")?.1;
        let ticks = behind.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
    }

    /// Another bundle than before; the daemon is told to read it.
    fn change_bundle(&self, round: usize) -> Result<()> {
        fs::write(self.node.dir().join("root.pem"), &self.bundles[(round + 1) % 2])?;
        self.node.signal(Signal::SIGHUP)
    }
}

fn write_identity(dir: &Path) -> Result<[String; 2]> {
    let root = dir.join("root.pem");
    Pki::new(SITE, SystemTime::now().into())?.write_site(dir)?;
    let other = fs::read_to_string(&root)?;
    Pki::new(SITE, SystemTime::now().into())?.write_all(dir, "gw1")?;
    let own = fs::read_to_string(&root)?;
    Ok([own.clone(), own + &other])
}

fn config(node: &Node, plan: &Plan) -> String {
    let places = plan.streams * 2 + 1_000;
    format!(
        "{}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\nrate = \"off\"\nrequester_rate = \"off\"\n\
         [workload_api]\nsocket = {:?}\nmax_connections = {places}\nmax_per_user = {places}\n\
         [[workload_api.entry]]\nspiffe_id = \"/bench/workload\"\nselectors = [\"unix:uid:{}\"]\nttl = \"12h\"\n",
        identity_config(node, SITE),
        node.workload_socket(),
        nix::unistd::geteuid(),
    )
}

/// All the workloads.
struct Crowd {
    socket: Arc<PathBuf>,
    per_connection: u8,
    connections: JoinSet<Result<()>>,
    progress: Vec<watch::Receiver<Progress>>,
}

impl Crowd {
    fn new(socket: PathBuf, per_connection: u8) -> Self {
        let (connections, progress) = (JoinSet::new(), Vec::new());
        Self { socket: Arc::new(socket), per_connection, connections, progress }
    }

    /// How many streams there are.
    fn size(&self) -> usize {
        self.progress.len() * usize::from(self.per_connection)
    }

    /// Connects until there are so many streams, each with its first answer; a connection is not left half empty.
    async fn grow(&mut self, size: usize) -> Result<()> {
        while self.size() < size {
            let batch = AT_ONCE.min((size - self.size()).div_ceil(self.per_connection.into()));
            let mut connecting = JoinSet::new();
            for _ in 0..batch {
                let (socket, calls) = (self.socket.clone(), self.per_connection);
                connecting.spawn(async move { Client::connect(&socket, calls).await });
            }
            while let Some(client) = connecting.join_next().await {
                let (client, progress) = client??.watched();
                self.connections.spawn(client.follow());
                self.progress.push(progress);
            }
        }
        self.check(1)
    }

    /// Times from connecting to the whole first answer, one after another.
    async fn probe(&self, count: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            let client = Client::connect(&self.socket, 1).await?;
            times.push(began.elapsed());
            drop(client);
        }
        Ok(times)
    }

    /// How long after `began` the first and the last had this many messages.
    async fn wait_for(&self, messages: usize, began: Instant) -> Result<[Duration; 2]> {
        let mut times = Vec::with_capacity(self.progress.len());
        for progress in &self.progress {
            let mut progress = progress.clone();
            let seen = tokio::time::timeout(LIMIT, progress.wait_for(|now| now.messages >= messages)).await;
            let seen =
                seen.context("a stream was not updated within a minute")?.context("a stream has ended")?;
            times.push(seen.last.saturating_duration_since(began));
        }
        let first = times.iter().min().copied().unwrap_or_default();
        Ok([first, times.into_iter().max().unwrap_or_default()])
    }

    /// Everybody has had exactly so many messages.
    fn check(&self, messages: usize) -> Result<()> {
        let is_right = |now: &Progress| now.messages == messages && now.most == messages;
        let wrong = self.progress.iter().filter(|progress| !is_right(&progress.borrow())).count();
        ensure!(
            wrong == 0,
            "{wrong} of {} connections have not had {messages} messages",
            self.progress.len()
        );
        Ok(())
    }
}

/// The share of `sorted` that is at or below the result.
pub(super) fn quantile(sorted: &[Duration], per_mille: usize) -> Duration {
    let at = (sorted.len() * per_mille).div_ceil(1000).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let times: Vec<Duration> = (1..=1000).map(Duration::from_millis).collect();
        assert_eq!(quantile(&times, 500), Duration::from_millis(500));
        assert_eq!(quantile(&times, 990), Duration::from_millis(990));
        assert_eq!(quantile(&times, 1000), Duration::from_millis(1000));
        assert_eq!(quantile(&times[..1], 990), Duration::from_millis(1));
        assert_eq!(quantile(&[], 990), Duration::ZERO);
    }
}
