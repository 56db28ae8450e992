//! `isthmus-bench converge`: what a flow and the kernel's routes see of a speaker when something dies.
//!
//! ```text
//!                                      ┌ first: BIRD ──┐
//! source ── the speaker under test ────┤               ├── destination, behind one of 1,000 prefixes
//!                                      └ second: BIRD ─┘   that both announce, the second by a longer AS path
//! ```

mod config;
mod down;
mod events;
mod flood;
mod flow;
mod kernel;
mod rig;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use config::Extra;
use serde::{Deserialize, Serialize};

use crate::{
    contender::{self, Contender, Name, Wanted},
    figure::{Figure, Samples},
    plan::Output,
    report::plain::Plain,
    sandboxed::{self, DIRECTORY, Job, note},
};

/// The form of the report.
const SCHEMA: &str = "isthmus-bench/converge/1";
/// Those that put routes into the kernel.
const SPEAKERS: [Name; 3] = [Name::Isthmus, Name::Bird, Name::Frr];

/// Arguments of `isthmus-bench converge`.
#[derive(Args)]
pub(crate) struct Options {
    /// Programs to compare, none of which may be missing [default: all that are installed].
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    programs: Vec<Name>,
    /// What happens.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "silent-300,silent-100,reaction,carrier,kill,leave,restart,flood"
    )]
    events: Vec<Event>,
    /// How often each of it happens to each program.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// The daemon to measure [default: the isthmusd beside this program].
    #[arg(long, value_name = "PATH")]
    isthmusd: Option<PathBuf>,
    /// Measure debug builds, which say nothing about speed.
    #[arg(long)]
    allow_debug: bool,
    /// Form of the result on standard output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The first path drops everything without a word; BFD 300 ms x 3.
    #[value(name = "silent-300")]
    Silent300,
    /// The same with BFD 100 ms x 3.
    #[value(name = "silent-100")]
    Silent100,
    /// As `silent-100`, but timed from BFD's word, and until the kernel's routes are others.
    Reaction,
    /// The cable to the first router is pulled.
    Carrier,
    /// The first router's speaker is killed; the router forwards on.
    Kill,
    /// The first router's speaker closes its session in order; the router forwards on.
    Leave,
    /// The speaker under test is killed and started again, with graceful restart.
    Restart,
    /// A million prefixes come to a speaker that has one processor; once, whatever `--times` says.
    Flood,
}

impl Event {
    /// What the sessions have meanwhile.
    fn extra(self) -> Extra {
        match self {
            Self::Silent300 | Self::Flood => Extra::Bfd(300),
            Self::Silent100 | Self::Reaction => Extra::Bfd(100),
            Self::Carrier | Self::Kill | Self::Leave => Extra::Nothing,
            Self::Restart => Extra::GracefulRestart,
        }
    }

    /// What is noted of all its times, and which share of them is below (0 to 1).
    fn figures(self) -> &'static [(Figure, f64)] {
        match self {
            Self::Silent300 => {
                &[(Figure::Silent300, 0.5), (Figure::Silent300P99, 0.99), (Figure::Silent300Max, 1.0)]
            }
            Self::Silent100 => {
                &[(Figure::Silent100, 0.5), (Figure::Silent100P99, 0.99), (Figure::Silent100Max, 1.0)]
            }
            Self::Reaction => &[(Figure::Reaction, 0.5), (Figure::ReactionMax, 1.0)],
            Self::Carrier => &[(Figure::Carrier, 0.5), (Figure::CarrierMax, 1.0)],
            Self::Kill => &[(Figure::Killed, 0.5), (Figure::KilledMax, 1.0)],
            // No packet may be lost, not even once.
            Self::Leave => &[(Figure::LeaveLost, 1.0)],
            Self::Restart => &[(Figure::RestartLost, 1.0)],
            Self::Flood => &[(Figure::FloodLost, 1.0)],
        }
    }
}

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    contenders: Vec<Contender>,
    events: Vec<Event>,
    times: u32,
    output: Output,
}

/// Chooses programs and measures them in a sandbox.
///
/// # Errors
/// When a program is missing, and as [`sandboxed::enter`].
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { programs, events, times, isthmusd, allow_debug, output } = options;
    contender::check_self(allow_debug)?;
    contender::check_cutter()?;
    let wanted = Wanted { of: &SPEAKERS, names: &programs, isthmusd: isthmusd.as_deref(), allow_debug };
    let contenders = contender::select(wanted, |why| note(&format!("SKIPPED {why}\n")))?;
    sandboxed::enter(&Job::Converge(Plan { contenders, events, times, output }), false)
}

/// Lets everything of `plan` happen and prints the report.
///
/// # Errors
/// When a speaker does not start, or a flow does not find its way again.
pub(crate) fn inside(plan: &Plan) -> Result<ExitCode> {
    let report = Plain::new(SCHEMA, plan.times, &plan.contenders, &all(plan)?);
    io::stdout().write_all(report.text(plan.output)?.as_bytes()).context("writing the report")?;
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One event after another, each of every program in turn.
fn all(plan: &Plan) -> Result<Vec<(Name, Samples)>> {
    let mut results: Vec<(Name, Samples)> =
        plan.contenders.iter().map(|contender| (contender.name, Samples::new())).collect();
    for event in &plan.events {
        for (contender, (name, samples)) in plan.contenders.iter().zip(&mut results) {
            note(&format!("{event:?}, {name}:"));
            let mut take = |figure: Figure, value: f64| {
                note(&format!(" {} {value:.*} {};", figure.title(), figure.decimals(), figure.unit()));
                samples.entry(figure).or_default().push(value);
            };
            let times = if *event == Event::Flood { 1 } else { plan.times };
            let measured = events::measure(*event, times, contender, Path::new(DIRECTORY), &mut take);
            note("\n");
            measured.with_context(|| format!("{event:?}, {name}"))?;
        }
    }
    Ok(results)
}
