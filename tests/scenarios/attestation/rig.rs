//! One issuer, and callers of its Workload API.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    pki::{Pki, TRUST_DOMAIN, identity_config},
};
use time::OffsetDateTime;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Its Workload API is where every user can reach it: in the sandbox's own `/run`.
pub(crate) struct Rig {
    pub(crate) node: Node,
    pub(crate) dir: PathBuf,
    _files: tempfile::TempDir,
}

impl Rig {
    /// Not started yet.
    pub(crate) fn new(bins: &Bins) -> Self {
        let (files, dir) = (tempfile::tempdir().unwrap(), PathBuf::from("/run/workload"));
        fs::create_dir(&dir).unwrap();
        let rig_node = Node::new("gw1", &Netns::create("issuer").unwrap(), files.path(), bins).unwrap();
        Pki::new("s1", OffsetDateTime::now_utc()).unwrap().write_all(rig_node.dir(), "gw1").unwrap();
        let rig = Self { node: rig_node, dir, _files: files };
        rig.install(&bins.isthmusctl, "isthmusctl");
        rig
    }

    pub(crate) fn start(&mut self, workload_api: &str) {
        let config = self.config(workload_api);
        self.node.start(&config).unwrap();
        self.node.wait_ready(LIMIT).unwrap();
    }

    pub(crate) fn reload(&mut self, workload_api: &str) {
        let config = self.config(workload_api);
        self.node.reload(&config, LIMIT).unwrap();
    }

    /// The keys of `[workload_api]` after the socket, then whatever follows.
    pub(crate) fn config(&self, workload_api: &str) -> String {
        let identity = identity_config(&self.node, "s1");
        format!(
            "{identity}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n\
             [workload_api]\nsocket = \"/run/workload/workload.sock\"\n{workload_api}"
        )
    }

    /// Copies a program to where every user can run it.
    pub(crate) fn install(&self, program: &Path, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::copy(program, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// What `isthmusctl svid fetch`, under another name perhaps, gets after the shell has done `first`.
    pub(crate) fn fetch_by(&self, program: &str, first: &str) -> Fetched {
        let script = format!(
            "{first}exec {}/{program} svid fetch --workload-socket unix:///run/workload/workload.sock",
            self.dir.display()
        );
        let output = Command::new("sh").arg("-c").arg(script).current_dir("/").output().unwrap();
        Fetched(output)
    }

    pub(crate) fn fetch(&self) -> Fetched {
        self.fetch_by("isthmusctl", "")
    }
}

/// What a caller was told.
pub(crate) struct Fetched(Output);

impl Fetched {
    pub(crate) fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.0.stdout), String::from_utf8_lossy(&self.0.stderr))
    }

    /// It has these identities and no others.
    pub(crate) fn has(&self, paths: &[&str]) {
        let text = self.text();
        assert!(self.0.status.success(), "{text}");
        for path in paths {
            assert!(text.contains(&id(path)), "no {path}: {text}");
        }
        assert_eq!(text.matches(&id("/")).count(), paths.len(), "{text}");
    }

    pub(crate) fn is_denied(&self) {
        let text = self.text();
        assert_eq!(self.0.status.code(), Some(1), "{text}");
        assert!(text.contains("no identity issued"), "{text}");
    }

    /// Neither an identity nor a refusal: to be tried again.
    pub(crate) fn is_put_off(&self) {
        let text = self.text();
        assert!(!self.0.status.success() && !text.contains("no identity issued"), "{text}");
        assert!(text.contains("can't attest this workload now"), "{text}");
    }
}

pub(crate) fn entry(path: &str, selectors: &[&str]) -> String {
    format!("[[workload_api.entry]]\nspiffe_id = \"{path}\"\nselectors = {selectors:?}\n")
}

pub(crate) fn id(path: &str) -> String {
    format!("spiffe://{TRUST_DOMAIN}{path}")
}
