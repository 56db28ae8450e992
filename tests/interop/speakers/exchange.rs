//! Routes both ways and on to a third; and what stays of them when one of the two is gone.

use anyhow::ensure;

use super::{
    config::{OUR_AS, THEIR_AS, THIRD_AS},
    rig::{self, Rig},
};

/// Both families both ways and on to a third, one prefix withdrawn and announced again.
pub(crate) fn exchange(mut rig: Rig) {
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
pub(crate) fn check_heard(rig: &mut Rig, prefix: &str) {
    let path = if rig.session.is_internal() { String::new() } else { THEIR_AS.to_string() };
    rig.until(&format!("{prefix} at ours"), |rig| {
        let candidate = rig.candidate(prefix)?;
        ensure!(candidate.selected && candidate.usable, "{candidate:#?}");
        ensure!(candidate.as_path == path, "{candidate:#?}");
        Ok(())
    });
}

/// What they announced reached the third as they meant it.
pub(crate) fn check_passed_on(rig: &mut Rig, prefix: &str) {
    let path = if rig.session.is_internal() { OUR_AS.to_string() } else { format!("{OUR_AS} {THEIR_AS}") };
    let route = rig.until(&format!("{prefix} at the third"), |rig| rig.route_of(&rig.third, prefix));
    assert_eq!(route.as_path, path, "{route:#?}");
    assert_eq!(route.communities, ["65000:7"], "{route:#?}");
}

/// What we announce they have, and what the third announces too.
pub(crate) fn check_told(rig: &mut Rig, prefix: &str) {
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
pub(crate) fn come_back(mut rig: Rig) {
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
pub(crate) fn leave(mut rig: Rig) {
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
