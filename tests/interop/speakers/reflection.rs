//! Route reflection (RFC 4456): we between two clients, we as the client of another, and loops.

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    INTERNAL_V4,
    config::{OUR_AS, Words},
    rig::{BEHIND_THIRD, Rig, Session},
};

const THEIR_ID: &str = "10.1.0.2";
const OUR_ID: &str = "10.1.0.1";

/// All three are of one AS.
pub(crate) fn session(_: Kind) -> Session {
    let client = "reflector_client = true";
    Session { third_asn: OUR_AS, ours: client, to_third: client, ..INTERNAL_V4 }
}

/// What one client announced the other has, with who brought it and who reflected it; the next hop is still the first one's.
pub(crate) fn we_reflect(mut rig: Rig) {
    rig.wait_established();
    let route = rig.until("theirs at the third", |rig| rig.route_of(&rig.third, "10.20.0.0/16"));
    assert_eq!(
        (route.originator.as_str(), route.clusters.as_slice()),
        (THEIR_ID, [OUR_ID.to_owned()].as_slice())
    );
    assert_eq!((route.as_path.as_str(), route.local_pref), ("", Some(100)), "{route:#?}");
    assert_eq!(route.next_hops, ["10.1.0.2"], "{route:#?}");
    let back = rig.until("the third's at theirs", |rig| rig.route_of(&rig.theirs, BEHIND_THIRD[0]));
    assert_eq!(back.originator, "10.2.0.2", "{back:#?}");
}

/// Theirs reflects to us and to the third, which knows only theirs.
pub(crate) fn client(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words {
            neighbor: "rr client;",
            global: "protocol bgp far_client { local 10.1.0.2 as 4200000010; neighbor 10.2.0.2 as 4200000010; multihop;
  rr client; connect delay time 1; connect retry time 2; error wait time 1, 4; ipv4 { import all; export all; }; }",
            ..Words::NONE
        },
        Kind::Frr => Words {
            neighbor: " neighbor 10.2.0.2 remote-as 4200000010\n neighbor 10.2.0.2 timers connect 1",
            channel: "  neighbor $US route-reflector-client\n  neighbor 10.2.0.2 activate\n  neighbor 10.2.0.2 route-reflector-client",
            ..Words::NONE
        },
        Kind::Gobgp => Words {
            neighbor: "[neighbors.route-reflector.config]\nroute-reflector-client = true\nroute-reflector-cluster-id = \"10.1.0.2\"",
            global: "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"10.2.0.2\"\npeer-as = 4200000010
[neighbors.timers.config]\nconnect-retry = 2\nidle-hold-time-after-reset = 1
[neighbors.transport.config]\nlocal-address = \"10.1.0.2\"
[neighbors.route-reflector.config]\nroute-reflector-client = true\nroute-reflector-cluster-id = \"10.1.0.2\"
[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv4-unicast\"",
            ..Words::NONE
        },
    };
    Session { third_asn: OUR_AS, third_us: Some("10.1.0.2"), theirs, ..INTERNAL_V4 }
}

/// What the third told theirs is ours to use, and nobody is told of it by us.
pub(crate) fn we_are_clients(mut rig: Rig) {
    rig.wait_session(1);
    let path = rig.until("the third's, reflected", |rig| rig.path("in", BEHIND_THIRD[0]));
    let attributes = &path["attributes"];
    assert_eq!(attributes["originator_id"], "10.2.0.2", "{path:#}");
    assert_eq!(attributes["cluster_list"][0], THEIR_ID, "{path:#}");
    assert_eq!(path["state"], "best", "{path:#}");
    assert!(rig.path("out", BEHIND_THIRD[0]).is_err(), "told to the reflector");
    rig.until("ours, reflected", |rig| {
        let route = rig.route_of(&rig.third, "10.10.0.0/16")?;
        ensure!(route.originator == OUR_ID && route.clusters == [THEIR_ID], "{route:#?}");
        Ok(())
    });
}

/// Theirs claims that we reflected one route, and that we brought another.
pub(crate) fn looping(_: Kind) -> Session {
    let channel = "export filter {
    if net = 10.20.0.0/16 then bgp_cluster_list.add(10.1.0.1);
    if net = 10.21.0.0/16 then bgp_originator_id = 10.1.0.1;
    if source = RTS_STATIC then accept; reject; };";
    Session { theirs: Words::channel(channel), ..session(Kind::Bird) }
}

pub(crate) fn we_refuse_loops(mut rig: Rig) {
    rig.wait_established();
    rig.theirs.originate("10.21.0.0/16", true).unwrap();
    for prefix in ["10.20.0.0/16", "10.21.0.0/16"] {
        let path = rig.until(prefix, |rig| rig.path("in", prefix));
        assert_eq!(path["state"], "unusable", "{path:#}");
        assert!(path["reason"].as_str().unwrap().contains("reflected back"), "{path:#}");
    }
}
