//! One issuer, and what foreign programs in its namespace get from it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    pki::{Pki, issuer_config},
};
use time::OffsetDateTime;

use crate::program::{Language, Program};

const LIMIT: Duration = Duration::from_secs(20);
/// The one identity.
pub(crate) const API: &str = "spiffe://test.example/ns/payments/sa/api";

pub(crate) struct Rig {
    node: Node,
    pki: Pki,
    entries: String,
    _files: tempfile::TempDir,
}

pub(crate) fn entry(path: &str, selector: &str) -> String {
    format!("[[workload_api.entry]]\nspiffe_id = {path:?}\nselectors = [{selector:?}]\n")
}

impl Rig {
    pub(crate) fn start(bins: &Bins) -> Self {
        let files = tempfile::tempdir().unwrap();
        let netns = Netns::create("issuer").unwrap();
        let mut node = Node::new("gw1", &netns, files.path(), bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(node.dir(), "gw1").unwrap();
        let entries = entry("/ns/payments/sa/api", "unix:uid:0");
        node.start(&(issuer_config(&node, "s1") + &entries)).unwrap();
        node.wait_ready(LIMIT).unwrap();
        Self { node, pki, entries, _files: files }
    }

    pub(crate) fn socket(&self) -> String {
        self.node.workload_socket().display().to_string()
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.node.workload_socket()
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.node.netns()
    }

    fn command(&self, language: Language, arguments: &[&str]) -> Command {
        let (program, first) = language.program();
        let mut command = self.node.netns().command(program).unwrap();
        command
            .args(first)
            .args(arguments)
            .env("SPIFFE_ENDPOINT_SOCKET", format!("unix://{}", self.socket()));
        command
    }

    /// Starts a program that tells what it sees.
    pub(crate) fn program(&self, language: Language, arguments: &[&str]) -> Program {
        Program::spawn(self.command(language, arguments))
    }

    fn run(&self, language: Language, arguments: &[&str]) -> (Output, String) {
        let output = self.command(language, arguments).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output, said)
    }

    /// What a program says that succeeds.
    pub(crate) fn output(&self, language: Language, arguments: &[&str]) -> String {
        let (output, said) = self.run(language, arguments);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a program says that fails.
    pub(crate) fn refusal(&self, language: Language, arguments: &[&str]) -> String {
        let (output, said) = self.run(language, arguments);
        assert!(!output.status.success(), "{said}");
        said
    }

    /// Other entries.
    pub(crate) fn reload(&mut self, entries: &str) {
        entries.clone_into(&mut self.entries);
        self.apply();
    }

    fn apply(&mut self) {
        let config = issuer_config(&self.node, "s1") + &self.entries;
        let (_, error) = self.node.reload(&config, LIMIT).unwrap();
        assert_eq!(error, "");
    }

    /// Another site CA under the same root.
    pub(crate) fn renew_site_ca(&mut self) {
        self.pki.renew_site(OffsetDateTime::now_utc()).unwrap();
        self.pki.write_all(self.node.dir(), "gw1").unwrap();
        self.apply();
    }

    /// One more root.
    pub(crate) fn add_root(&mut self) {
        let other = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        let roots = self.pki.root_pem() + &other.root_pem();
        fs::write(self.node.dir().join("root.pem"), roots).unwrap();
        self.apply();
    }
}
