//! Step 4: packets and streams between the workload hosts of every two sites.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{
    netns::Netns,
    probe::{TcpSink, UdpEcho, reach, send},
};

use super::{
    fabric::Fabric,
    network::Network,
    plan::{self, SITES, Site},
    progress::Outcome,
};

const LIMIT: Duration = Duration::from_secs(20);
/// Long enough to need many segments and windows.
const TRANSFER: u64 = 4 << 20;
/// Port of the echo servers.
pub(super) const ECHO_PORT: u16 = 7777;

/// An echo server on each address of each workload host.
pub(super) fn echoes(network: &Network) -> Result<Vec<UdpEcho>> {
    let mut echoes = Vec::new();
    for site in &SITES {
        for address in site.host_addresses() {
            echoes.push(UdpEcho::start(network.get(&site.host())?, SocketAddr::new(address, ECHO_PORT))?);
        }
    }
    Ok(echoes)
}

/// Sends datagrams both ways and a checked stream one way, for every pair of sites and both families.
pub(super) fn run(network: &Network, fabric: &mut Fabric) -> Result<Outcome> {
    let before = tunnelled(fabric)?;
    let (mut flows, mut octets) = (0, 0);
    for (a, b) in plan::pairs() {
        let (here, there) = (network.get(&a.host())?, network.get(&b.host())?);
        for (ours, theirs) in a.host_addresses().into_iter().zip(b.host_addresses()) {
            datagrams(fabric, (a, here), theirs)?;
            datagrams(fabric, (b, there), ours)?;
            octets += stream(fabric, here, there, theirs)?;
            flows += 1;
        }
    }
    let through = tunnelled(fabric)?.saturating_sub(before);
    ensure!(
        through >= octets,
        "only {through} of {octets} octets went through the tunnels: there is a way around them"
    );
    Ok(format!(
        "{flows} pairs of hosts talked over UDP and TCP, {} MiB unchanged through the tunnels",
        octets >> 20
    )
    .into())
}

fn datagrams(fabric: &mut Fabric, (site, from): (&Site, &Netns), to: IpAddr) -> Result<()> {
    let (from, target) = (from.clone(), SocketAddr::new(to, ECHO_PORT));
    let what = format!("UDP from {} to {to}", site.host());
    fabric.watch(&what, LIMIT + Duration::from_secs(2), move || reach(&from, target, LIMIT))
}

fn stream(fabric: &mut Fabric, from: &Netns, to: &Netns, address: IpAddr) -> Result<u64> {
    let sink = TcpSink::start(to, SocketAddr::new(address, 0), LIMIT)?;
    let from = from.clone();
    let what = format!("TCP from {} to {address}", from.name());
    let transfer = fabric.watch(&what, LIMIT + Duration::from_secs(2), move || {
        let transfer = send(&from, sink.address(), TRANSFER, LIMIT)?;
        sink.finish().map(|()| transfer)
    })?;
    Ok(transfer.bytes)
}

/// Octets that all gateways together have received from their peers.
fn tunnelled(fabric: &Fabric) -> Result<u64> {
    let mut octets = 0;
    for (_, gateway) in plan::gateways() {
        let peers = fabric.node(gateway.name)?.peers().context("counting what went through the tunnels")?;
        octets += peers.iter().map(|peer| peer.rx_bytes).sum::<u64>();
    }
    Ok(octets)
}
