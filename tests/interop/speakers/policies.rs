//! What our policies do to routes, as the neighbor sees it.

use anyhow::ensure;

use super::{
    EXTERNAL_V4, INTERNAL_V4,
    config::OUR_AS,
    rig::{BEHIND_THIRD, MORE, Rig, Session},
};

pub(crate) const TAGGING: Session = Session {
    ours: "import = \"from\"\nexport = \"to\"",
    sections: r#"
[[bgp.policy]]
name = "to"
rules = [
  { originated = false, action = "reject" },
  { prefix = "10.10.0.0/16", action = "accept", prepend = 2, med = 50, add_communities = ["65001:100", "65001:200"], add_large_communities = ["4200000010:8:9"] },
  { action = "accept" },
]
[[bgp.policy]]
name = "from"
rules = [
  { prefix = "10.21.0.0/16", action = "reject" },
  { all_communities = ["65000:7"], large_communities = ["*:1:2"], action = "accept", remove_communities = ["*:*"], add_communities = ["65001:1"] },
]
"#,
    ..EXTERNAL_V4
};

/// Out: prepended, tagged, and what came from others left out. In: matched by their communities, changed, and passed on so.
pub(crate) fn are_seen(mut rig: Rig) {
    rig.wait_established();
    let route = rig.until("our prefix at theirs", |rig| rig.route_of(&rig.theirs, "10.10.0.0/16"));
    assert_eq!(route.as_path, format!("{OUR_AS} {OUR_AS} {OUR_AS}"), "{route:#?}");
    assert_eq!(route.communities, ["65001:100", "65001:200"], "{route:#?}");
    assert_eq!(route.large_communities, [format!("{OUR_AS}:8:9")], "{route:#?}");
    assert_eq!(route.med, Some(50), "{route:#?}");
    rig.theirs.originate(MORE, true).unwrap();
    rig.until("what we refuse", |rig| rig.path("in", MORE));
    let changed = rig.until("their prefix at the third", |rig| rig.route_of(&rig.third, "10.20.0.0/16"));
    assert_eq!(changed.communities, ["65001:1"], "{changed:#?}");
    for (router, prefix) in [(&rig.theirs, BEHIND_THIRD[0]), (&rig.third, MORE)] {
        assert_eq!(router.route(prefix).unwrap(), None);
    }
}

pub(crate) const PREFERRING: Session = Session {
    to_third: "import = \"prefer\"",
    sections: r#"
[[bgp.policy]]
name = "prefer"
rules = [{ communities = ["65000:7"], action = "accept", local_pref = 250 }]
"#,
    ..INTERNAL_V4
};

/// A preference that we gave on the way in is the AS's.
pub(crate) fn preferences(mut rig: Rig) {
    rig.wait_established();
    rig.until("the preference", |rig| {
        let route = rig.route_of(&rig.theirs, BEHIND_THIRD[0])?;
        ensure!(route.local_pref == Some(250), "{route:#?}");
        Ok(())
    });
}
