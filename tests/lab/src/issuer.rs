//! One issuer in a namespace of its own, whose files and entries change while clients watch.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use time::OffsetDateTime;

use crate::{
    bins::Bins,
    netns::Netns,
    node::Node,
    pki::{Pki, issuer_config},
};

/// The identity that [`Issuer::start`] is usually told to give to its clients.
pub const API: &str = "spiffe://test.example/ns/payments/sa/api";
/// Nobody's.
pub const OTHER: &str = "spiffe://test.example/ns/payments/sa/other";

const SITE: &str = "s1";
const NAME: &str = "gw1";
const LIMIT: Duration = Duration::from_secs(20);

/// A running daemon that issues, and what it issues from.
///
/// Each change is in force when its method returns; clients hear of it on their own.
pub struct Issuer {
    node: Node,
    pki: Pki,
    /// Its root is trusted beside that of `pki`.
    other: Option<Pki>,
    entries: String,
    files: TempDir,
}

/// A registration entry.
pub fn entry(path: &str, selector: &str) -> String {
    format!("[[workload_api.entry]]\nspiffe_id = {path:?}\nselectors = [{selector:?}]\n")
}

impl Issuer {
    /// Starts one with these registration entries, and waits until it is ready.
    ///
    /// # Errors
    /// When the namespace or a file can't be made, or the daemon does not become ready.
    pub fn start(entries: &str, bins: &Bins) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let node = Node::new(NAME, &Netns::create("issuer")?, files.path(), bins)?;
        let pki = Pki::new(SITE, OffsetDateTime::now_utc())?;
        let mut this = Self { node, pki, other: None, entries: entries.to_owned(), files };
        this.write()?;
        this.node.start(&this.config())?;
        this.node.wait_ready(LIMIT)?;
        Ok(this)
    }

    /// The daemon.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Where it runs.
    pub fn netns(&self) -> &Netns {
        self.node.netns()
    }

    /// Where its Workload API is.
    pub fn socket(&self) -> PathBuf {
        self.node.workload_socket()
    }

    /// A directory for files of its clients.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Puts other entries in force.
    ///
    /// # Errors
    /// When the daemon refuses them, as for all that follow.
    pub fn reload(&mut self, entries: &str) -> Result<()> {
        entries.clone_into(&mut self.entries);
        self.apply()
    }

    /// Another site CA under the same root.
    ///
    /// # Errors
    /// As [`Issuer::reload`], and when a file can't be written.
    pub fn renew_site_ca(&mut self) -> Result<()> {
        self.pki.renew_site(OffsetDateTime::now_utc())?;
        self.write()?;
        self.apply()
    }

    /// One more root that is trusted.
    ///
    /// # Errors
    /// As [`Issuer::renew_site_ca`].
    pub fn add_root(&mut self) -> Result<()> {
        self.other = Some(Pki::new(SITE, OffsetDateTime::now_utc())?);
        self.write()?;
        self.apply()
    }

    /// Issues under the root that was added; the first stays trusted.
    ///
    /// # Errors
    /// As [`Issuer::renew_site_ca`], and when no root was added.
    pub fn switch_root(&mut self) -> Result<()> {
        let next = self.other.take().context("no root was added that could be switched to")?;
        self.other = Some(std::mem::replace(&mut self.pki, next));
        self.write()?;
        self.apply()
    }

    /// Trusts only the root that it issues under.
    ///
    /// # Errors
    /// As [`Issuer::renew_site_ca`].
    pub fn remove_other_root(&mut self) -> Result<()> {
        self.other = None;
        self.write()?;
        self.apply()
    }

    fn config(&self) -> String {
        issuer_config(&self.node, SITE) + &self.entries
    }

    fn write(&self) -> Result<()> {
        self.pki.write_all(self.node.dir(), NAME)?;
        if let Some(other) = &self.other {
            fs::write(self.node.dir().join("root.pem"), self.pki.root_pem() + &other.root_pem())?;
        }
        Ok(())
    }

    fn apply(&mut self) -> Result<()> {
        let config = self.config();
        let (_, error) = self.node.reload(&config, LIMIT)?;
        ensure!(error.is_empty(), "the daemon refuses its new configuration: {error}");
        Ok(())
    }
}
