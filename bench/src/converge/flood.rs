//! A million prefixes at a speaker that has one processor; its sessions must not notice.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use super::{
    config::{FLOODER_ASN, SOURCE, SPEAKER_AT_SOURCE},
    rig::Rig,
};
use crate::{
    routes::{Ends, Feed, with_feeder},
    sandboxed::note,
};

/// How many come.
const PREFIXES: u32 = 1_000_000;
/// More than the hold time: an expiry that was under way has happened by then.
const AFTERMATH: Duration = Duration::from_secs(10);
/// How often the second router is asked what it has heard.
const TICK: Duration = Duration::from_millis(200);

/// Runs `work`, and with it whatever it starts, on the first of our processors.
///
/// # Errors
/// Those of `work`, and when the kernel refuses.
pub(super) fn on_one_processor<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).context("asking for our processors")?;
    let mut one = CpuSet::new();
    let first = (0..CpuSet::count()).find(|number| all.is_set(*number).unwrap_or_default());
    one.set(first.context("we may run on no processor")?)?;
    sched_setaffinity(this, &one).context("running on one processor")?;
    let result = work();
    sched_setaffinity(this, &all).context("running on all processors again")?;
    result
}

/// How many routers had another session in the end than in the beginning.
///
/// # Errors
/// When the flooder's own session ends, or the second router has not heard all within `limit`.
pub(super) fn flood(rig: &Rig, limit: Duration) -> Result<u32> {
    let ends = Ends { asn: FLOODER_ASN, address: SOURCE, neighbor: SPEAKER_AT_SOURCE };
    let feed = Feed { asn: ends.asn, next_hop: ends.address };
    with_feeder(&rig.source, ends, |feeder| {
        let before = sessions(rig)?;
        let heard = updates_heard(rig)?;
        let octets = feed.announce(0..PREFIXES);
        let began = Instant::now();
        feeder.send(&octets)?;
        while updates_heard(rig)?.saturating_sub(heard) < u64::from(PREFIXES) {
            feeder.ensure_alive()?;
            ensure!(began.elapsed() < limit, "the second router has not heard all after {limit:?}");
            thread::sleep(TICK);
        }
        note(&format!(" all at the second router after {:.1} s;", began.elapsed().as_secs_f64()));
        thread::sleep(AFTERMATH);
        feeder.ensure_alive()?;
        let lost = before.iter().zip(sessions(rig)?).filter(|(before, after)| *before != after).count();
        Ok(u32::try_from(lost)?)
    })
}

/// A line of each router, that it is established and since when. BFD ends a session too.
fn sessions(rig: &Rig) -> Result<[String; 2]> {
    let line = |answer: String| {
        let line = answer.lines().find(|line| line.contains("BGP"));
        line.map(str::to_owned).context("BIRD knows no session")
    };
    let [first, second] = [&rig.first, &rig.second].map(|router| router.ask("show protocols speaker"));
    let lines = [line(first?)?, line(second?)?];
    ensure!(lines.iter().all(|line| line.contains("Established")), "no session: {lines:?}");
    Ok(lines)
}

/// Announcements that the second router has heard, whatever it did with them.
fn updates_heard(rig: &Rig) -> Result<u64> {
    let answer = rig.second.ask("show protocols all speaker")?;
    let line = answer.lines().find_map(|line| line.trim().strip_prefix("Import updates:"));
    let first = line.and_then(|line| line.split_whitespace().next()).context("BIRD counts no updates")?;
    first.parse().with_context(|| format!("BIRD counts {first}"))
}
