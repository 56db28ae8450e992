//! The speaker under test in three languages, and the two routers that it stands before.

use std::{fmt::Write, net::Ipv4Addr};

use super::rig::{PREFIXES, ROUTERS, SPEAKER_ASN, prefix};
use crate::contender::Name;

/// Who floods, from the source.
pub(super) const FLOODER_ASN: u32 = 4_200_000_003;
/// The source, and the speaker's address towards it.
pub(super) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const SPEAKER_AT_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// What a session has beside routes. Never both: a BFD that dies with its daemon undoes a graceful restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    /// A loss of the connection is a loss of the routes.
    Nothing,
    /// BFD with so many milliseconds between its packets; three may be lost.
    Bfd(u32),
    /// RFC 4724.
    GracefulRestart,
}

/// The speaker under test.
pub(super) fn speaker(name: Name, extra: Extra) -> String {
    match name {
        Name::Bird => bird(extra),
        Name::Frr => frr(extra),
        _ => isthmus(extra),
    }
}

/// What lets [`speaker`] take a session from the flooder as well, behind its text.
pub(super) fn flooder(name: Name) -> String {
    match name {
        Name::Bird => format!(
            "protocol bgp flooder {{ local {SPEAKER_AT_SOURCE} as {SPEAKER_ASN}; neighbor {SOURCE} as {FLOODER_ASN}; \
             passive; hold time 9; ipv4 {{ import all; export none; }}; }}\n"
        ),
        Name::Frr => format!(
            " neighbor {SOURCE} remote-as {FLOODER_ASN}\n neighbor {SOURCE} passive\n neighbor {SOURCE} timers 3 9\n"
        ),
        _ => format!(
            "[[bgp.neighbor]]\nname = \"flooder\"\naddress = \"{SOURCE}\"\nasn = {FLOODER_ASN}\nimport = \"all\"\n\
             export = \"none\"\nmax_prefixes = 2000000\n"
        ),
    }
}

fn isthmus(extra: Extra) -> String {
    let restart = if extra == Extra::GracefulRestart { 120 } else { 0 };
    let mut text = format!(
        "[fib]\n[bgp]\nasn = {SPEAKER_ASN}\nrouter_id = \"10.0.0.1\"\nhold_time = \"9s\"\ngraceful_restart = \"{restart}s\"\n"
    );
    for router in ROUTERS {
        // A String takes everything.
        let _ = writeln!(
            text,
            "[[bgp.neighbor]]\nname = {:?}\naddress = \"{}\"\nasn = {}\nimport = \"all\"\nexport = \"all\"",
            router.name, router.address, router.asn
        );
        if let Extra::Bfd(interval) = extra {
            let _ = writeln!(text, "bfd = {{ interval = \"{interval}ms\", multiplier = 3 }}");
        }
    }
    text
}

fn bird(extra: Extra) -> String {
    let mut text = "router id 10.0.0.1;\nlog stderr { error, fatal };\nprotocol device { }\n\
        protocol kernel { GRACE ipv4 { import none; export all; }; }\n"
        .replace("GRACE", if extra == Extra::GracefulRestart { "graceful restart on;" } else { "" });
    text += &bird_bfd("*", extra);
    for router in ROUTERS {
        let _ = writeln!(
            text,
            "protocol bgp to_{} {{ local {} as {SPEAKER_ASN}; neighbor {} as {}; {} ipv4 {{ import all; export all; }}; }}",
            router.name,
            router.speaker,
            router.address,
            router.asn,
            bird_session(extra)
        );
    }
    text
}

/// BFD on the interfaces that match.
fn bird_bfd(interface: &str, extra: Extra) -> String {
    match extra {
        Extra::Bfd(interval) => format!(
            "protocol bfd {{ interface \"{interface}\" {{ interval {interval} ms; multiplier 3; }}; }}\n"
        ),
        _ => String::new(),
    }
}

/// What every session of BIRD has. It keeps the routes of a neighbor that says that it restarts, unless it is told not to.
fn bird_session(extra: Extra) -> String {
    let more = match extra {
        Extra::Nothing => "graceful restart off;",
        Extra::Bfd(_) => "graceful restart off; bfd on;",
        Extra::GracefulRestart => "graceful restart on;",
    };
    format!("hold time 9; connect delay time 1; connect retry time 1; error wait time 1, 1; {more}")
}

fn frr(extra: Extra) -> String {
    let mut text = format!(
        "log stdout errors\nrouter bgp {SPEAKER_ASN}\n bgp router-id 10.0.0.1\n no bgp ebgp-requires-policy\n"
    );
    if extra == Extra::GracefulRestart {
        text += " bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n";
    }
    for router in ROUTERS {
        let neighbor = format!(" neighbor {}", router.address);
        let _ = writeln!(
            text,
            "{neighbor} remote-as {}\n{neighbor} timers 3 9\n{neighbor} timers connect 1\n{neighbor} advertisement-interval 0",
            router.asn
        );
        if let Extra::Bfd(interval) = extra {
            let _ = writeln!(text, "{neighbor} bfd 3 {interval} {interval}");
        }
    }
    text
}

/// The router of this number: all prefixes, from the second by a longer path.
pub(super) fn router(number: usize, extra: Extra) -> String {
    let router = ROUTERS[number];
    let mut text = format!(
        "router id {};\nlog stderr {{ error, fatal }};\nprotocol device {{ }}\nprotocol static {{ ipv4;\n",
        router.address
    );
    for index in 0..PREFIXES {
        let _ = writeln!(text, "route {} blackhole;", prefix(index));
    }
    text += "}\n";
    text += &bird_bfd("eth0", extra);
    let longer = if number == 0 { "" } else { "bgp_path.prepend(64512); " };
    let _ = writeln!(
        text,
        "protocol bgp speaker {{ local {} as {}; neighbor {} as {SPEAKER_ASN}; {} \
         ipv4 {{ import none; export filter {{ {longer}accept; }}; }}; }}",
        router.address,
        router.asn,
        router.speaker,
        bird_session(extra)
    );
    text
}
