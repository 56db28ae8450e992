//! Several paths to a prefix in one session (RFC 7911).

use anyhow::ensure;
use isthmus_lab::router::Kind;

use super::{
    EXTERNAL_V4,
    config::{OUR_AS, THIRD_AS, Words},
    rig::{Rig, SHARED, Session},
};

pub(crate) fn from_us(kind: Kind) -> Session {
    let theirs = match kind {
        Kind::Bird => Words::channel("add paths rx;"),
        // It takes them unless it is told not to.
        Kind::Frr => Words::NONE,
        Kind::Gobgp => Words::channel("[neighbors.afi-safis.add-paths.config]\nreceive = true"),
    };
    Session { ours: "add_path = \"send\"", theirs, ..EXTERNAL_V4 }
}

/// A prefix of ours that the third announces, too: they have both, then one.
pub(crate) fn we_send(mut rig: Rig) {
    rig.wait_established();
    let paths = [format!("{OUR_AS}"), format!("{OUR_AS} {THIRD_AS}")];
    wait_paths(&mut rig, &paths[..1]);
    rig.third.originate(SHARED, true).unwrap();
    wait_paths(&mut rig, &paths);
    rig.third.originate(SHARED, false).unwrap();
    wait_paths(&mut rig, &paths[..1]);
}

fn wait_paths(rig: &mut Rig, expected: &[String]) {
    rig.until(&format!("{expected:?} at theirs"), |rig| {
        let routes = rig.theirs.routes(SHARED)?;
        let mut paths: Vec<_> = routes.iter().map(|route| route.as_path.clone()).collect();
        paths.sort();
        ensure!(paths == expected, "{routes:#?}");
        Ok(())
    });
}

/// Theirs has two ways to 10.20.0.0/16.
pub(crate) fn from_them(_: Kind) -> Session {
    let theirs = Words {
        channel: "add paths tx;",
        global: "protocol static second { disabled; ipv4 { preference 150; };
  route 10.20.0.0/16 blackhole { bgp_path.prepend(64999); bgp_community.add((65000, 7)); }; }",
        ..Words::NONE
    };
    Session { ours: "add_path = \"receive\"", theirs, ..EXTERNAL_V4 }
}

pub(crate) fn they_send(mut rig: Rig) {
    rig.wait_established();
    for (order, count) in [("enable second", 2), ("disable second", 1)] {
        rig.theirs.ask(order).unwrap();
        rig.until(&format!("{count} paths"), |rig| {
            let said = rig.ask(&["bgp", "rib", "in", "10.20.0.0/16"])?;
            let paths = said["entries"][0]["paths"].as_array().cloned().unwrap_or_default();
            ensure!(paths.len() == count, "{said:#}");
            ensure!(paths.iter().all(|path| path["path_id"] != 0), "{said:#}");
            Ok(())
        });
    }
}
