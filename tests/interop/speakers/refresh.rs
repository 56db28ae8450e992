//! Routes sent again on request (RFC 2918), in one piece where both ends can mark it (RFC 7313).

use anyhow::ensure;
use isthmus_lab::router::{Kind, Updates};

use super::rig::Rig;

fn updates(rig: &Rig) -> Updates {
    rig.theirs.updates(rig.session.theirs().us).unwrap()
}

/// Waits until both ends have everything, so that what comes then was asked for.
fn settle(rig: &mut Rig) {
    rig.wait_established();
    for prefix in rig.theirs_to_us() {
        rig.until(prefix, |rig| rig.route_of(&rig.third, prefix));
    }
    for prefix in rig.ours_to_them() {
        rig.until(prefix, |rig| rig.route_of(&rig.theirs, prefix));
    }
}

/// The session and all routes are as they were.
fn check_kept(rig: &mut Rig) {
    settle(rig);
    assert_eq!(rig.neighbor("theirs").unwrap().established_count, 1);
    let detail = rig.detail().unwrap();
    let has = |name: &str| {
        let all = detail["capabilities"].as_array().unwrap();
        all.iter().any(|one| one["name"] == name && one["sent"] == true && one["received"] == true)
    };
    assert!(has("route refresh"), "{detail:#}");
    assert_eq!(has("enhanced route refresh"), rig.kind() != Kind::Gobgp, "{detail:#}");
}

/// Theirs asks. GoBGP never does: it keeps what we sent, and judges that again.
pub(crate) fn theirs(mut rig: Rig) {
    settle(&mut rig);
    let before = updates(&rig);
    rig.theirs.refresh(rig.session.theirs().us).unwrap();
    rig.until("our routes again", |rig| {
        let now = updates(rig);
        ensure!(now.received > before.received, "{before:?}, {now:?}");
        Ok(())
    });
    check_kept(&mut rig);
}

/// We ask.
pub(crate) fn ours(mut rig: Rig) {
    settle(&mut rig);
    let before = updates(&rig);
    rig.ours.ctl_ok(&["bgp", "clear", "theirs", "--soft", "in"]).unwrap();
    rig.until("their routes again", |rig| {
        let now = updates(rig);
        ensure!(now.sent > before.sent, "{before:?}, {now:?}");
        Ok(())
    });
    check_kept(&mut rig);
}
