//! Signed connections (RFC 2385) and connections from next door (RFC 5082).

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V4, EXTERNAL_V6,
    config::Words,
    exchange::{check_heard, check_told},
    rig::{Rig, Session},
};

/// We only listen.
pub(crate) fn they_dial(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => "password \"right\";",
        Kind::Frr => " neighbor $US password right",
        Kind::Gobgp => "auth-password = \"right\"",
    };
    Session {
        ours: "passive = true\npassword_file = \"$DIR/right\"",
        theirs: Words::neighbor(theirs),
        ..EXTERNAL_V4
    }
}

/// They only listen.
pub(crate) fn we_dial(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => "password \"right\"; passive;",
        Kind::Frr => " neighbor $US password right\n neighbor $US passive",
        // Its place for the other word is the transport's table.
        Kind::Gobgp => "auth-password = \"right\"",
    };
    Session { ours: "password_file = \"$DIR/right\"", theirs: Words::neighbor(theirs), ..EXTERNAL_V6 }
}

pub(crate) fn wrong(kind: Kind) -> Session {
    let right = we_dial(kind);
    Session { ours: "password_file = \"$DIR/wrong\"", ..right }
}

pub(crate) fn ttl(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => "ttl security;",
        Kind::Frr => " neighbor $US ttl-security hops 1",
        Kind::Gobgp => "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255",
    };
    Session { ours: "ttl_security = true", theirs: Words::neighbor(theirs), ..EXTERNAL_V4 }
}

pub(crate) fn comes_up(mut rig: Rig) {
    rig.wait_established();
    let (heard, told) = (rig.theirs_to_us()[0], rig.ours_to_them()[0]);
    check_heard(&mut rig, heard);
    check_told(&mut rig, told);
}

/// Nothing comes of a wrong password, and a reload with the right one is enough.
pub(crate) fn is_mended(mut rig: Rig) {
    rig.until("an attempt in vain", |rig| {
        let theirs = rig.neighbor("theirs")?;
        ensure!(theirs.last_error.contains("another password"), "{theirs:#?}");
        ensure!(rig.neighbor("third")?.state == "Established", "the third is not up");
        Ok(())
    });
    assert_eq!(rig.neighbor("theirs").unwrap().established_count, 0);
    rig.reload("/wrong\"", "/right\"");
    rig.wait_session(1);
    assert_eq!(rig.neighbor("third").unwrap().established_count, 1);
}
