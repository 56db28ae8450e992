//! The interface has the addresses that the configuration says, whatever happened to it.

use std::net::{IpAddr, UdpSocket};

use anyhow::ensure;
use isthmus_lab::{
    mesh::{Family, Mesh, overlay},
    node::Node,
    sandbox, wait,
};

use super::common::{LIMIT, at, hello, pair};

const INTERFACE: &str = "isthmus0";

fn is_ours(node: &Node, address: &str) -> bool {
    let address: IpAddr = address.parse().unwrap();
    node.netns().run(|| UdpSocket::bind(at(address, 0))).unwrap().is_ok()
}

fn is_connected(node: &Node, neighbor: &str) -> bool {
    let route = node.netns().route_to(neighbor.parse().unwrap());
    route.is_ok_and(|route| route.interface == INTERFACE && route.gateway.is_none())
}

#[test]
fn a_reload_leaves_the_addresses_it_names() {
    sandbox::run_with_bins("addresses::a_reload_leaves_the_addresses_it_names", |bins| {
        let config = |mesh: &Mesh, addresses: &str| {
            let base = mesh.base(1);
            let (before, _) = base.split_once("addresses =").unwrap();
            format!("{before}addresses = [{addresses}]\n")
        };
        let first = r#""10.99.0.1/24", "fd00::1/64""#;
        let mut mesh = Mesh::start(bins, LIMIT, &[&|mesh| config(mesh, first)]).unwrap();
        let mut before: Vec<&str> = vec!["10.99.0.1", "fd00::1"];
        // (addresses, their names, somebody on the link)
        for (addresses, now, neighbors) in [
            // The second of a subnet lives off the first.
            (r#""10.99.0.7/24", "fd00::1/64""#, vec!["10.99.0.7", "fd00::1"], ["10.99.0.200", "fd00::5"]),
            // The same address with another prefix.
            (r#""10.99.0.7/16", "fd00::1/48""#, vec!["10.99.0.7", "fd00::1"], ["10.99.7.7", "fd00:0:0:7::5"]),
            (
                r#""10.99.0.8/16", "10.99.0.7/16", "fd00::1/48""#,
                vec!["10.99.0.8", "10.99.0.7", "fd00::1"],
                ["10.99.7.7", "fd00:0:0:7::5"],
            ),
            // The first of two goes.
            (r#""10.99.0.8/16", "fd00::1/64""#, vec!["10.99.0.8", "fd00::1"], ["10.99.7.7", "fd00::5"]),
        ] {
            let text = config(&mesh, addresses);
            let node = mesh.node_mut(1);
            let (_, error) = node.reload(&text, LIMIT).unwrap();
            assert_eq!(error, "", "{addresses}");
            now.iter().for_each(|address| assert!(is_ours(node, address), "{addresses}: no {address}"));
            neighbors.iter().for_each(|to| assert!(is_connected(node, to), "{addresses}: no way to {to}"));
            let gone = before.iter().filter(|address| !now.contains(address));
            gone.for_each(|address| assert!(!is_ours(node, address), "{addresses}: still {address}"));
            before = now;
        }
    });
}

#[test]
fn a_refused_reload_leaves_the_old_addresses() {
    sandbox::run_with_bins("addresses::a_refused_reload_leaves_the_old_addresses", |bins| {
        let mut mesh = Mesh::start(bins, LIMIT, &[&|mesh| mesh.base(1)]).unwrap();
        let refused = mesh.base(1).replace("10.99.0.1/24\"", "10.99.0.7/24\", \"224.0.0.1/24\"");
        let node = mesh.node_mut(1);
        let (generation, error) = node.reload(&refused, LIMIT).unwrap();
        assert!(generation == 1 && error.contains("224.0.0.1/24"), "{error}");
        assert!(is_ours(node, "10.99.0.1") && is_ours(node, "fd7a::1"));
        assert!(!is_ours(node, "10.99.0.7"));
    });
}

#[test]
fn an_interface_that_went_down_and_up_has_its_addresses() {
    sandbox::run_with_bins("addresses::an_interface_that_went_down_and_up_has_its_addresses", |bins| {
        let mesh = pair(bins, Family::V4);
        let node = mesh.node(1);
        let works = || overlay(2).into_iter().try_for_each(|inner| hello(node, mesh.node(2), inner));
        works().unwrap();
        node.netns().link_down(INTERFACE).unwrap();
        node.netns().link_up(INTERFACE).unwrap();
        wait::until("both families after down and up", LIMIT, works).unwrap();
    });
}

#[test]
fn a_reload_brings_lost_addresses_back() {
    sandbox::run_with_bins("addresses::a_reload_brings_lost_addresses_back", |bins| {
        let mut mesh = Mesh::start(bins, LIMIT, &[&|mesh| mesh.base(1)]).unwrap();
        let text = mesh.base(1);
        let node = mesh.node_mut(1);
        for lost in overlay(1) {
            node.netns().delete_address(lost).unwrap();
        }
        assert_eq!(node.reload(&text, LIMIT).unwrap().1, "");
        wait::until("the addresses", LIMIT, || {
            let ours = overlay(1).iter().all(|address| is_ours(node, &address.to_string()));
            ensure!(ours, "not yet");
            Ok(())
        })
        .unwrap();
    });
}
