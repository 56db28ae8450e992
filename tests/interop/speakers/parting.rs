//! Sessions that end with a word (RFC 9003), or hard (RFC 8538).

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    config::Words,
    exchange::{check_heard, check_told},
    restart,
    rig::{Rig, Session},
};

pub(crate) fn they_shut_down(mut rig: Rig) {
    rig.wait_established();
    check_heard(&mut rig, "10.20.0.0/16");
    rig.theirs.shut_down(rig.session.theirs().us, "back-at-ten").unwrap();
    rig.wait_error("Administrative Shutdown: \"back-at-ten\"");
    let detail = rig.detail().unwrap();
    // FRR puts it into a Hard Reset (RFC 8538).
    let decoded = detail["last_error"]["notification"]["decoded"].as_str().unwrap();
    assert!(decoded.ends_with("\"back-at-ten\""), "{detail:#}");
    rig.until("their routes gone", |rig| {
        ensure!(rig.candidate("10.20.0.0/16").is_err(), "we still have it");
        Ok(())
    });
}

pub(crate) fn we_shut_down(mut rig: Rig) {
    rig.wait_established();
    check_told(&mut rig, "10.10.0.0/16");
    rig.reload("name = \"theirs\"", "name = \"theirs\"\nshutdown = \"back at ten\"");
    rig.wait_they_say("back at ten");
    rig.until("our routes gone", |rig| {
        let route = rig.theirs.route("10.10.0.0/16")?;
        ensure!(route.is_none(), "{route:#?}");
        Ok(())
    });
    rig.reload("shutdown = \"back at ten\"", "");
    rig.wait_session(2);
    assert_eq!(rig.neighbor("third").unwrap().established_count, 1);
}

/// Both ends could keep routes over a restart.
pub(crate) fn session(kind: Kind) -> Session {
    let session = restart::session(kind);
    let theirs =
        Words { neighbor: " bgp graceful-restart\n bgp hard-administrative-reset", ..session.theirs };
    Session { theirs, ..session }
}

/// But an operator who clears a session means it.
pub(crate) fn hard_reset(mut rig: Rig) {
    rig.wait_established();
    check_heard(&mut rig, "10.20.0.0/16");
    rig.theirs.ask("clear bgp 10.1.0.1").unwrap();
    rig.wait_error("Hard Reset");
    rig.wait_session(2);
    check_heard(&mut rig, "10.20.0.0/16");
}
