//! The same router in four languages: two eBGP neighbors that may say and hear all, no delays, no log of routes, and a kernel table only
//! where it is measured.

use std::fmt::Write;

use super::rig::{FEEDER, READER, SPEAKER_ASN};
use crate::contender::Name;

/// The configuration file of `name`; what `isthmusd` needs beside it comes in front.
pub(super) fn text(name: Name, kernel: bool) -> String {
    match name {
        Name::Bird => bird(kernel),
        Name::Frr => frr(),
        Name::Gobgp => gobgp(),
        _ => isthmus(kernel),
    }
}

fn isthmus(kernel: bool) -> String {
    let mut text = format!("[bgp]\nasn = {SPEAKER_ASN}\nrouter_id = \"10.0.1.1\"\nhold_time = \"90s\"\n");
    for (name, ends) in [("feeder", FEEDER), ("reader", READER)] {
        // A String takes everything.
        let _ = writeln!(
            text,
            "[[bgp.neighbor]]\nname = {name:?}\naddress = \"{}\"\nasn = {}\nimport = \"all\"\nexport = \"all\"\n\
             max_prefixes = 2000000",
            ends.address, ends.asn
        );
    }
    text + if kernel { "[fib]\n" } else { "" }
}

fn bird(kernel: bool) -> String {
    let mut text = "router id 10.0.1.1;\nlog stderr { error, fatal };\nprotocol device { }\n".to_owned();
    if kernel {
        text += "protocol kernel { ipv4 { import none; export all; }; }\n";
    }
    for (name, ends) in [("feeder", FEEDER), ("reader", READER)] {
        let _ = writeln!(
            text,
            "protocol bgp {name} {{ local {} as {SPEAKER_ASN}; neighbor {} as {}; passive; hold time 90; \
             ipv4 {{ import all; export all; }}; }}",
            ends.neighbor, ends.address, ends.asn
        );
    }
    text
}

fn frr() -> String {
    let mut text = format!(
        "log stdout errors\nrouter bgp {SPEAKER_ASN}\n bgp router-id 10.0.1.1\n no bgp ebgp-requires-policy\n"
    );
    text += " no bgp network import-check\n";
    for ends in [FEEDER, READER] {
        let neighbor = format!(" neighbor {}", ends.address);
        let _ = writeln!(
            text,
            "{neighbor} remote-as {}\n{neighbor} passive\n{neighbor} timers 30 90\n{neighbor} advertisement-interval 0",
            ends.asn
        );
    }
    text
}

fn gobgp() -> String {
    let mut text = format!("[global.config]\nas = {SPEAKER_ASN}\nrouter-id = \"10.0.1.1\"\n");
    for ends in [FEEDER, READER] {
        let _ = writeln!(
            text,
            "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{}\"\npeer-as = {}\n[neighbors.timers.config]\nhold-time = 90\n\
             [neighbors.transport.config]\npassive-mode = true",
            ends.address, ends.asn
        );
    }
    text
}
