//! Congestion marks cross the tunnel both ways (RFC 6040), whatever the families.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use anyhow::ensure;
use isthmus_lab::{
    mesh::{Family, Mesh, overlay},
    probe::MarkedSocket,
    relay::Passing,
    sandbox, wait,
};

use super::common::{LIMIT, at, clear, hello, relayed, transfer};

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;
/// The relay leaves the field as it is.
const KEEP: u8 = 0xff;
/// Ports of the inner datagrams.
const PORT: u16 = 700;

fn is_data(passing: &Passing) -> bool {
    // Longer than a keepalive.
    passing.bytes.first() == Some(&4) && passing.bytes.len() > 32
}

/// Sends datagrams with this field until one has arrived; the field it arrived with.
fn carried(mesh: &Mesh, inner: [IpAddr; 2], field: u8) -> u8 {
    let from = MarkedSocket::bind(mesh.node(1).netns(), at(inner[0], PORT)).unwrap();
    let to = MarkedSocket::bind(mesh.node(2).netns(), at(inner[1], PORT)).unwrap();
    from.send(at(inner[1], PORT), b"marked", field).unwrap();
    let marked = to.receive(LIMIT).unwrap();
    assert_eq!(marked.bytes, b"marked");
    marked.tos
}

#[test]
fn marks_cross_both_ways() {
    sandbox::run_with_bins("ecn::marks_cross_both_ways", |bins| {
        for outer in Family::BOTH {
            let (mark, seen) = (Arc::new(AtomicU8::new(KEEP)), Arc::new(Mutex::new(Vec::new())));
            let treat = {
                let (mark, seen) = (Arc::clone(&mark), Arc::clone(&seen));
                move |mut passing: Passing| {
                    if is_data(&passing) && passing.from == 0 {
                        seen.lock().unwrap().push(passing.tos);
                        let mark = mark.load(Ordering::Relaxed);
                        passing.tos = if mark == KEEP { passing.tos } else { mark };
                    }
                    vec![passing]
                }
            };
            let (mesh, relay) = relayed(bins, outer, treat);
            for family in 0..2 {
                let inner = [1, 2].map(|n| overlay(n)[family]);
                mark.store(KEEP, Ordering::Relaxed);
                hello(mesh.node(1), mesh.node(2), inner[1]).unwrap();
                for field in [NOT_ECT, ECT_1, ECT_0, CE] {
                    seen.lock().unwrap().clear();
                    assert_eq!(carried(&mesh, inner, field), field);
                    assert_eq!(*seen.lock().unwrap(), [field], "the outer header repeats the field");
                }
                // The inner field, the outer field on arrival, and what becomes of them.
                for (field, outer, becomes) in [
                    (ECT_0, CE, CE),
                    (ECT_1, CE, CE),
                    (CE, CE, CE),
                    (ECT_0, ECT_1, ECT_1),
                    (ECT_0, NOT_ECT, ECT_0),
                ] {
                    mark.store(outer, Ordering::Relaxed);
                    assert_eq!(carried(&mesh, inner, field), becomes, "{field} in {outer}");
                }
                mark.store(CE, Ordering::Relaxed);
                is_lost(&mesh, inner);
            }
            drop(relay);
            clear(mesh, &["relay"]);
        }
    });
}

/// A mark that the inner packet can't take is told by its loss, which is counted.
fn is_lost(mesh: &Mesh, inner: [IpAddr; 2]) {
    let lost = || mesh.node(2).drops("gw1", "congestion_lost");
    let before = lost().unwrap();
    let from = MarkedSocket::bind(mesh.node(1).netns(), at(inner[0], PORT)).unwrap();
    let to = MarkedSocket::bind(mesh.node(2).netns(), at(inner[1], PORT)).unwrap();
    from.send(at(inner[1], PORT), b"without", NOT_ECT).unwrap();
    wait::until("the count of what was lost", LIMIT, || {
        let now = lost()?;
        ensure!(now == before + 1, "{now}, {before} before");
        Ok(())
    })
    .unwrap();
    // What follows has not overtaken it.
    from.send(at(inner[1], PORT), b"with", ECT_0).unwrap();
    assert_eq!(to.receive(LIMIT).unwrap().bytes, b"with");
}

#[test]
fn a_transport_that_knows_marks_loses_nothing_to_them() {
    sandbox::run_with_bins("ecn::a_transport_that_knows_marks_loses_nothing_to_them", |bins| {
        let marked = Arc::new(AtomicU64::new(0));
        let treat = {
            let (marked, mut count) = (Arc::clone(&marked), 0_u32);
            // Every fiftieth, if its transport says that it can take it.
            move |mut passing: Passing| {
                count = count.wrapping_add(1);
                if is_data(&passing) && passing.tos & 3 != NOT_ECT && count % 50 == 0 {
                    passing.tos |= CE;
                    marked.fetch_add(1, Ordering::Relaxed);
                }
                vec![passing]
            }
        };
        let (mesh, _relay) = relayed(bins, Family::V4, treat);
        for n in [1, 2] {
            mesh.node(n).netns().sysctl("net.ipv4.tcp_ecn", "1").unwrap();
        }
        for inner in overlay(2) {
            hello(mesh.node(1), mesh.node(2), inner).unwrap();
            let before = marked.load(Ordering::Relaxed);
            transfer(mesh.node(1), mesh.node(2), inner, 3_000_000);
            assert!(marked.load(Ordering::Relaxed) > before, "no mark was set");
        }
        for (n, other) in [(1, "gw2"), (2, "gw1")] {
            assert_eq!(mesh.node(n).drops(other, "congestion_lost").unwrap(), 0);
        }
    });
}
