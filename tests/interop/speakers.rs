//! BGP between `isthmusd` and the speakers that everybody runs: BIRD, FRR and GoBGP.
//!
//! ```text
//! theirs ── ours: isthmusd ── third: another AS, the same program as theirs
//! ```
//! A case is a function of a [`Rig`] and a line for each program that has the feature. `tests/interop/bird.rs` has what goes through a tunnel.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "speakers/config.rs"]
mod config;
#[path = "speakers/rig.rs"]
mod rig;

use anyhow::ensure;
use isthmus_lab::{
    router::Kind::{self, Bird, Frr, Gobgp},
    sandbox,
};

use config::{OUR_AS, THEIR_AS, THIRD_AS};
use rig::{Rig, Session, Transport};

/// Runs `case` in a sandbox; skips, and says so, where the program is not installed.
fn run(test: &str, kind: Kind, session: Session, case: impl FnOnce(Rig)) {
    if kind.installed(test) {
        sandbox::run_with_bins(test, |bins| case(Rig::start(kind, session, bins)));
    }
}

const EXTERNAL_V4: Session = Session { transport: Transport::V4, asn: THEIR_AS };
const EXTERNAL_V6: Session = Session { transport: Transport::V6, asn: THEIR_AS };
const INTERNAL_V4: Session = Session { transport: Transport::V4, asn: OUR_AS };
const INTERNAL_V6: Session = Session { transport: Transport::V6, asn: OUR_AS };

/// Both families both ways and on to a third, one prefix withdrawn and announced again.
fn exchange(mut rig: Rig) {
    rig.wait_established();
    let families = rig.neighbor("theirs").unwrap().families;
    assert_eq!(families, ["ipv4-unicast", "ipv6-unicast"]);
    for prefix in rig.theirs_to_us() {
        check_heard(&mut rig, prefix);
        check_passed_on(&mut rig, prefix);
    }
    for prefix in rig.ours_to_them() {
        check_told(&mut rig, prefix);
    }
    withdraw(&mut rig);
    let theirs = rig.neighbor("theirs").unwrap();
    assert_eq!((theirs.established_count, theirs.last_error.as_str()), (1, ""), "the same session");
}

/// What they announced is a route of ours.
fn check_heard(rig: &mut Rig, prefix: &str) {
    let path = if rig.session.is_internal() { String::new() } else { THEIR_AS.to_string() };
    rig.until(&format!("{prefix} at ours"), |rig| {
        let candidate = rig.candidate(prefix)?;
        ensure!(candidate.selected && candidate.usable, "{candidate:#?}");
        ensure!(candidate.as_path == path, "{candidate:#?}");
        Ok(())
    });
}

/// What they announced reached the third as they meant it.
fn check_passed_on(rig: &mut Rig, prefix: &str) {
    let path = if rig.session.is_internal() { OUR_AS.to_string() } else { format!("{OUR_AS} {THEIR_AS}") };
    let route = rig.until(&format!("{prefix} at the third"), |rig| rig.route_of(&rig.third, prefix));
    assert_eq!(route.as_path, path, "{route:#?}");
    assert_eq!(route.communities, ["65000:7"], "{route:#?}");
}

/// What we announce they have, and what the third announces too.
fn check_told(rig: &mut Rig, prefix: &str) {
    let mut path = vec![];
    if !rig.session.is_internal() {
        path.push(OUR_AS.to_string());
    }
    if rig::BEHIND_THIRD.contains(&prefix) {
        path.push(THIRD_AS.to_string());
    }
    let route = rig.until(&format!("{prefix} at theirs"), |rig| rig.route_of(&rig.theirs, prefix));
    assert_eq!(route.as_path, path.join(" "), "{route:#?}");
    if rig.session.is_internal() {
        assert_eq!(route.local_pref, Some(100), "{route:#?}");
    }
}

/// A prefix goes from everybody's table and comes back.
fn withdraw(rig: &mut Rig) {
    for prefix in rig.theirs_to_us() {
        rig.theirs.originate(prefix, false).unwrap();
        rig.until(&format!("{prefix} gone"), |rig| {
            ensure!(rig.candidate(prefix).is_err(), "we still have it");
            let route = rig.third.route(prefix)?;
            ensure!(route.is_none(), "the third still has {route:#?}");
            Ok(())
        });
        rig.theirs.originate(prefix, true).unwrap();
        check_heard(rig, prefix);
        check_passed_on(rig, prefix);
    }
}

/// They die without a goodbye and come back; nothing old stays meanwhile.
fn come_back(mut rig: Rig) {
    rig.wait_established();
    let prefix = rig.theirs_to_us()[0];
    check_heard(&mut rig, prefix);
    rig.theirs.kill().unwrap();
    rig.until("their routes gone", |rig| {
        ensure!(rig.candidate(prefix).is_err(), "we still have it");
        Ok(())
    });
    rig.theirs.restart().unwrap();
    rig.originate();
    check_heard(&mut rig, prefix);
    assert_eq!(rig.neighbor("theirs").unwrap().established_count, 2);
}

/// We say goodbye, and they keep nothing.
fn leave(mut rig: Rig) {
    rig.wait_established();
    let prefix = rig.ours_to_them()[0];
    check_told(&mut rig, prefix);
    assert!(rig.ours.stop().unwrap().success(), "{}", rig.ours.log_tail());
    let limit = rig::LIMIT;
    let gone = rig.theirs.until("our routes gone", limit, |theirs| {
        let route = theirs.route(prefix)?;
        ensure!(route.is_none(), "{route:#?}");
        Ok(())
    });
    gone.unwrap();
}

/// Tests of a case: `name: program, session, case;`.
macro_rules! cases {
    ($($name:ident: $kind:expr, $session:expr, $case:expr;)*) => {
        $(#[test] fn $name() { run(stringify!($name), $kind, $session, $case); })*
    };
}

cases! {
    bird_external_over_v4: Bird, EXTERNAL_V4, exchange;
    bird_external_over_v6: Bird, EXTERNAL_V6, exchange;
    bird_internal_over_v4: Bird, INTERNAL_V4, exchange;
    bird_internal_over_v6: Bird, INTERNAL_V6, exchange;
    bird_comes_back: Bird, EXTERNAL_V4, come_back;
    bird_is_left: Bird, EXTERNAL_V6, leave;
    frr_external_over_v4: Frr, EXTERNAL_V4, exchange;
    frr_external_over_v6: Frr, EXTERNAL_V6, exchange;
    frr_internal_over_v4: Frr, INTERNAL_V4, exchange;
    frr_internal_over_v6: Frr, INTERNAL_V6, exchange;
    frr_comes_back: Frr, EXTERNAL_V6, come_back;
    frr_is_left: Frr, EXTERNAL_V4, leave;
    gobgp_external_over_v4: Gobgp, EXTERNAL_V4, exchange;
    gobgp_external_over_v6: Gobgp, EXTERNAL_V6, exchange;
    gobgp_internal_over_v4: Gobgp, INTERNAL_V4, exchange;
    gobgp_internal_over_v6: Gobgp, INTERNAL_V6, exchange;
    gobgp_comes_back: Gobgp, EXTERNAL_V4, come_back;
    gobgp_is_left: Gobgp, EXTERNAL_V6, leave;
}
