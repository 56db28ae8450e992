//! `isthmus-bench issue`: how many SVIDs one core issues in a second, each checked, signed and written to the audit log.
//!
//! A figure is one row: add it to [`measure`]. `site` is a site CA in a directory that vanishes, `meter` counts, `report` prints, `rivals`
//! are other people's programs, measured in the same run.

mod meter;
mod report;
mod rivals;
mod site;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use isthmusd::identity::Sync;

use self::{
    meter::{Rate, meter},
    report::{Report, Row},
    site::Site,
};
use crate::plan::Output;

/// Arguments of `isthmus-bench issue`.
#[derive(Args)]
pub(crate) struct Options {
    /// How long each figure is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Where the audit log is written: its disk is part of the figure.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Form of the result on standard output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Measures and prints.
///
/// # Errors
/// When something can't be issued or the directory can't be written.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    // Counters cost what they cost in the daemon.
    isthmusd::metrics::registry();
    let report = Report::new(measure(options)?);
    let text = match options.output {
        Output::Table => report.table(),
        Output::Json => report.json()? + "\n",
    };
    io::stdout().write_all(text.as_bytes()).context("writing the report")?;
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(options: &Options) -> Result<Vec<Row>> {
    let time = Duration::from_secs(options.seconds.into());
    let mut rows = Vec::new();
    for sync in [Sync::Batch, Sync::Always] {
        let site = Site::new(&options.directory, sync)?;
        rows.push(ours(
            "X.509-SVID, agent's key",
            sync,
            meter(time, || site.certify())?,
            Some((3000.0, 6000.0)),
        ));
        rows.push(ours("X.509-SVID, key made here", sync, meter(time, || site.issue())?, None));
        rows.push(ours("JWT-SVID", sync, meter(time, || site.mint())?, Some((6000.0, 12_000.0))));
    }
    rows.extend(rivals::measure(options.seconds));
    Ok(rows)
}

/// Goals are for the default; what waits for a disk measures the disk.
fn ours(what: &'static str, sync: Sync, rate: Rate, goal: Option<(f64, f64)>) -> Row {
    let (by, goal) = match sync {
        Sync::Batch => ("isthmusd, sync = \"batch\"", goal),
        Sync::Always => ("isthmusd, sync = \"always\"", None),
    };
    Row { what: what.into(), by: by.into(), rate, goal }
}
