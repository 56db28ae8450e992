//! One speaker, one round.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use isthmus_lab::{netns::Netns, router::Scope};

use super::{
    Plan, Size, config,
    feed::Feed,
    kernel::Watch,
    rig::{FEEDER, READER, Rig},
    session::{Ends, Session, Voice},
};
use crate::{contender::Contender, figure::Figure, subject::Subject, summary::quantile};

/// No load may take longer.
const LIMIT: Duration = Duration::from_secs(180);
/// A speaker that said nothing for so long has nothing more to do.
const SETTLING: Duration = Duration::from_secs(1);
/// Between two withdrawals that are timed.
const PAUSE: Duration = Duration::from_millis(50);
/// How many of them.
const WITHDRAWALS: u32 = 40;
/// Of so many prefixes.
const WITHDRAWN: u32 = 1_000;
/// How many go into the kernel.
const KERNEL: u32 = 100_000;

const FEED: Feed = Feed { asn: FEEDER.asn, next_hop: FEEDER.address };

/// Who is told of each figure.
type Take<'a> = &'a mut dyn FnMut(Figure, f64);

/// Measures `contender` once as `plan` says, with a new process for each size.
///
/// # Errors
/// When it does not start, closes a session or is not done in time, with the end of its log.
pub(super) fn round(plan: &Plan, contender: &Contender, dir: &Path, take: Take<'_>) -> Result<()> {
    let sizes: Vec<_> = if plan.kernel { vec![None] } else { plan.sizes.iter().copied().map(Some).collect() };
    for size in sizes {
        let rig = Rig::build()?;
        let scope = if plan.kernel { Scope::Whole } else { Scope::Bgp };
        let text = config::text(contender.name, plan.kernel);
        let subject = Subject::start(contender, scope, &text, &rig.speaker, &dir.join("speaker"))?;
        let measured = match size {
            Some(size) => through(&rig, &subject, size, take),
            None => into_kernel(&rig, take),
        };
        measured.map_err(|error| subject.blame(&error))?;
    }
    Ok(())
}

/// From the feeder to the reader.
fn through(rig: &Rig, subject: &Subject, size: Size, take: Take<'_>) -> Result<()> {
    let mut reader = Session::establish(&rig.reader, READER)?;
    with_feeder(&rig.feeder, FEEDER, |feeder| {
        reader.until_quiet(SETTLING)?;
        if size == Size::TenThousand {
            withdrawals(feeder, &mut reader, take)?;
        }
        let (prefixes, idle) = (size.prefixes(), subject.memory()?);
        let began = speak(feeder, FEED.announce(0..prefixes));
        take(size.load(), milliseconds(began, reader.until_held(prefixes, LIMIT, feeder)?));
        reader.until_quiet(SETTLING)?;
        if let Some(figure) = size.memory() {
            take(figure, (subject.memory()? - idle) / f64::from(prefixes));
        }
        let began = speak(feeder, FEED.withdraw(0..prefixes));
        take(size.unload(), milliseconds(began, reader.until_held(0, LIMIT, feeder)?));
        Ok(())
    })
}

/// How soon the reader knows that a thousand prefixes are gone.
fn withdrawals(feeder: &Voice, reader: &mut Session, take: Take<'_>) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..WITHDRAWALS {
        feeder.send(&FEED.announce(0..WITHDRAWN))?;
        reader.until_held(WITHDRAWN, LIMIT, feeder)?;
        reader.until_quiet(PAUSE)?;
        let withdrawal = FEED.withdraw(0..WITHDRAWN);
        let began = Instant::now();
        feeder.send(&withdrawal)?;
        times.push(milliseconds(began, reader.until_held(0, LIMIT, feeder)?));
        reader.until_quiet(PAUSE)?;
    }
    let shares =
        [(Figure::WithdrawSeen, 0.5), (Figure::WithdrawSeenP99, 0.99), (Figure::WithdrawSeenMax, 1.0)];
    for (figure, share) in shares {
        take(figure, quantile(&times, share).context("nothing was withdrawn")?);
    }
    Ok(())
}

/// From the feeder into the kernel's table, and out again.
fn into_kernel(rig: &Rig, take: Take<'_>) -> Result<()> {
    let mut kernel = Watch::start(&rig.speaker)?;
    with_feeder(&rig.feeder, FEEDER, |feeder| {
        thread::sleep(SETTLING);
        let began = speak(feeder, FEED.announce(0..KERNEL));
        take(Figure::KernelInstall, milliseconds(began, kernel.until_held(KERNEL, LIMIT, feeder)?));
        thread::sleep(SETTLING);
        let began = speak(feeder, FEED.withdraw(0..KERNEL));
        take(Figure::KernelRemove, milliseconds(began, kernel.until_held(0, LIMIT, feeder)?));
        Ok(())
    })
}

/// A session that another thread listens to, so that nobody waits for us.
///
/// # Errors
/// Those of `work`, and when the speaker ends the session: why.
pub(crate) fn with_feeder<T>(netns: &Netns, ends: Ends, work: impl FnOnce(&Voice) -> Result<T>) -> Result<T> {
    let mut session = Session::establish(netns, ends)?;
    let (voice, stop) = (session.voice(), AtomicBool::new(false));
    thread::scope(|scope| {
        let listener = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                session.read().inspect_err(|_| voice.end())?;
            }
            Ok(())
        });
        let worked = work(&voice);
        stop.store(true, Ordering::Relaxed);
        let listened = listener.join().map_err(|_| anyhow!("the feeder's listener panicked"))?;
        // What the speaker complained of explains what did not come of it.
        listened.context("the feeder's session").and(worked)
    })
}

/// Sends from a thread of its own, so that the reader reads from the first octet on: when it began.
fn speak(feeder: &Voice, octets: Vec<u8>) -> Instant {
    let (feeder, began) = (feeder.clone(), Instant::now());
    // A connection that ends under it is what the feeder's listener tells of.
    thread::spawn(move || feeder.send(&octets));
    began
}

fn milliseconds(began: Instant, ended: Instant) -> f64 {
    ended.saturating_duration_since(began).as_secs_f64() * 1e3
}
