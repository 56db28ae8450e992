//! BFD beside the session (RFC 5882): a dead path ends it, an administrator's word does not.

use anyhow::{Context, ensure};
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V4, EXTERNAL_V6,
    config::Words,
    exchange::check_heard,
    rig::{Rig, Session},
};

pub(crate) fn one_hop(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words {
            neighbor: "bfd;",
            global: "protocol bfd watch { interface \"*\" { interval 300 ms; multiplier 5; }; }",
            ..Words::NONE
        },
        _ => Words::neighbor(" neighbor $US bfd 5 300 300"),
    };
    Session { ours: "bfd = { interval = \"300ms\", multiplier = 5 }", theirs, ..EXTERNAL_V4 }
}

/// The same two, as if there were something between them.
pub(crate) fn multihop(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words {
            neighbor: "multihop 4; bfd;",
            global: "protocol bfd watch { multihop { interval 300 ms; multiplier 5; }; }",
            ..Words::NONE
        },
        _ => Words::neighbor(" neighbor $US ebgp-multihop 4\n neighbor $US bfd 5 300 300"),
    };
    Session {
        ours: "multihop = 4\nbfd = { interval = \"300ms\", multiplier = 5, multihop = true }",
        theirs,
        ..EXTERNAL_V6
    }
}

fn wait_up(rig: &mut Rig) {
    rig.wait_established();
    rig.until("BFD", |rig| {
        let said = rig.ask(&["bfd"])?;
        let session = said["sessions"].get(0).context("no session")?;
        ensure!(session["state"] == "Up", "{session:#}");
        Ok(())
    });
    let prefix = rig.theirs_to_us()[0];
    check_heard(rig, prefix);
}

/// They fall silent with everything open.
pub(crate) fn fails(mut rig: Rig) {
    wait_up(&mut rig);
    rig.theirs.freeze().unwrap();
    rig.until("Cease/BFD Down", |rig| {
        let log = rig.ours.log_text();
        ensure!(log.contains("neighbor=theirs sent=true notification=Cease/BFD Down"), "not sent");
        Ok(())
    });
    let prefix = rig.theirs_to_us()[0];
    rig.until("their routes gone", |rig| {
        ensure!(rig.candidate(prefix).is_err(), "we still have it");
        Ok(())
    });
}

/// Their operator ends BFD, and says so.
pub(crate) fn is_ended(mut rig: Rig) {
    wait_up(&mut rig);
    let order = "configure terminal\nbfd\npeer 10.1.0.1 local-address 10.1.0.2 interface eth0\nshutdown";
    rig.theirs.ask(order).unwrap();
    rig.until("the end of BFD", |rig| {
        let said = rig.ask(&["bfd"])?;
        let session = said["sessions"].get(0).context("no session")?;
        ensure!(session["state"] != "Up" && session["failures"] == 0, "{session:#}");
        Ok(())
    });
    let theirs = rig.neighbor("theirs").unwrap();
    assert_eq!((theirs.state.as_str(), theirs.established_count), ("Established", 1), "{theirs:#?}");
}
