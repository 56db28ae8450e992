//! Step 5: the gateway that carries the traffic dies, and the traffic goes on through the other.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use isthmus_lab::probe::{Flow, FlowReport, Prober};

use super::{
    fabric::Fabric,
    network::Network,
    plan::{AWS, AZURE, Gateway},
    progress::Outcome,
    traffic::ECHO_PORT,
};

const INTERVAL: Duration = Duration::from_millis(20);
/// Flows in each direction and family.
const FLOWS: u16 = 4;
/// An interruption beyond this fails the demo. BGP's shortest hold time is 3 s.
const AT_MOST: Duration = Duration::from_secs(10);
/// That many answers in a row are no stragglers from before.
const ENOUGH: u64 = 25;

/// Probes both ways, kills, and waits until every flow has answers again; prints what each flow lost.
pub(super) fn run(network: &Network, fabric: &mut Fabric) -> Result<Outcome> {
    let probers = start(network)?;
    answers(fabric, &probers, "answers on every flow before the kill", AT_MOST)?;
    let victim = in_use(network)?;
    fabric.kill(victim.name)?;
    answers(
        fabric,
        &probers,
        &format!("answers on every flow after {} died", victim.name),
        AT_MOST + AT_MOST,
    )?;
    let survivor = in_use(network)?;
    ensure!(survivor.name != victim.name, "{} still routes by {}, which is dead", AWS.host(), victim.name);
    let mut reports = Vec::new();
    for prober in probers {
        reports.extend(prober.stop()?);
    }
    verdict(victim, survivor, &reports)
}

fn start(network: &Network) -> Result<Vec<Prober>> {
    let mut probers = Vec::new();
    for (from, to) in [(AWS, AZURE), (AZURE, AWS)] {
        let flows: Vec<Flow> = to
            .host_addresses()
            .into_iter()
            .flat_map(|address| Flow::several(SocketAddr::new(address, ECHO_PORT), 40_000, FLOWS))
            .collect();
        probers.push(Prober::start(network.get(&from.host())?, &flows, INTERVAL)?);
    }
    Ok(probers)
}

fn answers(fabric: &mut Fabric, probers: &[Prober], what: &str, limit: Duration) -> Result<()> {
    let before: Vec<u64> = probers.iter().flat_map(Prober::received).collect();
    fabric.until(what, limit, |_| {
        let now = probers.iter().flat_map(Prober::received);
        let silent = now.zip(&before).filter(|(now, before)| *now < *before + ENOUGH).count();
        ensure!(silent == 0, "{silent} of {} flows are silent", before.len());
        Ok(())
    })
}

/// The gateway that the kernel of the AWS host sends its traffic to Azure to.
fn in_use(network: &Network) -> Result<&'static Gateway> {
    let route = network.get(&AWS.host())?.route_to(AZURE.host_addresses()[0])?;
    let next = route.gateway.context("the AWS host takes Azure for a neighbor")?;
    let found = AWS.gateways.iter().find(|gateway| gateway.lan(AWS).iter().any(|net| net.addr() == next));
    found.with_context(|| format!("the AWS host routes by {next}, which is no gateway"))
}

fn verdict(victim: &Gateway, survivor: &Gateway, reports: &[FlowReport]) -> Result<Outcome> {
    let mut table =
        String::from("flow                                          sent  lost  longest silence\n");
    for report in reports {
        let flow = format!(":{} -> {}", report.flow.port, report.flow.to);
        let lost = report.sent.saturating_sub(report.received);
        let _ = writeln!(
            table,
            "{flow:44} {:5} {lost:5}  {:.2} s",
            report.sent,
            report.longest_gap.as_secs_f64()
        );
    }
    let longest = reports.iter().map(|report| report.longest_gap).max().context("nothing was probed")?;
    let hit = reports.iter().filter(|report| report.longest_gap > Duration::from_secs(1)).count();
    if longest > AT_MOST {
        bail!(
            "traffic stood still for {:.1} s after {} died, more than {AT_MOST:?}",
            longest.as_secs_f64(),
            victim.name
        );
    }
    let summary = format!(
        "{} killed; {hit} of {} flows moved to {}, longest silence {:.2} s (BGP hold time {})",
        victim.name,
        reports.len(),
        survivor.name,
        longest.as_secs_f64(),
        super::config::HOLD_TIME
    );
    Ok(Outcome { summary, details: table })
}
