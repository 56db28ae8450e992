//! One neighbor, us, in three languages: both families, everything let through, community 65000:7 on what is originated.

use std::fmt::Write;

use isthmus_lab::router::Kind;

/// All need four octets.
pub(crate) const OUR_AS: u32 = 4_200_000_010;
pub(crate) const THEIR_AS: u32 = 4_200_000_020;
pub(crate) const THIRD_AS: u32 = 4_200_000_030;

/// Who a speaker is, and where it sees us.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) asn: u32,
    pub(crate) router_id: &'static str,
    pub(crate) address: &'static str,
    pub(crate) us: &'static str,
    /// What it can originate.
    pub(crate) prefixes: [&'static str; 2],
}

/// The configuration of `kind` there.
pub(crate) fn text(kind: Kind, place: Place) -> String {
    match kind {
        Kind::Bird => bird(place),
        Kind::Frr => frr(place),
        Kind::Gobgp => gobgp(place),
    }
}

fn bird(place: Place) -> String {
    let Place { asn, router_id, address, us, prefixes } = place;
    let mut text = format!("router id {router_id};\nlog stderr all;\nprotocol device {{ scan time 1; }}\n");
    for (prefix, family) in prefixes.into_iter().zip(["ipv4", "ipv6"]) {
        let name = prefix.replace(['.', ':', '/'], "_");
        writeln!(
            text,
            "protocol static o_{name} {{ {family}; route {prefix} blackhole {{ bgp_community.add((65000, 7)); }}; }}"
        )
        .unwrap();
    }
    text + &format!(
        "protocol static igp4 {{ ipv4; route 10.2.0.0/24 via 10.1.0.1; }}
protocol static igp6 {{ ipv6; route fd02::/64 via fd01::1; }}
protocol bgp isthmus {{
  local {address} as {asn};
  neighbor {us} as {OUR_AS};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  ipv4 {{ import all; export where (65000, 7) ~ bgp_community; }};
  ipv6 {{ import all; export where (65000, 7) ~ bgp_community; }};
}}
"
    )
}

fn frr(place: Place) -> String {
    let Place { asn, router_id, us, .. } = place;
    format!(
        "log stdout
route-map TAG permit 10
 set community 65000:7
exit
router bgp {asn}
 bgp router-id {router_id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 no bgp default ipv4-unicast
 neighbor {us} remote-as {OUR_AS}
 neighbor {us} timers connect 1
 address-family ipv4 unicast
  neighbor {us} activate
 exit-address-family
 address-family ipv6 unicast
  neighbor {us} activate
 exit-address-family
exit
"
    )
}

fn gobgp(place: Place) -> String {
    let Place { asn, router_id, address, us, .. } = place;
    let families = ["ipv4-unicast", "ipv6-unicast"].map(|family| {
        format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n")
    });
    format!(
        "[global.config]
as = {asn}
router-id = \"{router_id}\"
[[neighbors]]
[neighbors.config]
neighbor-address = \"{us}\"
peer-as = {OUR_AS}
[neighbors.timers.config]
connect-retry = 2
idle-hold-time-after-reset = 1
[neighbors.transport.config]
local-address = \"{address}\"
{}",
        families.concat()
    )
}
