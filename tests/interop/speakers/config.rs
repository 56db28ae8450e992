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
    pub(crate) prefixes: [&'static str; 3],
    pub(crate) words: Words,
}

/// What a case adds to a speaker's configuration, in that program's language; `$US` is our address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// To the neighbor that we are.
    pub(crate) neighbor: &'static str,
    /// To each family of it.
    pub(crate) channel: &'static str,
    /// Outside of it.
    pub(crate) global: &'static str,
}

impl Words {
    pub(crate) const NONE: Self = Self { neighbor: "", channel: "", global: "" };

    pub(crate) const fn neighbor(neighbor: &'static str) -> Self {
        Self { neighbor, ..Self::NONE }
    }

    pub(crate) const fn channel(channel: &'static str) -> Self {
        Self { channel, ..Self::NONE }
    }
}

/// The configuration of `kind` there.
pub(crate) fn text(kind: Kind, place: Place) -> String {
    let text = match kind {
        Kind::Bird => bird(place),
        Kind::Frr => frr(place),
        Kind::Gobgp => gobgp(place),
    };
    text.replace("$US", place.us)
}

fn bird(place: Place) -> String {
    let Place { asn, router_id, address, us, prefixes, words: Words { neighbor, channel, global } } = place;
    let mut text = format!("router id {router_id};\nlog stderr all;\nprotocol device {{ scan time 1; }}\n");
    for prefix in prefixes {
        let name = prefix.replace(['.', ':', '/'], "_");
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        writeln!(
            text,
            "protocol static o_{name} {{ disabled; {family}; route {prefix} blackhole {{
  bgp_community.add((65000, 7));
  bgp_large_community.add(({asn}, 1, 2));
}}; }}"
        )
        .unwrap();
    }
    text + &format!(
        "protocol static igp4 {{ ipv4; route 10.2.0.0/24 via 10.1.0.1; }}
protocol static igp6 {{ ipv6; route fd02::/64 via fd01::1; }}
protocol static igp4_back {{ ipv4; route 10.1.0.0/24 via 10.2.0.1; }}
protocol static igp6_back {{ ipv6; route fd01::/64 via fd02::1; }}
{global}
protocol bgp isthmus {{
  local {address} as {asn};
  neighbor {us} as {OUR_AS};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  {neighbor}
  ipv4 {{ import all; export where (65000, 7) ~ bgp_community; {channel} }};
  ipv6 {{ import all; export where (65000, 7) ~ bgp_community; {channel} }};
}}
"
    )
}

fn frr(place: Place) -> String {
    let Place { asn, router_id, us, words: Words { neighbor, channel, global }, .. } = place;
    format!(
        "log stdout
route-map TAG permit 10
 set community 65000:7
 set large-community {asn}:1:2
exit
{global}
router bgp {asn}
 bgp router-id {router_id}
 bgp log-neighbor-changes
 no bgp ebgp-requires-policy
 no bgp network import-check
 no bgp default ipv4-unicast
 neighbor {us} remote-as {OUR_AS}
 neighbor {us} timers connect 1
{neighbor}
 address-family ipv4 unicast
  neighbor {us} activate
{channel}
 exit-address-family
 address-family ipv6 unicast
  neighbor {us} activate
{channel}
 exit-address-family
exit
"
    )
}

fn gobgp(place: Place) -> String {
    let Place { asn, router_id, address, us, words: Words { neighbor, channel, global }, .. } = place;
    let families = ["ipv4-unicast", "ipv6-unicast"].map(|family| {
        format!(
            "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n{channel}\n"
        )
    });
    format!(
        "[global.config]
as = {asn}
router-id = \"{router_id}\"
{global}
[[neighbors]]
[neighbors.config]
neighbor-address = \"{us}\"
peer-as = {OUR_AS}
{neighbor}
[neighbors.timers.config]
connect-retry = 2
idle-hold-time-after-reset = 1
[neighbors.transport.config]
local-address = \"{address}\"
{}",
        families.concat()
    )
}
