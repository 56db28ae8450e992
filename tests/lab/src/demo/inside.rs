//! The steps, in order. This process is the sandbox's only program: when it ends, the kernel removes all that it made.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use isthmus_lab::{bins::Bins, probe::UdpEcho};

use super::{
    ceremony,
    fabric::Fabric,
    failover, leave,
    lifeline::Lifeline,
    look, mtls,
    network::Network,
    progress::{Outcome, Progress, note},
    traffic,
};

const STEPS: usize = 9;
/// On the sandbox's own tmpfs: private keys of the demo never reach a disk.
pub(super) const DIRECTORY: &str = "/run/lab";

/// What is up.
struct Lab {
    fabric: Fabric,
    _echoes: Vec<UdpEcho>,
}

/// Runs all steps.
pub(crate) fn run(keep: bool) -> Result<ExitCode> {
    let lifeline = Lifeline::hold()?;
    let bins = Bins::from_env().context("this command is the inner part of `isthmus-lab demo`")?;
    let directory = PathBuf::from(DIRECTORY);
    fs::create_dir(&directory)?;
    let mut progress = Progress::new(if keep { STEPS - 1 } else { STEPS });
    let lab = steps(&mut progress, &directory, &bins)?;
    if keep {
        return lifeline.stay().map(|()| ExitCode::SUCCESS);
    }
    progress.step("leave", || leave::run(lab.fabric))?;
    note(&format!("every step held, in {:.1} s\n", progress.elapsed().as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

fn steps(progress: &mut Progress, directory: &Path, bins: &Bins) -> Result<Lab> {
    let (mut network, mut fabric, mut echoes, mut pki) = (None, None, None, None);
    progress.step("network", || {
        let built = network.insert(Network::build()?);
        echoes = Some(traffic::echoes(built)?);
        Ok(built.summary().into())
    })?;
    let network = network.context("no network")?;
    progress.step("ceremony", || {
        let made = pki.insert(ceremony::run(directory, bins)?);
        Ok(made.outcome())
    })?;
    let pki = pki.context("no certificates")?;
    progress.step("daemons", || {
        let started = fabric.insert(Fabric::start(&network, directory, &pki, bins)?);
        started.wait_ready().map_err(|error| started.explain(error))?;
        Ok(format!("{} daemons are ready", started.nodes().len()).into())
    })?;
    let mut fabric = fabric.context("no daemons")?;
    progress.step("traffic", || held(&mut fabric, |fabric| traffic::run(&network, fabric)))?;
    progress
        .step("mutual TLS", || held(&mut fabric, |fabric| mtls::run(&network, fabric, directory, bins)))?;
    progress.step("silent loss", || held(&mut fabric, |fabric| failover::silent(&network, fabric)))?;
    progress.step("failover", || held(&mut fabric, |fabric| failover::killed(&network, fabric)))?;
    progress.step("look", || held(&mut fabric, |fabric| look::run(fabric)))?;
    Ok(Lab { fabric, _echoes: echoes.context("no echo servers")? })
}

/// A step holds only if every daemon lived through it; a daemon's death explains whatever else went wrong.
fn held(fabric: &mut Fabric, step: impl FnOnce(&mut Fabric) -> Result<Outcome>) -> Result<Outcome> {
    let result = step(fabric);
    fabric.ensure_alive().and(result).map_err(|error| fabric.explain(error))
}
