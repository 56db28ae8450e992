//! One line a step on standard error; findings on standard output.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// What a step found out.
pub(super) struct Outcome {
    /// For the step's line.
    pub(super) summary: String,
    /// For standard output, after the line.
    pub(super) details: String,
}

impl From<String> for Outcome {
    fn from(summary: String) -> Self {
        Self { summary, details: String::new() }
    }
}

/// Counts steps and times them.
pub(super) struct Progress {
    start: Instant,
    step: usize,
    steps: usize,
}

impl Progress {
    pub(super) fn new(steps: usize) -> Self {
        Self { start: Instant::now(), step: 0, steps }
    }

    /// Runs one step.
    pub(super) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> Result<()> {
        self.step += 1;
        let since = self.start.elapsed();
        note(&format!("[{:5.1} s] {}/{} {name}: ", since.as_secs_f64(), self.step, self.steps));
        let result = work();
        let took = self.start.elapsed().saturating_sub(since).as_secs_f64();
        match &result {
            Ok(outcome) => {
                note(&format!("{} ({took:.1} s)\n", outcome.summary));
                say(&outcome.details);
            }
            Err(_) => note(&format!("FAILED ({took:.1} s)\n")),
        }
        result.map(drop).with_context(|| format!("step {} of {}, {name}", self.step, self.steps))
    }

    /// Since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// To standard error. A reader who went away does not stop the demo.
pub(super) fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

/// To standard output.
pub(super) fn say(text: &str) {
    let text = text.trim_end();
    if !text.is_empty() {
        let _ = writeln!(io::stdout().lock(), "{text}");
    }
}
