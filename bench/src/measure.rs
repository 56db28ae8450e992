//! One program, one round.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};

use crate::{
    contender::Contender,
    failover,
    figure::Figure,
    iperf::{self, Load},
    ping,
    plan::Plan,
    process::{Resident, cpu_seconds, resident},
    summary::quantile,
    tunnel::Tunnel,
};

/// Echo requests on an idle tunnel.
const PINGS: u32 = 200;
/// Echo requests a second.
const PING_RATE: u32 = 100;
/// How long the handshakes of many peers may take to become a steady state.
const SETTLING: Duration = Duration::from_secs(5);
/// How long an idle daemon is watched.
const IDLE: Duration = Duration::from_secs(10);
/// A count over a run becomes one over this many seconds.
const COUNTING_SECONDS: f64 = 10.0;

/// What a round found, and who is told of each figure as it comes.
struct Round<'a> {
    found: Vec<(Figure, f64)>,
    tell: &'a mut dyn FnMut(Figure, f64),
}

impl Round<'_> {
    fn note(&mut self, figure: Figure, value: f64) {
        (self.tell)(figure, value);
        self.found.push((figure, value));
    }
}

/// Measures `contender` once as `plan` says.
///
/// # Errors
/// When it does not start, carries nothing or a tool fails: which, and the end of the daemons' logs.
pub(crate) fn round(
    plan: &Plan,
    contender: &Contender,
    dir: &Path,
    tell: &mut dyn FnMut(Figure, f64),
) -> Result<Vec<(Figure, f64)>> {
    let mut round = Round { found: Vec::new(), tell };
    match plan.peers {
        _ if plan.failover => {
            failover::round(plan, contender, dir, &mut |figure, value| round.note(figure, value))?
        }
        None => path(plan, contender, dir, &mut round)?,
        Some(strangers) => peers(plan, contender, strangers, dir, &mut round)?,
    }
    Ok(round.found)
}

fn path(plan: &Plan, contender: &Contender, dir: &Path, round: &mut Round<'_>) -> Result<()> {
    with_tunnel(plan, contender, 0, dir, |tunnel| {
        let pings = ping::run(tunnel.between().client, tunnel.between().address, PINGS)?;
        round.note(Figure::Ping, pings.iter().sum::<f64>() / pings.len() as f64);
        one_stream(plan, tunnel, round)?;
        other_loads(plan, tunnel, round)?;
        if plan.latency_under_load {
            loaded_pings(plan, tunnel, round)?;
        }
        let peaks: Result<Vec<f64>> =
            tunnel.pids()?.into_iter().map(|pid| resident(pid, Resident::Peak)).collect();
        round.note(Figure::PeakRss, peaks?.into_iter().fold(0.0, f64::max));
        Ok(())
    })
}

fn one_stream(plan: &Plan, tunnel: &Tunnel<'_>, round: &mut Round<'_>) -> Result<()> {
    let before = cpu_of_all(tunnel)?;
    let outcome = iperf::run(tunnel.between(), Load::Tcp(1), plan.seconds)?;
    let used = cpu_of_all(tunnel)? - before;
    round.note(Figure::Tcp1, giga(outcome.bits_per_second));
    round.note(Figure::CpuPerGbit, used / giga(outcome.bytes * 8.0));
    Ok(())
}

fn other_loads(plan: &Plan, tunnel: &Tunnel<'_>, round: &mut Round<'_>) -> Result<()> {
    let four = iperf::run(tunnel.between(), Load::Tcp(4), plan.seconds)?;
    round.note(Figure::Tcp4, giga(four.bits_per_second));
    round.note(Figure::Tcp4Retransmits, four.retransmits * COUNTING_SECONDS / f64::from(plan.seconds));
    let reverse = iperf::run(tunnel.between(), Load::TcpReverse, plan.seconds)?;
    round.note(Figure::TcpReverse, giga(reverse.bits_per_second));
    let udp = iperf::run(tunnel.between(), Load::Udp, plan.seconds)?;
    round.note(Figure::Udp64, udp.datagrams_per_second / 1e3);
    Ok(())
}

fn loaded_pings(plan: &Plan, tunnel: &Tunnel<'_>, round: &mut Round<'_>) -> Result<()> {
    let between = tunnel.between();
    let load = iperf::start(between, Load::Tcp(1), plan.seconds)?;
    // The last half second is left out, so that the load outlasts the pings.
    let pings = ping::run(between.client, between.address, plan.seconds * PING_RATE - PING_RATE / 2)?;
    load.finish()?;
    round.note(Figure::LoadedPing, quantile(&pings, 0.5).context("no answers")?);
    round.note(Figure::LoadedPingP99, quantile(&pings, 0.99).context("no answers")?);
    Ok(())
}

fn peers(
    plan: &Plan,
    contender: &Contender,
    strangers: u32,
    dir: &Path,
    round: &mut Round<'_>,
) -> Result<()> {
    let stream = |tunnel: &Tunnel<'_>| iperf::run(tunnel.between(), Load::Tcp(1), plan.seconds);
    with_tunnel(plan, contender, 0, dir, |tunnel| {
        round.note(Figure::OnePeerTcp, giga(stream(tunnel)?.bits_per_second));
        Ok(())
    })?;
    with_tunnel(plan, contender, strangers, dir, |tunnel| {
        idle(tunnel, round)?;
        round.note(Figure::ManyPeersTcp, giga(stream(tunnel)?.bits_per_second));
        Ok(())
    })
}

/// Time is what is measured here, so it is slept through.
fn idle(tunnel: &Tunnel<'_>, round: &mut Round<'_>) -> Result<()> {
    let near = *tunnel.pids()?.first().context("no daemon")?;
    std::thread::sleep(SETTLING);
    let before = cpu_seconds(near)?;
    std::thread::sleep(IDLE);
    let used = cpu_seconds(near)? - before;
    round.note(Figure::ManyPeersIdle, 100.0 * used / IDLE.as_secs_f64());
    round.note(Figure::ManyPeersRss, resident(near, Resident::Now)?);
    Ok(())
}

/// A failure is told with the logs of the daemons, which may have its cause.
fn with_tunnel(
    plan: &Plan,
    contender: &Contender,
    strangers: u32,
    dir: &Path,
    work: impl FnOnce(&Tunnel<'_>) -> Result<()>,
) -> Result<()> {
    let tunnel = Tunnel::start(contender, &plan.config, strangers, dir)?;
    let result = tunnel.wait_for_packets().and_then(|()| work(&tunnel)).map_err(|error| tunnel.blame(&error));
    if result.is_err() && plan.keep {
        // Its end is that of the sandbox.
        std::mem::forget(tunnel);
    }
    result
}

fn cpu_of_all(tunnel: &Tunnel<'_>) -> Result<f64> {
    tunnel.pids()?.into_iter().map(cpu_seconds).sum()
}

fn giga(value: f64) -> f64 {
    value / 1e9
}
