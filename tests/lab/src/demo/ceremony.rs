//! Step 2: the ceremony, as a person would do it with `isthmus-ca`.
//!
//! The root's key is encrypted with a random key, and that is split among three custodians: any two of them open the root. In earnest
//! the root's directory is on a machine without a network, each share with its custodian, each site's directory on that site's issuer,
//! and requests and certificates travel between them on a stick. Here they are directories side by side, in a sandbox that has no
//! network either.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use isthmus_lab::bins::Bins;

use super::{
    plan::{SITES, Site, TRUST_DOMAIN},
    progress::Outcome,
};

/// How many custodians must come together, of how many.
const QUORUM: &str = "2/3";

/// A PKI in a directory: `root/`, `custodians/`, and for each site `SITE/` with `SITE/NODE/` below it.
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
    pki.verify_transcript()?;
    Ok(pki)
}

impl Pki {
    /// A root whose key two of three custodians open.
    pub(super) fn root(directory: &Path, bins: &Bins) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let mut pki = Self {
            directory: directory.to_owned(),
            program: bins.isthmus_ca.clone(),
            transcript: String::new(),
        };
        let (out, custodians) = (pki.directory.join("root"), pki.directory.join("custodians"));
        pki.ca(
            &["root", "init", "--trust-domain", TRUST_DOMAIN, "--shares", QUORUM],
            &[("--out", &out), ("--share-out", &custodians), ("--transcript", &pki.record())],
        )?;
        Ok(pki)
    }

    /// A site CA: the key is made at the site and stays there, the request goes to the root, the certificate comes back.
    pub(super) fn site(&mut self, site: &Site) -> Result<()> {
        let (at_site, root) = (self.site_directory(site), self.directory.join("root"));
        let csr = at_site.join("site-ca.csr");
        self.ca(
            &["site", "csr", "--site", site.name, "--trust-domain", TRUST_DOMAIN],
            &[("--out", &at_site)],
        )?;
        let (first, second, record) = (self.share(1), self.share(3), self.record());
        let files: [(&str, &Path); 5] = [
            ("--csr", &csr),
            ("--root", &root),
            ("--share", &first),
            ("--share", &second),
            ("--transcript", &record),
        ];
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

    /// What an auditor does.
    fn verify_transcript(&mut self) -> Result<()> {
        let (record, root) = (self.record(), self.directory.join("root/root.pem"));
        let record = record.to_str().context("the directory's name is not UTF-8")?;
        self.ca(&["transcript", "verify", record], &[("--root", &root)])
    }

    /// Where a site keeps its CA and the trust bundle.
    pub(super) fn site_directory(&self, site: &Site) -> PathBuf {
        self.directory.join(site.name)
    }

    /// Where a node keeps its certificate.
    pub(super) fn node_directory(&self, site: &Site, name: &str) -> PathBuf {
        self.site_directory(site).join(name)
    }

    fn share(&self, index: u8) -> PathBuf {
        self.directory.join(format!("custodians/share-{index}.txt"))
    }

    /// The signed transcript of what was done with the root.
    fn record(&self) -> PathBuf {
        self.directory.join("transcript.jsonl")
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
        let custodians = self.directory.join("custodians");
        let made = format!("{} site CAs and {nodes} node SVIDs under one offline root", SITES.len());
        // The tool's headlines; its indented lines name every file and digest.
        let details = self
            .transcript
            .lines()
            .filter(|line| !line.starts_with(' '))
            .map(|line| format!("  {line}\n"))
            .collect();
        let split =
            format!("{made}, whose key 2 of 3 custodians open (their shares: {})", custodians.display());
        Outcome { summary: split, details }
    }
}
