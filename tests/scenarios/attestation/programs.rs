//! Users, groups, programs.

use std::{fs, io::Write, process::Command};

use isthmus_lab::{node::unix_channel, peers::skipped, sandbox};
use isthmus_proto::workload::{X509svidRequest, spiffe_workload_api_client::SpiffeWorkloadApiClient};
use tonic::{Code, Request, metadata::MetadataValue};

use super::rig::{Rig, entry};

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

/// spiffe/spire#711: who is banned must not go on with the connection that it has.
#[test]
fn a_caller_that_lost_its_entry_gets_nothing_on_its_old_connection() {
    let name = "programs::a_caller_that_lost_its_entry_gets_nothing_on_its_old_connection";
    sandbox::run_with_bins(name, |bins| {
        let mut rig = Rig::new(bins);
        rig.start(&entry("/by/uid", &["unix:uid:0"]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = rig.dir.join("workload.sock");
        let mut client =
            runtime.block_on(async { SpiffeWorkloadApiClient::new(unix_channel(&socket).unwrap()) });
        let mut fetch = || {
            runtime.block_on(async {
                let mut request = Request::new(X509svidRequest {});
                request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
                client.fetch_x509svid(request).await?.into_inner().message().await
            })
        };
        assert_eq!(fetch().unwrap().unwrap().svids.len(), 1);
        rig.reload(&entry("/by/uid", &["unix:uid:4242"]));
        let refused = fetch().unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "no identity issued"));
        rig.reload(&entry("/by/uid", &["unix:uid:0"]));
        assert_eq!(fetch().unwrap().unwrap().svids.len(), 1);
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
