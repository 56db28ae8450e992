//! Steps 6 and 7: the gateway that carries the traffic loses the internet without a word, and later dies; both times the traffic goes on
//! through the other.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use isthmus_lab::probe::{Flow, FlowReport, Prober};

use super::{
    config::DETECTION,
    fabric::Fabric,
    network::Network,
    plan::{AWS, AZURE, Gateway},
    progress::Outcome,
    traffic::ECHO_PORT,
};

const INTERVAL: Duration = Duration::from_millis(20);
/// Flows in each direction and family.
const FLOWS: u16 = 4;
/// An interruption beyond this fails the demo. It is twice what an idle machine needs, since others have work beside it.
const AT_MOST: Duration = Duration::from_secs(2);
/// What the summary points out.
const GOAL: Duration = Duration::from_secs(1);
/// For answers, and for sessions to come back. Not the time that is judged.
const PATIENCE: Duration = Duration::from_secs(20);
/// That many answers in a row are no stragglers from before.
const ENOUGH: u64 = 25;

/// The internet drops every packet of the gateway in use; no link goes down. All is as before when this returns.
pub(super) fn silent(network: &Network, fabric: &mut Fabric) -> Result<Outcome> {
    let fate = "lost the internet without a word";
    let (victim, outcome) = strike(network, fabric, fate, |_, victim| network.silence(victim))?;
    network.heal(victim)?;
    fabric.wait_whole(PATIENCE)?;
    Ok(outcome)
}

/// The gateway in use dies.
pub(super) fn killed(network: &Network, fabric: &mut Fabric) -> Result<Outcome> {
    Ok(strike(network, fabric, "was killed", |fabric, victim| fabric.kill(victim.name))?.1)
}

/// Probes both ways, strikes the gateway in use, and waits until every flow has answers again; tells what each flow lost.
fn strike(
    network: &Network,
    fabric: &mut Fabric,
    fate: &str,
    blow: impl FnOnce(&mut Fabric, &Gateway) -> Result<()>,
) -> Result<(&'static Gateway, Outcome)> {
    fabric.wait_whole(PATIENCE)?;
    let probers = start(network)?;
    answers(fabric, &probers, "answers on every flow")?;
    let victim = in_use(network)?;
    blow(fabric, victim)?;
    answers(fabric, &probers, &format!("answers on every flow after {} {fate}", victim.name))?;
    let survivor = in_use(network)?;
    ensure!(survivor.name != victim.name, "{} still routes by {}, which {fate}", AWS.host(), victim.name);
    let mut reports = Vec::new();
    for prober in probers {
        reports.extend(prober.stop()?);
    }
    Ok((victim, verdict(&format!("{} {fate}", victim.name), survivor, &reports)?))
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

fn answers(fabric: &mut Fabric, probers: &[Prober], what: &str) -> Result<()> {
    let before: Vec<u64> = probers.iter().flat_map(Prober::received).collect();
    fabric.until(what, PATIENCE, |_| {
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

/// The table of all flows, and a summary of the worst; fails when that one was silent for too long.
fn verdict(what: &str, survivor: &Gateway, reports: &[FlowReport]) -> Result<Outcome> {
    let longest = reports.iter().map(|report| report.longest_gap).max().context("nothing was probed")?;
    if longest > AT_MOST {
        bail!("traffic stood still for {:.2} s after {what}, more than {AT_MOST:?}", longest.as_secs_f64());
    }
    let hit = reports.iter().filter(|report| report.longest_gap > INTERVAL * 10).count();
    let good = if longest < GOAL { ", under a second" } else { "" };
    let summary = format!(
        "{what}; {hit} of {} flows moved to {}, longest silence {:.2} s{good} ({DETECTION})",
        reports.len(),
        survivor.name,
        longest.as_secs_f64(),
    );
    Ok(Outcome { summary, details: table(reports) })
}

fn table(reports: &[FlowReport]) -> String {
    let mut table =
        String::from("flow                                          sent  lost  longest silence\n");
    for report in reports {
        let flow = format!(":{} -> {}", report.flow.port, report.flow.to);
        let lost = report.sent.saturating_sub(report.received);
        let silence = report.longest_gap.as_secs_f64();
        // A String takes everything.
        let _ = writeln!(table, "{flow:44} {:5} {lost:5}  {silence:.2} s", report.sent);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn after(milliseconds: u64) -> Result<String> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, ECHO_PORT));
        let flow = Flow { from: to.ip(), port: 1, to };
        let gaps = [20, milliseconds].map(Duration::from_millis);
        let reports = gaps.map(|longest_gap| FlowReport { flow, sent: 9, received: 8, longest_gap });
        Ok(verdict("gw1 was killed", &AWS.gateways[1], &reports)?.summary)
    }

    #[test]
    fn a_second_is_pointed_out_only_where_it_was_kept() {
        let good = after(650).unwrap();
        assert!(
            good.contains("1 of 2 flows moved to aws-gw2, longest silence 0.65 s, under a second"),
            "{good}"
        );
        let slow = after(1100).unwrap();
        assert!(slow.contains("1.10 s") && !slow.contains("under a second"), "{slow}");
        assert!(after(2001).unwrap_err().to_string().contains("stood still for 2.00 s after gw1 was killed"));
    }
}
