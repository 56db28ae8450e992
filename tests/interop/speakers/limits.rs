//! More prefixes than one end allows: Cease/1 (RFC 4486), and quiet until an operator lifts it.

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V4,
    config::Words,
    rig::{MORE, Rig, Session},
};

/// FRR sends us our own prefixes back, and they count.
pub(crate) fn our_session(kind: Kind) -> Session {
    let ours = if kind == Kind::Frr { "max_prefixes = 3" } else { "max_prefixes = 1" };
    Session { ours, ..EXTERNAL_V4 }
}

/// Theirs announces a second prefix of the family.
pub(crate) fn ours(mut rig: Rig) {
    rig.wait_established();
    rig.until("the first", |rig| rig.candidate("10.20.0.0/16"));
    rig.theirs.originate(MORE, true).unwrap();
    rig.wait_error("Maximum Number of Prefixes Reached");
    let detail = rig.detail().unwrap();
    let notification = &detail["last_error"]["notification"];
    assert_eq!((&notification["code"], &notification["subcode"]), (&6.into(), &1.into()), "{detail:#}");
    assert_eq!(notification["sent"], true, "{detail:#}");
    let timers = detail["timers"].as_array().unwrap();
    assert!(timers.iter().any(|timer| timer["name"] == "hold-down"), "{detail:#}");
    rig.until("nothing of theirs", |rig| {
        ensure!(rig.candidate("10.20.0.0/16").is_err(), "we still have it");
        Ok(())
    });
    rig.theirs.originate(MORE, false).unwrap();
    rig.ours.ctl_ok(&["bgp", "clear", "theirs"]).unwrap();
    rig.wait_session(2);
}

/// One prefix of a family; we announce two.
pub(crate) fn theirs_session(kind: Kind) -> Session {
    let channel = match kind {
        Kind::Bird => "import limit 1 action disable;",
        _ => "[neighbors.afi-safis.prefix-limit.config]\nmax-prefixes = 1",
    };
    Session { theirs: Words::channel(channel), ..EXTERNAL_V4 }
}

/// We say what they told us, and leave them alone for a while.
pub(crate) fn theirs(mut rig: Rig) {
    rig.wait_error("Maximum Number of Prefixes Reached");
    let detail = rig.detail().unwrap();
    let notification = &detail["last_error"]["notification"];
    assert_eq!((&notification["code"], &notification["subcode"]), (&6.into(), &1.into()), "{detail:#}");
    assert_eq!(notification["sent"], false, "{detail:#}");
    assert_ne!(detail["state"], "Established", "{detail:#}");
}
