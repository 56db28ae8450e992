//! `isthmus-bench routes`: what one speaker does with many prefixes, and how soon another one knows.
//!
//! ```text
//! feeder: 10.0.1.2 ── 10.0.1.1 the speaker under test 10.0.2.1 ── reader: 10.0.2.2
//! ```
//! Feeder and reader are this program, the same for everybody: octets that were made before the clock starts, and a count of what arrives.

mod config;
mod feed;
mod held;
mod kernel;
mod measure;
mod rig;
mod session;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

pub(crate) use self::{feed::Feed, measure::with_feeder, session::Ends};
use crate::{
    contender::{self, Contender, Name, Wanted},
    figure::{Figure, Samples},
    plan::Output,
    report::plain::Plain,
    sandboxed::{self, DIRECTORY, Job, note},
};

/// The form of the report.
const SCHEMA: &str = "isthmus-bench/routes/1";

/// Arguments of `isthmus-bench routes`.
#[derive(Args)]
pub(crate) struct Options {
    /// Programs to compare, none of which may be missing [default: all that are installed].
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    programs: Vec<Name>,
    /// How often each program is measured; a figure is the median of its rounds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How many prefixes go through.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "10k,100k,500k")]
    sizes: Vec<Size>,
    /// Measure only the way into the kernel's routing table.
    #[arg(long, conflicts_with = "sizes")]
    kernel: bool,
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

/// How many prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Size {
    /// 10,000, and the withdrawal of 1,000.
    #[value(name = "10k")]
    TenThousand,
    /// 100,000.
    #[value(name = "100k")]
    HundredThousand,
    /// 500,000.
    #[value(name = "500k")]
    HalfMillion,
}

impl Size {
    fn prefixes(self) -> u32 {
        match self {
            Self::TenThousand => 10_000,
            Self::HundredThousand => 100_000,
            Self::HalfMillion => 500_000,
        }
    }

    fn load(self) -> Figure {
        match self {
            Self::TenThousand => Figure::Load10k,
            Self::HundredThousand => Figure::Load100k,
            Self::HalfMillion => Figure::Load500k,
        }
    }

    fn unload(self) -> Figure {
        match self {
            Self::TenThousand => Figure::Unload10k,
            Self::HundredThousand => Figure::Unload100k,
            Self::HalfMillion => Figure::Unload500k,
        }
    }

    /// Ten thousand are too few to say what one of them costs.
    fn memory(self) -> Option<Figure> {
        match self {
            Self::TenThousand => None,
            Self::HundredThousand => Some(Figure::RouteMemory100k),
            Self::HalfMillion => Some(Figure::RouteMemory500k),
        }
    }
}

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    contenders: Vec<Contender>,
    rounds: u32,
    sizes: Vec<Size>,
    kernel: bool,
    output: Output,
}

/// Chooses programs and measures them in a sandbox.
///
/// # Errors
/// When a program is missing, and as [`sandboxed::enter`].
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { programs, rounds, sizes, kernel, isthmusd, allow_debug, output } = options;
    contender::check_self(allow_debug)?;
    let wanted =
        Wanted { of: speakers(kernel), names: &programs, isthmusd: isthmusd.as_deref(), allow_debug };
    let contenders = contender::select(wanted, |why| note(&format!("SKIPPED {why}\n")))?;
    sandboxed::enter(&Job::Routes(Plan { contenders, rounds, sizes, kernel, output }), false)
}

/// GoBGP has no way into the kernel of its own.
fn speakers(kernel: bool) -> &'static [Name] {
    if kernel { &[Name::Isthmus, Name::Bird, Name::Frr] } else { &Name::SPEAKERS }
}

/// Runs the rounds of `plan` and prints the report.
///
/// # Errors
/// When a speaker does not start, closes a session or is not done in time.
pub(crate) fn inside(plan: &Plan) -> Result<ExitCode> {
    let report = Plain::new(SCHEMA, plan.rounds, &plan.contenders, &rounds(plan)?);
    io::stdout().write_all(report.text(plan.output)?.as_bytes()).context("writing the report")?;
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Every program once a round, so that a noisy minute hits them all.
fn rounds(plan: &Plan) -> Result<Vec<(Name, Samples)>> {
    let mut results: Vec<(Name, Samples)> =
        plan.contenders.iter().map(|contender| (contender.name, Samples::new())).collect();
    for number in 1..=plan.rounds {
        for (contender, (name, samples)) in plan.contenders.iter().zip(&mut results) {
            note(&format!("round {number}/{}, {name}:", plan.rounds));
            let mut take = |figure: Figure, value: f64| {
                note(&format!(" {} {value:.*} {};", figure.title(), figure.decimals(), figure.unit()));
                samples.entry(figure).or_default().push(value);
            };
            let measured = measure::round(plan, contender, Path::new(DIRECTORY), &mut take);
            note("\n");
            measured.with_context(|| format!("round {number}, {name}"))?;
        }
    }
    Ok(results)
}
