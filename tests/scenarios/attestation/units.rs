//! systemd units, by cgroups that look as systemd's do.

use isthmus_lab::{peers::skipped, sandbox};

use super::{
    cgroups::Cgroup,
    rig::{Rig, entry},
};

#[test]
fn a_unit_gives_its_identity_to_all_below_it_and_to_nobody_else() {
    let name = "units::a_unit_gives_its_identity_to_all_below_it_and_to_nobody_else";
    sandbox::run_with_bins(name, |bins| {
        let slice = format!("isthmus{}.slice", rand::random::<u32>());
        let cgroup = |below: &str| Cgroup::new(&format!("{slice}/{below}"));
        let (Some(unit), Some(worker)) = (cgroup("lab.service"), cgroup("lab.service/worker")) else {
            return skipped(name, "no cgroup can be made here");
        };
        let mut rig = Rig::new(bins);
        rig.start(
            &(entry("/unit/{systemd:unit}", &["systemd:unit:lab.service"])
                + &entry("/of-user", &["systemd:user-unit:lab.service"])),
        );
        rig.fetch_by("isthmusctl", &unit.enter()).has(&["/unit/lab.service"]);
        rig.fetch_by("isthmusctl", &worker.enter()).has(&["/unit/lab.service"]);
        rig.fetch().is_denied();
        // A unit of that name that somebody else made in what is his.
        let below = cgroup("other.service/lab.service").unwrap();
        rig.fetch_by("isthmusctl", &below.enter()).is_denied();
        let users = cgroup("user@1000.service/app.slice/lab.service").unwrap();
        rig.fetch_by("isthmusctl", &users.enter()).has(&["/of-user"]);
    });
}
