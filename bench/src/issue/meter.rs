//! Counts what one thread does.

use std::{
    process,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::Serialize;

use crate::process::cpu_seconds;

/// How often the clock is read.
const BATCH: u32 = 50;

/// What a thread did.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Rate {
    /// For each second of processor time of the whole process: what a core does that has nothing else to do.
    pub(crate) per_core: f64,
    /// For each second by the clock, on this machine as busy as it was.
    pub(crate) per_second: f64,
}

/// Calls `work` over and over for so long.
///
/// # Errors
/// What `work` fails with.
pub(crate) fn meter(time: Duration, mut work: impl FnMut() -> Result<()>) -> Result<Rate> {
    // What is only done once (tables, lazily made keys) is done.
    (0..BATCH).try_for_each(|_| work())?;
    let (cpu, started, mut count) = (cpu_seconds(process::id())?, Instant::now(), 0u32);
    while started.elapsed() < time {
        (0..BATCH).try_for_each(|_| work())?;
        count += BATCH;
    }
    let wall = started.elapsed().as_secs_f64();
    // The tick of the kernel's clock is the least that was used.
    let cpu = (cpu_seconds(process::id())? - cpu).max(0.01);
    Ok(Rate { per_core: f64::from(count) / cpu, per_second: f64::from(count) / wall })
}
