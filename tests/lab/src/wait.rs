//! Waiting for a condition, never for a length of time.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};

/// Asks `check` until it says `Ok`, every few milliseconds; after `limit` its last complaint is the error.
///
/// # Errors
/// When `limit` has passed: what was awaited, for how long, and why it was not so at the end.
pub fn until<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() >= limit => {
                return Err(anyhow!("waited {:.1} s for {what}: {error:#}", start.elapsed().as_secs_f64()));
            }
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

/// [`until`] for a plain yes or no.
///
/// # Errors
/// When `limit` has passed and `check` still says no.
pub fn until_true(what: &str, limit: Duration, mut check: impl FnMut() -> bool) -> Result<()> {
    until(what, limit, || {
        ensure!(check(), "not yet");
        Ok(())
    })
}
