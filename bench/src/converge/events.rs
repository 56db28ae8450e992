//! What happens, and what is seen of it.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use isthmus_lab::router::Scope;

use super::{
    Event, config,
    down::Watch,
    flood,
    flow::Flow,
    kernel::Kernel,
    rig::{PREFIXES, ROUTERS, Rig},
};
use crate::{contender::Contender, figure::Figure, subject::Subject, summary::quantile};

/// Every way there and back ends within this.
const LIMIT: Duration = Duration::from_secs(60);
/// After everything is as it was, so that BFD has its fast rate and BGP no timer of the last time.
const SETTLING: Duration = Duration::from_secs(3);
/// A flood takes longer.
const FLOOD: Duration = Duration::from_secs(300);
/// How long a killed speaker is gone.
const GONE: Duration = Duration::from_secs(2);

/// A speaker with both routers up.
struct Scene {
    rig: Rig,
    subject: Subject,
    kernel: Kernel,
    flow: Flow,
}

/// Lets `event` happen so many times to `contender`.
///
/// # Errors
/// When it does not start, or traffic does not find its way, with the end of its log.
pub(super) fn measure(
    event: Event,
    times: u32,
    contender: &Contender,
    dir: &Path,
    take: &mut dyn FnMut(Figure, f64),
) -> Result<()> {
    let mut scene = Scene::set(event, contender, dir)?;
    let mut values = Vec::new();
    for number in 1..=times {
        let value = scene.settle().and_then(|()| scene.play(event));
        let value = value.with_context(|| format!("time {number} of {times}"));
        values.push(value.map_err(|error| scene.subject.blame(&error))?);
    }
    for (figure, share) in event.figures() {
        take(*figure, quantile(&values, *share).context("nothing happened")?);
    }
    Ok(())
}

impl Scene {
    fn set(event: Event, contender: &Contender, dir: &Path) -> Result<Self> {
        let rig = Rig::build(event.extra(), dir)?;
        let mut text = config::speaker(contender.name, event.extra());
        let at = dir.join("speaker");
        let start = |text: &str| Subject::start(contender, Scope::Whole, text, &rig.speaker, &at);
        let subject = if event == Event::Flood {
            text += &config::flooder(contender.name);
            flood::on_one_processor(|| start(&text))?
        } else {
            start(&text)?
        };
        let kernel = Kernel::of(&rig.speaker)?;
        let flow = Flow::start(&rig.source, &rig.destination)?;
        Ok(Self { rig, subject, kernel, flow })
    }

    /// Waits until all goes by the first router.
    fn settle(&self) -> Result<()> {
        self.kernel.until(PREFIXES, ROUTERS[0].address, LIMIT)?;
        thread::sleep(SETTLING);
        self.kernel.until(PREFIXES, ROUTERS[0].address, LIMIT)?;
        Ok(())
    }

    /// Milliseconds, or packets.
    fn play(&mut self, event: Event) -> Result<f64> {
        match event {
            Event::Silent300 | Event::Silent100 => self.silent(),
            Event::Reaction => self.reaction(),
            Event::Carrier => self.carrier(),
            Event::Kill => self.kill(),
            Event::Leave => self.leave(),
            Event::Restart => self.restart(),
            Event::Flood => flood::flood(&self.rig, FLOOD).map(f64::from),
        }
    }

    fn silent(&self) -> Result<f64> {
        let silence = self.flow.silence(LIMIT, || self.rig.cut())?;
        self.rig.heal()?;
        Ok(silence.as_secs_f64() * 1e3)
    }

    /// From the speaker's word that the path is down.
    fn reaction(&self) -> Result<f64> {
        let watch = Watch::start(&self.rig.hosts[0], ROUTERS[0].speaker)?;
        self.rig.cut()?;
        let began = watch.wait(LIMIT)?;
        let ended = self.kernel.until(PREFIXES, ROUTERS[1].address, LIMIT)?;
        self.rig.heal()?;
        Ok(ended.saturating_duration_since(began).as_secs_f64() * 1e3)
    }

    fn carrier(&self) -> Result<f64> {
        let took = self.moved(|| self.rig.plug(false))?;
        self.rig.plug(true)?;
        Ok(took)
    }

    fn kill(&mut self) -> Result<f64> {
        let began = Instant::now();
        self.rig.first.kill()?;
        let ended = self.kernel.until(PREFIXES, ROUTERS[1].address, LIMIT)?;
        self.rig.first.restart()?;
        Ok(ended.saturating_duration_since(began).as_secs_f64() * 1e3)
    }

    fn leave(&self) -> Result<f64> {
        let lost = self
            .flow
            .lost(LIMIT, || self.moved(|| self.rig.first.ask("disable speaker").map(drop)).map(drop))?;
        self.rig.first.ask("enable speaker")?;
        Ok(lost as f64)
    }

    /// Until its sessions are there again and all routes are what they were.
    fn restart(&mut self) -> Result<f64> {
        let Self { flow, subject, kernel, .. } = self;
        let lost = flow.lost(LIMIT, || {
            subject.kill()?;
            thread::sleep(GONE);
            subject.restart()?;
            thread::sleep(SETTLING);
            kernel.until(PREFIXES, ROUTERS[0].address, LIMIT).map(drop)
        })?;
        Ok(lost as f64)
    }

    /// How long the kernel's routes take to go by the second router.
    fn moved(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let began = Instant::now();
        work()?;
        let ended = self.kernel.until(PREFIXES, ROUTERS[1].address, LIMIT)?;
        Ok(ended.saturating_duration_since(began).as_secs_f64() * 1e3)
    }
}
