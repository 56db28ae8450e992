//! A peer is marked down: how long until its flow arrives elsewhere?
//!
//! The near end is the daemon's tunnel inside of this program, so that nothing but the mark lies between the two clock readings; the
//! two far ends are daemons. Both far ends can reach each of the prefixes, as if BGP had learned it from both.

mod flow;
mod rig;
mod watch;

use std::{path::Path, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use isthmus_lab::wait;
use isthmusd::{lifecycle::CancellationToken, tunnel};

use self::{
    flow::{Arrival, Flows, Receiver, now},
    rig::Rig,
    watch::Watch,
};
use crate::{contender::Contender, figure::Figure, plan::Plan, summary::quantile, tunnel::LIMIT};

/// Prefixes that both far ends can reach.
pub(crate) const PREFIXES: u32 = 100_000;
/// How often a peer is marked down in a round.
pub(crate) const REPETITIONS: u32 = 100;

/// How long a marked peer is watched for packets that it should not get.
const WATCH: Duration = Duration::from_millis(20);
/// How often a peer is silenced in a round, for BFD to mark it down.
const SILENCES: usize = 10;
const MILLISECOND: f64 = 1e6;

/// What one mark did.
struct Failover {
    /// Nanoseconds until the first packet at the other end.
    took: u64,
    /// Packets that were sent after the mark and arrived at the marked end.
    strays: usize,
}

/// Marks peers down as often as a round has it, each of the two in turn.
///
/// # Errors
/// When an end does not start or the flow does not arrive: where, and the end of the daemons' logs.
pub(crate) fn round(
    plan: &Plan,
    contender: &Contender,
    dir: &Path,
    note: &mut dyn FnMut(Figure, f64),
) -> Result<()> {
    let rig = Rig::build(contender, &plan.config, dir)?;
    let (failovers, reactions) = rig.near().run(|| near(&rig))?.map_err(|error| rig.blame(&error))?;
    let times: Vec<f64> = failovers.iter().map(|failover| failover.took as f64 / MILLISECOND).collect();
    for (figure, share) in [(Figure::Failover, 0.5), (Figure::FailoverP99, 0.99), (Figure::FailoverMax, 1.0)]
    {
        note(figure, quantile(&times, share).context("nothing was measured")?);
    }
    note(Figure::FailoverStrays, failovers.iter().map(|failover| failover.strays as f64).sum());
    for (figure, share) in [(Figure::FailoverBfd, 0.5), (Figure::FailoverBfdMax, 1.0)] {
        note(figure, quantile(&reactions, share).context("nothing was silent")?);
    }
    Ok(())
}

/// In the near namespace: starts the tunnel there, and ends it.
fn near(rig: &Rig) -> Result<(Vec<Failover>, Vec<f64>)> {
    // One more thread, which serves the tunnel's control task while this one measures.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let start = tunnel::start(rig.config()?, rig::board()?, CancellationToken::new());
    let handle = runtime.block_on(start).context("starting the near end")?;
    let result = rig.lead_prefixes_into_tunnel().and_then(|()| {
        let watch = runtime.block_on(Watch::start(&handle))?;
        measure(rig, &handle, &watch)
    });
    runtime.block_on(handle.stop());
    result
}

fn measure(rig: &Rig, handle: &tunnel::Handle, watch: &Watch) -> Result<(Vec<Failover>, Vec<f64>)> {
    wait::until_true("both far ends to answer", LIMIT, || {
        handle.peers().iter().all(|peer| peer.state == tunnel::State::Up)
    })?;
    let receivers = rig.receivers()?;
    let flows = Flows::start(rig::SOURCE, rig::DESTINATION, &receivers)?;
    let mut failovers = Vec::new();
    for repetition in 0..REPETITIONS {
        let end = usize::from(repetition % 2 == 1);
        let done = failover(handle, &flows, &receivers, end);
        failovers.push(done.with_context(|| format!("repetition {repetition}"))?);
    }
    let reactions = (0..SILENCES).map(|number| {
        let done = reaction(rig, watch, &flows, &receivers, number % 2);
        done.with_context(|| format!("silence {number}"))
    });
    Ok((failovers, reactions.collect::<Result<_>>()?))
}

/// Silences the far end that carries flow `end`: milliseconds from BFD's verdict to the flow's first packet at the other.
fn reaction(rig: &Rig, watch: &Watch, flows: &Flows, receivers: &[Receiver; 2], end: usize) -> Result<f64> {
    let other = &receivers[1 - end];
    flows.select(end);
    let since = now();
    let there = |arrival: &Arrival| arrival.flow == end && arrival.sent >= since;
    wait_for(&receivers[end], "the flow where it belongs", there)?;
    other.take();
    watch.forget();
    rig.silence(end)?;
    let dead = watch.dead()?;
    let first = wait_for(other, "the flow at the other end", there)?;
    receivers[end].take();
    rig.heal(end)?;
    watch.alive()?;
    ensure!(first.at >= dead, "the flow was at the other end before BFD said so");
    Ok((first.at - dead) as f64 / MILLISECOND)
}

/// Marks the far end down that carries flow `end`.
fn failover(
    handle: &tunnel::Handle,
    flows: &Flows,
    receivers: &[Receiver; 2],
    end: usize,
) -> Result<Failover> {
    let (own, other) = (&receivers[end], &receivers[1 - end]);
    flows.select(end);
    let since = now();
    wait_for(own, "the flow where it belongs", |arrival| arrival.flow == end && arrival.sent >= since)?;
    other.take();

    let marked = now();
    ensure!(handle.hold_down(rig::PEERS[end], Some("marked down to see how long it takes")), "no such peer");
    let returned = now();

    let moved = |arrival: &Arrival| arrival.flow == end && arrival.sent >= since;
    let first = wait_for(other, "the flow at the other end", moved)?;
    ensure!(first.at >= marked, "the flow was at the other end before the mark");
    thread::sleep(WATCH);
    let late = own.take().into_iter().filter(|arrival| arrival.flow == end && arrival.sent >= returned);
    let strays = late.count();
    handle.hold_down(rig::PEERS[end], None);
    Ok(Failover { took: first.at - marked, strays })
}

/// The first of these to arrive.
fn wait_for(receiver: &Receiver, what: &str, is_it: impl Fn(&Arrival) -> bool) -> Result<Arrival> {
    wait::until(what, LIMIT, || {
        let found = receiver.find(&is_it);
        found.context("it has not arrived")
    })
}
