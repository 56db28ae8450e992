//! A directory, the program in it, and OpenSSL beside it.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

pub(crate) const PASSPHRASE: &str = "correct horse battery staple";

/// A directory with a passphrase, a root and one site, made by the commands of the manual.
pub(crate) struct Ceremony {
    dir: TempDir,
}

impl Ceremony {
    pub(crate) fn new() -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        this.write("pass", PASSPHRASE, 0o600);
        this.ok("root init --trust-domain fabric.example --out root --passphrase-file pass");
        this.ok("site csr --site aws-use1 --trust-domain fabric.example --out site");
        this.ok("site sign --csr site/site-ca.csr --root root --site aws-use1 --passphrase-file pass");
        this.ok("node csr --site aws-use1 --name gw1 --trust-domain fabric.example --out node");
        this.ok(NODE_SIGN);
        this
    }

    /// An empty directory.
    pub(crate) fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// A root whose key is split 2 of 3, shares in `shares`.
    pub(crate) fn split() -> Self {
        let this = Self::empty();
        this.ok("root init --trust-domain fabric.example --out root --shares 2/3 --share-out shares");
        this
    }

    pub(crate) fn json(&self, arguments: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&format!("{arguments} -o json"))).unwrap()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Every file below, with what is in it: what a rehearsal must not change.
    pub(crate) fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.dir.path().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    dirs.push(path)
                } else {
                    files.push((path.clone(), fs::read(path).unwrap()))
                }
            }
        }
        files.sort();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-ca"));
        command.current_dir(self.dir.path()).args(arguments.split(' ')).output().unwrap()
    }

    pub(crate) fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "isthmus-ca {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn fails(&self, arguments: &str, want: &[&str]) {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "isthmus-ca {arguments}: {message}");
        for want in want {
            assert!(message.contains(want), "isthmus-ca {arguments}: {message:?} lacks {want:?}");
        }
    }

    /// Runs where no file can grow beyond 512 bytes, which is how a full disk looks; `file` must be what it complains of.
    pub(crate) fn on_a_full_disk(&self, arguments: &str, file: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_isthmus-ca")).args(arguments.split(' '));
        let output = command.current_dir(self.dir.path()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "isthmus-ca {arguments}: {message}");
        assert!(message.contains(file), "isthmus-ca {arguments}: {message}");
    }

    pub(crate) fn openssl(&self, arguments: &str) -> String {
        let output =
            Command::new("openssl").current_dir(self.dir.path()).args(arguments.split(' ')).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {text}");
        text
    }
}

pub(crate) const NODE_SIGN: &str = "node sign --csr node/node.csr --ca site/site-ca.pem --ca-key site/site-ca.key --site aws-use1 --name gw1";

/// True if OpenSSL is there; where it is required, its absence is a failure.
pub(crate) fn openssl_is_there() -> bool {
    let there = Command::new("openssl").arg("version").output().is_ok_and(|o| o.status.success());
    assert!(
        there || env::var("ISTHMUS_PEERS").as_deref() != Ok("required"),
        "openssl is missing and ISTHMUS_PEERS=required"
    );
    if !there {
        eprintln!("skipped: openssl is not installed");
    }
    there
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
