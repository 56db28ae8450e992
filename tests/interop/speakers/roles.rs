//! Roles and Only to Customer (RFC 9234).

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V4,
    config::{THEIR_AS, Words},
    rig::{Rig, Session},
};

fn they_are(kind: Kind, role: [&'static str; 2]) -> Words {
    Words::neighbor(if kind == Kind::Bird { role[0] } else { role[1] })
}

/// Theirs is our provider.
pub(crate) fn customer(kind: Kind) -> Session {
    let theirs = they_are(kind, ["local role provider;", " neighbor $US local-role provider"]);
    // To the third we are a peer, who must not have it.
    let third = they_are(kind, ["local role peer;", " neighbor $US local-role peer"]);
    Session {
        ours: "role = \"customer\"\nstrict_role = true",
        to_third: "role = \"peer\"",
        theirs,
        third,
        ..EXTERNAL_V4
    }
}

/// What a provider sent goes to no other provider or peer; what we originate does.
pub(crate) fn agree(mut rig: Rig) {
    rig.wait_established();
    let path = rig.until("their prefix", |rig| rig.path("in", "10.20.0.0/16"));
    assert_eq!(path["attributes"]["only_to_customer"], THEIR_AS, "{path:#}");
    assert_eq!(path["state"], "best", "{path:#}");
    rig.until("ours at the third", |rig| rig.route_of(&rig.third, "10.10.0.0/16"));
    assert_eq!(rig.third.route("10.20.0.0/16").unwrap(), None);
    // And what a peer sent does not go to a provider.
    rig.until("the third's", |rig| rig.candidate("10.30.0.0/16"));
    assert_eq!(rig.theirs.route("10.30.0.0/16").unwrap(), None);
}

/// Both want to be the customer.
pub(crate) fn clashing(kind: Kind) -> Session {
    let theirs = they_are(kind, ["local role customer;", " neighbor $US local-role customer"]);
    Session { ours: "role = \"customer\"", theirs, ..EXTERNAL_V4 }
}

pub(crate) fn clash(mut rig: Rig) {
    rig.until("the refusal", |rig| {
        let detail = rig.detail()?;
        let notification = &detail["last_error"]["notification"];
        ensure!(notification["code"] == 2 && notification["subcode"] == 11, "{detail:#}");
        Ok(())
    });
    assert_eq!(rig.neighbor("theirs").unwrap().established_count, 0);
}
