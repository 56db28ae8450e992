//! Ways to say where a peer is, and rules that lead only our own datagrams there.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use anyhow::{Result, ensure};
use futures_util::TryStreamExt;
use ipnet::IpNet;
use isthmus_lab::{
    mesh::{Family, Mesh, TUNNEL_PORT, endpoint, name, outer, overlay, peer},
    netns::Netns,
    node::Node,
    probe::{UdpEcho, reach},
    sandbox, wait,
};
use netlink_packet_route::{link::LinkAttribute, rule::RuleAction};
use nix::mount::{MsFlags, mount};
use rtnetlink::RouteMessageBuilder;

use super::common::{LIMIT, all_is_well, at, clear, hello, pair};

/// The mark of outer datagrams, as documented.
const MARK: u32 = 0x73;
const TABLE: u32 = 100;

fn named(n: u8, endpoint: &str) -> String {
    peer(n, None) + &format!("endpoint = \"{endpoint}\"\n")
}

#[test]
fn link_local_endpoints_carry() {
    sandbox::run_with_bins("underlay::link_local_endpoints_carry", |bins| {
        let mut mesh = Mesh::new(2, bins).unwrap();
        for n in [1, 2] {
            let netns = mesh.node(n).netns();
            netns.add_address("eth0", IpNet::new(link_local(n), 64).unwrap()).unwrap();
            // The only addresses that are left.
            outer(n).into_iter().for_each(|address| netns.delete_address(address).unwrap());
        }
        let first = mesh.base(1) + &named(2, &format!("[{}%eth0]:{TUNNEL_PORT}", link_local(2)));
        let second = mesh.base(2) + &peer(1, None);
        mesh.node_mut(1).start(&first).unwrap();
        mesh.node_mut(2).start(&second).unwrap();
        for n in [1, 2] {
            mesh.node_mut(n).wait_ready(LIMIT).unwrap();
        }
        all_is_well(&mesh, 2_000_000);
        let learned = mesh.node(2).peer("gw1").unwrap().endpoint;
        assert!(learned.starts_with("[fe80::") && learned.contains('%'), "{learned}");
    });
}

fn link_local(n: u8) -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n.into()).into()
}

async fn index_of(handle: &rtnetlink::Handle, device: &str) -> Result<u32> {
    let mut links = handle.link().get().execute();
    while let Some(link) = links.try_next().await? {
        if link.attributes.contains(&LinkAttribute::IfName(device.to_owned())) {
            return Ok(link.header.index);
        }
    }
    anyhow::bail!("no {device}")
}

/// A host route to `to` by `device`, in this table.
fn route(netns: &Netns, to: IpAddr, device: &str, table: u32) -> Result<()> {
    netns.netlink(async |handle| {
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(to, if to.is_ipv4() { 32 } else { 128 })?
            .output_interface(index_of(&handle, device).await?)
            .table_id(table);
        Ok(handle.route().add(route.build()).execute().await?)
    })
}

/// What has the mark asks the other table first.
fn rule(netns: &Netns) -> Result<()> {
    netns.netlink(async |handle| {
        let rule = || handle.rule().add().fw_mark(MARK).table_id(TABLE).action(RuleAction::ToTable);
        rule().v4().execute().await?;
        Ok(rule().v6().execute().await?)
    })
}

#[test]
fn a_rule_for_the_mark_leads_only_outer_datagrams() {
    sandbox::run_with_bins("underlay::a_rule_for_the_mark_leads_only_outer_datagrams", |bins| {
        for family in Family::BOTH {
            let mesh = pair(bins, family);
            let (netns, there) = (mesh.node(1).netns(), outer(2)[family as usize]);
            let echo = UdpEcho::start(mesh.node(2).netns(), at(there, 8)).unwrap();
            reach(netns, echo.address(), LIMIT).unwrap();
            rule(netns).unwrap();
            route(netns, there, "eth0", TABLE).unwrap();
            // By this one alone the tunnel would carry itself.
            route(netns, there, "isthmus0", 254).unwrap();
            all_is_well(&mesh, 500_000);
            assert_eq!(mesh.node(1).drops("gw2", "own_outer_packet").unwrap(), 0);
            // What has no mark goes where the main table says.
            assert!(reach(netns, echo.address(), Duration::from_millis(600)).is_err());
            drop(echo);
            clear(mesh, &[]);
        }
    });
}

#[test]
fn a_name_is_asked_for_until_it_stands_for_an_address() {
    sandbox::run_with_bins("underlay::a_name_is_asked_for_until_it_stands_for_an_address", |bins| {
        let mut mesh = Mesh::new(2, bins).unwrap();
        let hosts = mesh.node(1).dir().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
        // The mounts of a sandbox are its own.
        mount(Some(&hosts), "/etc/hosts", None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let first = mesh.base(1) + &named(2, &format!("gw2.lab.invalid:{TUNNEL_PORT}"));
        let second = mesh.base(2) + &peer(1, None);
        mesh.node_mut(1).start(&first).unwrap();
        mesh.node_mut(2).start(&second).unwrap();
        for n in [1, 2] {
            mesh.node_mut(n).wait_ready(LIMIT).unwrap();
        }
        says(mesh.node(1), "does not resolve");
        fs::write(&hosts, format!("{} gw2.lab.invalid\n", outer(2)[1])).unwrap();
        hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
        let found = mesh.node(1).peer(&name(2)).unwrap();
        assert_eq!(found.endpoint, endpoint(2, Family::V6).to_string());
        assert!(!found.state_reason.contains("resolve"), "{}", found.state_reason);

        // It moves, and says so itself; the name that still stands for another place takes nothing back.
        let (elsewhere, netns) = (outer(22)[1], mesh.node(2).netns());
        netns.delete_address(outer(2)[1]).unwrap();
        netns.add_address("eth0", IpNet::new(elsewhere, 64).unwrap()).unwrap();
        hello(mesh.node(2), mesh.node(1), overlay(1)[1]).unwrap();
        assert_eq!(mesh.node(1).peer(&name(2)).unwrap().endpoint, at(elsewhere, TUNNEL_PORT).to_string());
        hello(mesh.node(1), mesh.node(2), overlay(2)[1]).unwrap();
    });
}

fn says(node: &Node, what: &str) {
    wait::until(what, LIMIT, || {
        let reason = node.peer("gw2")?.state_reason;
        ensure!(reason.contains(what), "{reason}");
        Ok(())
    })
    .unwrap();
}
