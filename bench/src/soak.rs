//! `isthmus-bench soak`: flows that live as long as the run, through a tunnel around which everything changes all the time.

mod end;
mod flows;
mod line;
mod pattern;
mod report;
mod schedule;
mod silence;
mod stream;
mod trouble;
mod udp;
mod vitals;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use self::{
    end::Ends,
    flows::Flows,
    report::{Observed, Report},
    schedule::Schedule,
    silence::Outages,
    vitals::Vitals,
};
use crate::{
    contender::{self, Contender, Name, Wanted},
    plan::Output,
    report::Machine,
    sandboxed::{self, DIRECTORY, Job, note},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Arguments of `isthmus-bench soak`.
#[derive(Args)]
pub(crate) struct Options {
    /// How long; all kinds of events take place even in a single minute.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// What all TCP connections carry together, both ways, in Mb/s.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// The daemon to run [default: the isthmusd beside this program].
    #[arg(long, value_name = "PATH")]
    isthmusd: Option<PathBuf>,
    /// Run a debug build of isthmusd, whose memory is another one.
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
    minutes: u32,
    rate: u32,
    output: Output,
}

/// Runs in a sandbox; fails unless everything lasted.
///
/// # Errors
/// When there is no daemon, and as [`sandboxed::enter`].
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { minutes, rate, isthmusd, allow_debug, output } = options;
    let wanted =
        Wanted { of: &Name::TUNNELS, names: &[Name::Isthmus], isthmusd: isthmusd.as_deref(), allow_debug };
    let daemon = contender::select(wanted, |_| ())?.pop().context("no daemon was found")?;
    sandboxed::enter(&Job::Soak(Plan { daemon, minutes, rate, output }), false)
}

/// Runs `plan` and prints what came of it.
///
/// # Errors
/// When it can't start; what goes wrong later is part of the result.
pub(crate) fn inside(plan: &Plan) -> Result<ExitCode> {
    let mut ends = Ends::start(&plan.daemon, Path::new(DIRECTORY))?;
    ends.wait_for_packets()?;
    let observed = observe(plan, &mut ends)?;
    let report = Report::new(plan, Machine::this(), observed);
    let text = match plan.output {
        Output::Table => report.table(),
        Output::Json => report.json()? + "\n",
    };
    io::stdout().write_all(text.as_bytes()).context("writing the report")?;
    if report.failed() {
        note(&ends.logs());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The events in a thread of their own; this one looks on.
fn observe(plan: &Plan, ends: &mut Ends) -> Result<Observed> {
    let length = MINUTE * plan.minutes;
    let (outages, stop) = (Arc::<Outages>::default(), AtomicBool::new(false));
    let flows = Flows::start(ends, plan.rate, &outages)?;
    let schedule = Schedule::new(length);
    let mut vitals = Vitals::start(ends, length)?;
    let start = Instant::now();
    let (events, line) = thread::scope(|scope| {
        let events = scope.spawn(|| ends.undergo(&schedule, start, &outages, &stop));
        let line = watch(plan, ends, &flows, &mut vitals, start);
        stop.store(true, Ordering::Relaxed);
        (events.join(), line)
    });
    let lasted = start.elapsed();
    let events = events.map_err(|_| anyhow::anyhow!("the thread of the events panicked"))?;
    let mut troubles = line.err().map(|error| format!("{error:#}")).into_iter().collect::<Vec<_>>();
    let flows = flows.finish(&outages);
    troubles.extend(ends.troubles());
    Ok(Observed { lasted, down: outages.total(), events, flows, vitals: vitals.finish(), troubles })
}

/// Looks at everything once a second, and tells every minute. Ends early when a flow or a daemon has ended.
///
/// # Errors
/// When a daemon does not answer.
fn watch(plan: &Plan, ends: &Ends, flows: &Flows, vitals: &mut Vitals, start: Instant) -> Result<()> {
    let seconds = plan.minutes * 60;
    for second in 1..=seconds {
        thread::sleep((start + SECOND * second).saturating_duration_since(Instant::now()));
        vitals.sample(ends, start.elapsed())?;
        if second % 60 == 0 {
            note(&line::minute(second / 60, plan.minutes, flows, vitals));
        }
        if let Some(why) = flows.broken() {
            note(&format!("stopped after {second} s: {why}\n"));
            break;
        }
    }
    Ok(())
}
