//! Users, groups, programs.

use std::{fs, io::Write, process::Command};

use isthmus_lab::sandbox;

use super::rig::{Rig, entry, skipped};

fn sha256(path: &std::path::Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

#[test]
fn a_program_is_known_by_path_and_by_hash() {
    sandbox::run_with_bins("programs::a_program_is_known_by_path_and_by_hash", |bins| {
        let mut rig = Rig::new(bins);
        let hash = format!("unix:sha256:{}", sha256(&bins.isthmusctl));
        rig.start(
            &(entry("/by/path", &["unix:path:/run/workload/isthmusctl"])
                + &entry("/by/hash", &["unix:uid:0", &hash])
                + &entry("/by/name/{unix:user}/{unix:group}", &["unix:user:root", "unix:group:root"])
                + &entry("/by/nobody", &["unix:user:nobody"])
                + &entry("/by/stranger", &["unix:user:no-such-user"])),
        );
        rig.fetch().has(&["/by/path", "/by/hash", "/by/name/root/root"]);

        // The same program elsewhere; another program; and another program where the first one was.
        rig.install(&bins.isthmusctl, "copy");
        rig.fetch_by("copy", "").has(&["/by/hash", "/by/name/root/root"]);
        let other = rig.install(&bins.isthmusctl, "other");
        fs::OpenOptions::new().append(true).open(&other).unwrap().write_all(b"\0").unwrap();
        rig.fetch_by("other", "").has(&["/by/name/root/root"]);
        fs::rename(&other, rig.dir.join("isthmusctl")).unwrap();
        rig.fetch().has(&["/by/path", "/by/name/root/root"]);

        let log = rig.node.log_text();
        assert!(!log.contains(&hash[12..]) && !log.contains("unix:"), "selectors are not for the log: {log}");
    });
}

#[test]
fn a_reload_asks_for_what_nobody_asked_for_before() {
    sandbox::run_with_bins("programs::a_reload_asks_for_what_nobody_asked_for_before", |bins| {
        let mut rig = Rig::new(bins);
        rig.start(&entry("/by/uid", &["unix:uid:0"]));
        rig.fetch().has(&["/by/uid"]);
        rig.reload(&entry("/by/path", &["unix:path:/run/workload/isthmusctl"]));
        rig.fetch().has(&["/by/path"]);
        rig.reload(&entry("/by/path", &["unix:path:/run/workload/another"]));
        rig.fetch().is_denied();
    });
}

/// The kernel names such a caller by pid 0: nothing is known of it.
#[test]
fn a_caller_in_a_pid_namespace_that_is_not_seen_is_refused() {
    let name = "programs::a_caller_in_a_pid_namespace_that_is_not_seen_is_refused";
    sandbox::run_with_bins(name, |bins| {
        let mut rig = Rig::new(bins);
        let config = rig.config(&entry("/by/uid", &["unix:uid:0"]));
        rig.node.write_config(&config).unwrap();
        let inner = "exec unshare --pid --fork --mount-proc --kill-child \"$0\" --config \"$1\"";
        if !Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "true"])
            .status()
            .is_ok_and(|s| s.success())
        {
            return skipped(name, "no pid namespace can be made here");
        }
        rig.node.restart_in_shell(inner, |_| ()).unwrap();
        rig.node.wait_ready(super::rig::LIMIT).unwrap();
        rig.fetch().is_denied();
        assert!(rig.node.log_text().contains("hostPID"), "{}", rig.node.log_text());
        rig.node.kill().unwrap();
    });
}
