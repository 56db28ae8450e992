//! Step 2: the ceremony, as a person would do it with `isthmus-ca`.
//!
//! In earnest the root's directory is on a machine without a network, each site's on that site's issuer, and requests and
//! certificates travel between them on a stick. Here they are directories side by side, in a sandbox that has no network either.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use isthmus_lab::bins::Bins;

use super::{
    plan::{SITES, Site, TRUST_DOMAIN},
    progress::Outcome,
};

/// A PKI in a directory: `root/`, and for each site `SITE/` with `SITE/NODE/` below it.
pub(super) struct Pki {
    directory: PathBuf,
    program: PathBuf,
    /// What the tool said, in order.
    transcript: String,
}

/// Makes root, site CAs and node certificates.
pub(super) fn run(directory: &Path, bins: &Bins) -> Result<Pki> {
    let mut pki = Pki::root(&directory.join("pki"), bins)?;
    for site in &SITES {
        pki.site(site)?;
        for gateway in site.gateways {
            pki.node(site, gateway.name)?;
        }
    }
    Ok(pki)
}

impl Pki {
    /// An encrypted root.
    pub(super) fn root(directory: &Path, bins: &Bins) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let mut pki = Self {
            directory: directory.to_owned(),
            program: bins.isthmus_ca.clone(),
            transcript: String::new(),
        };
        let mut passphrase =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(pki.passphrase())?;
        writeln!(passphrase, "{}", STANDARD.encode(rand::random::<[u8; 24]>()))?;
        let (out, passphrase) = (pki.directory.join("root"), pki.passphrase());
        pki.ca(
            &["root", "init", "--trust-domain", TRUST_DOMAIN],
            &[("--out", &out), ("--passphrase-file", &passphrase)],
        )?;
        Ok(pki)
    }

    /// A site CA: the key is made at the site and stays there, the request goes to the root, the certificate comes back.
    pub(super) fn site(&mut self, site: &Site) -> Result<()> {
        let (at_site, root, passphrase) =
            (self.site_directory(site), self.directory.join("root"), self.passphrase());
        let csr = at_site.join("site-ca.csr");
        self.ca(
            &["site", "csr", "--site", site.name, "--trust-domain", TRUST_DOMAIN],
            &[("--out", &at_site)],
        )?;
        let files: [(&str, &Path); 3] =
            [("--csr", &csr), ("--root", &root), ("--passphrase-file", &passphrase)];
        self.ca(&["site", "sign", "--site", site.name], &files)
    }

    /// A node's first SVID, from its site's CA; it must pass the same check that nodes make.
    fn node(&mut self, site: &Site, name: &str) -> Result<()> {
        let (at_site, at_node) = (self.site_directory(site), self.node_directory(site, name));
        let (csr, certificate, key) =
            (at_node.join("node.csr"), at_site.join("site-ca.pem"), at_site.join("site-ca.key"));
        let names = ["--site", site.name, "--name", name];
        let of = |verb: [&'static str; 2], more: &[&'static str]| [&verb[..], &names[..], more].concat();
        self.ca(&of(["node", "csr"], &["--trust-domain", TRUST_DOMAIN]), &[("--out", &at_node)])?;
        let files: [(&str, &Path); 3] = [("--csr", &csr), ("--ca", &certificate), ("--ca-key", &key)];
        self.ca(&of(["node", "sign"], &[]), &files)?;
        let id = format!("spiffe://{TRUST_DOMAIN}/site/{}/node/{name}", site.name);
        let (bundle, chain, key) =
            (at_site.join("root.pem"), at_node.join("node.pem"), at_node.join("node.key"));
        self.ca(&["verify", "--id", &id], &[("--bundle", &bundle), ("--chain", &chain), ("--key", &key)])
    }

    /// Where a site keeps its CA and the trust bundle.
    pub(super) fn site_directory(&self, site: &Site) -> PathBuf {
        self.directory.join(site.name)
    }

    /// Where a node keeps its certificate.
    pub(super) fn node_directory(&self, site: &Site, name: &str) -> PathBuf {
        self.site_directory(site).join(name)
    }

    fn passphrase(&self) -> PathBuf {
        self.directory.join("passphrase")
    }

    fn ca(&mut self, words: &[&str], files: &[(&str, &Path)]) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null());
        for (flag, path) in files {
            command.arg(flag).arg(path);
        }
        let output = command.output().with_context(|| format!("running {}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("isthmus-ca {}: {}: {}", words.join(" "), output.status, why.trim());
        }
        self.transcript.push_str(&said);
        Ok(())
    }

    /// What was made, and where the root key is.
    pub(super) fn outcome(&self) -> Outcome {
        let nodes: usize = SITES.iter().map(|site| site.gateways.len()).sum();
        let key = self.directory.join("root/root.key");
        let made = format!("{} site CAs and {nodes} node SVIDs under one offline root", SITES.len());
        // The tool's headlines; its indented lines name every file and digest.
        let details = self
            .transcript
            .lines()
            .filter(|line| !line.starts_with(' '))
            .map(|line| format!("  {line}\n"))
            .collect();
        Outcome { summary: format!("{made}, whose encrypted key is {}", key.display()), details }
    }
}
