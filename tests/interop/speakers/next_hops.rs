//! IPv4 prefixes behind IPv6 next hops (RFC 8950), and sessions between link-local addresses (RFC 2545, RFC 4007).

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V6,
    config::Words,
    rig::{Rig, Session, Transport},
};

pub(crate) fn extended(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words::channel("extended next hop;"),
        _ => Words::neighbor(" neighbor $US capability extended-nexthop"),
    };
    Session { ours: "extended_next_hop = true", sections: "[fib]\n", theirs, ..EXTERNAL_V6 }
}

/// In our kernel; and in their table, once the link has no IPv4 address of ours that would do.
pub(crate) fn v4_over_v6(mut rig: Rig) {
    rig.wait_established();
    rig.until("an IPv4 prefix behind IPv6", |rig| {
        let candidate = rig.candidate("10.20.0.0/16")?;
        ensure!(candidate.selected && candidate.usable, "{candidate:#?}");
        ensure!(
            candidate.next_hop == "fd01::2" || candidate.next_hop.starts_with("fe80::"),
            "{candidate:#?}"
        );
        let kernel = rig.ours.netns().routes_of(73)?;
        let there = |route: &str| route.starts_with("10.20.0.0/16 dev eth1 ");
        ensure!(kernel.iter().any(|route| there(&route.to_string())), "{kernel:#?}");
        Ok(())
    });
    rig.ours.netns().delete_address("10.1.0.1".parse().unwrap()).unwrap();
    rig.ours.ctl_ok(&["bgp", "clear", "theirs"]).unwrap();
    rig.wait_session(2);
    rig.until("ours at theirs", |rig| {
        let route = rig.route_of(&rig.theirs, "10.10.0.0/16")?;
        ensure!(route.next_hops.iter().any(|hop| hop == "fd01::1"), "{route:#?}");
        Ok(())
    });
}

pub(crate) fn link_local(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words::neighbor("interface \"eth0\";"),
        _ => Words::neighbor(" neighbor $US interface eth0"),
    };
    Session { theirs, sections: "[fib]\n", ..Session::external(Transport::LinkLocal) }
}

/// IPv6 goes behind the link-local address, IPv4 behind the address that the interface has of its family.
pub(crate) fn on_the_link(mut rig: Rig) {
    rig.wait_established();
    rig.until("their IPv6 prefix", |rig| {
        let candidate = rig.candidate("fd20::/48")?;
        ensure!(candidate.selected && candidate.usable, "{candidate:#?}");
        let kernel = rig.ours.netns().routes_of(73)?;
        let there = |route: &str| route.starts_with("fd20::/48 via ") && route.contains(" dev eth1 ");
        ensure!(kernel.iter().any(|route| there(&route.to_string())), "{kernel:#?}");
        Ok(())
    });
    rig.until("ours at theirs", |rig| rig.route_of(&rig.theirs, "fd10::/48"));
}
