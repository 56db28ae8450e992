//! Graceful restart (RFC 4724): the one that restarts goes on forwarding, and the other keeps its routes meanwhile.

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V4,
    config::Words,
    exchange::{check_heard, check_told},
    rig::{MORE, Rig, Session},
};

pub(crate) fn session(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words::neighbor("graceful restart; graceful restart time 60;"),
        Kind::Frr => Words::neighbor(" bgp graceful-restart\n bgp graceful-restart preserve-fw-state"),
        Kind::Gobgp => Words {
            neighbor: "[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 60",
            channel: "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true",
            ..Words::NONE
        },
    };
    Session { sections: "[fib]\n", theirs, ..EXTERNAL_V4 }
}

fn in_kernel(rig: &Rig, prefix: &str) -> anyhow::Result<()> {
    let routes = rig.ours.netns().routes_of(73)?;
    ensure!(routes.iter().any(|route| route.to_string().starts_with(prefix)), "{routes:#?}");
    Ok(())
}

/// They die and come back with one prefix less: all stays until they have said what there is, then that one goes.
pub(crate) fn we_help(mut rig: Rig) {
    rig.wait_established();
    rig.theirs.originate(MORE, true).unwrap();
    for prefix in [MORE, "10.20.0.0/16"] {
        check_heard(&mut rig, prefix);
        rig.until(prefix, |rig| in_kernel(rig, prefix));
    }
    rig.theirs.kill().unwrap();
    rig.until("the end of the session", |rig| {
        let theirs = rig.neighbor("theirs")?;
        ensure!(theirs.state != "Established", "{theirs:#?}");
        Ok(())
    });
    for prefix in [MORE, "10.20.0.0/16"] {
        in_kernel(&rig, prefix).unwrap();
        assert_eq!(rig.path("in", prefix).unwrap()["stale"], true);
        assert!(rig.third.route("10.20.0.0/16").unwrap().is_some(), "the third lost it");
    }
    rig.theirs.restart().unwrap();
    rig.originate();
    rig.wait_session(2);
    rig.until("the sweep", |rig| {
        ensure!(in_kernel(rig, MORE).is_err(), "{MORE} is still there");
        in_kernel(rig, "10.20.0.0/16")?;
        ensure!(rig.path("in", "10.20.0.0/16")?["stale"] != true, "it is still stale");
        Ok(())
    });
}

/// We die and come back: they keep what we had announced.
pub(crate) fn they_help(mut rig: Rig) {
    rig.wait_established();
    check_told(&mut rig, "10.10.0.0/16");
    check_heard(&mut rig, "10.20.0.0/16");
    rig.until("the kernel's route", |rig| in_kernel(rig, "10.20.0.0/16"));
    rig.ours.kill().unwrap();
    let us = rig.session.theirs().us;
    rig.until("the end of the session at theirs", |rig| {
        let state = rig.theirs.session(us)?;
        ensure!(state != "Established", "{state}");
        Ok(())
    });
    assert!(rig.theirs.route("10.10.0.0/16").unwrap().is_some(), "they gave our route up");
    in_kernel(&rig, "10.20.0.0/16").unwrap();
    rig.ours.restart().unwrap();
    rig.wait_session(1);
    check_told(&mut rig, "10.10.0.0/16");
    check_heard(&mut rig, "10.20.0.0/16");
    in_kernel(&rig, "10.20.0.0/16").unwrap();
}
