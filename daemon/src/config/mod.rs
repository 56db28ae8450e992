//! The configuration file: read whole, checked whole, applied whole or not at all.
//!
//! Each section's type and its checks live in the subsystem it configures; this file holds the sections together and checks what
//! no single section can know.

mod bfd;
mod check;
#[cfg(test)]
mod tests;

use std::{
    io::{self, Read as _},
    ops::Range,
    path::{Path, PathBuf},
};

use isthmus_pki::id::is_name;
use miette::Diagnostic;
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

pub use bfd::Bfd;
pub(crate) use bfd::RawBfd;
pub use check::Problem;
pub(crate) use check::{Checker, likely, open};

use crate::{api, bgp, fib, identity, metrics, tunnel};

/// Where the file is looked for by default.
pub const DEFAULT_PATH: &str = "/etc/isthmus/isthmusd.toml";
/// Ten thousand peers take two million bytes.
const SIZE_LIMIT: u64 = 16 * 1024 * 1024;
/// Problems that are told at once: who has more has one that repeats.
const PROBLEM_LIMIT: usize = 20;
/// Where state is kept by default.
const DEFAULT_STATE_DIR: &str = "/var/lib/isthmus";

/// A validated configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// `[node]`
    pub node: Node,
    /// `[tunnel]`
    pub tunnel: Option<tunnel::Config>,
    /// `[bgp]`
    pub bgp: Option<bgp::Config>,
    /// `[fib]`
    pub fib: Option<fib::Config>,
    /// `[identity]`
    pub identity: Option<identity::Config>,
    /// `[issuer]`
    pub issuer: Option<identity::IssuerConfig>,
    /// `[workload_api]`
    pub workload_api: Option<identity::WorkloadApiConfig>,
    /// `[federation]`
    pub federation: Option<identity::FederationConfig>,
    /// `[api]`; on by default.
    pub api: api::Config,
    /// `[metrics]`
    pub metrics: Option<metrics::Config>,
    /// What works and is hardly meant so, each on one line: `FILE:LINE: what (remedy)`.
    pub warnings: Vec<String>,
}

/// A validated `[node]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of this node, unique within its site.
    pub name: String,
    /// The site this node belongs to; `None` where no section needs it.
    pub site: Option<String>,
    /// Directory for keys and caches.
    pub state_dir: PathBuf,
}

/// Why a configuration file was refused. Nothing of it has been applied.
#[derive(Debug, Error, Diagnostic)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    #[diagnostic(help("give --config a text file that the daemon's user may read"))]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The file says something that cannot be done.
    #[error("{path}: {} in the configuration", count(problems.len(), *more))]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong, in the order of the sections.
        #[related]
        problems: Vec<Problem>,
        /// How many there are beside those listed.
        more: usize,
    },
}

impl Error {
    /// Everything that is wrong on one line, for the log.
    pub fn one_line(&self) -> String {
        match self {
            Self::Read { .. } => self.to_string(),
            Self::Invalid { problems, .. } => {
                problems.iter().map(Problem::one_line).collect::<Vec<_>>().join("; ")
            }
        }
    }
}

fn count(problems: usize, more: usize) -> String {
    match (problems, more) {
        (1, 0) => "1 problem".into(),
        (_, 0) => format!("{problems} problems"),
        _ => format!("{} problems, the first {problems} of them shown,", problems + more),
    }
}

/// Reads and checks a file, with the key files it names.
pub fn load(path: &Path) -> Result<Config, Error> {
    let text = read(path).map_err(|source| Error::Read { path: path.display().to_string(), source })?;
    parse(path, &text)
}

/// A regular file of a sane size; anything else (a FIFO, a device, a directory) could hang the daemon or fill its memory.
fn read(path: &Path) -> io::Result<String> {
    let file = open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if meta.len() > SIZE_LIMIT {
        return Err(io::Error::other(format!("it is larger than {SIZE_LIMIT} bytes")));
    }
    let mut text = String::new();
    file.take(SIZE_LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

/// Checks a file's text; `path` is what errors name and what relative paths in it are relative to.
pub fn parse(path: &Path, text: &str) -> Result<Config, Error> {
    let mut checker = Checker::new(path, text);
    let config = match toml::from_str::<Raw>(text) {
        Ok(raw) => raw.check(&mut checker, path),
        Err(error) => {
            let (message, help) = explain(error.message());
            checker.problem(error.span().unwrap_or(0..0), message, help);
            None
        }
    };
    let (mut problems, warnings) = checker.finish();
    match config {
        Some(config) if problems.is_empty() => {
            let warnings = warnings.iter().take(PROBLEM_LIMIT).map(Problem::one_line).collect();
            Ok(Config { warnings, ..config })
        }
        _ => {
            let more = problems.len().saturating_sub(PROBLEM_LIMIT);
            problems.truncate(PROBLEM_LIMIT);
            Err(Error::Invalid { path: path.display().to_string(), problems, more })
        }
    }
}

/// The parser's message with a remedy: for an unknown key, the known one that looks most like it.
fn explain(message: &str) -> (String, String) {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let Some(["unknown field", _]) = message.split_once(" `").map(|(head, tail)| [head, tail]) {
        let (unknown, known) = (quoted[0], &quoted[1..]);
        let help = match likely(unknown, known.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        return (format!("unknown key `{unknown}`"), help);
    }
    (message.to_owned(), "docs/reference/config.md shows the form of each key".to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    node: Option<RawNode>,
    tunnel: Option<tunnel::RawConfig>,
    bgp: Option<bgp::RawConfig>,
    fib: Option<Spanned<fib::RawConfig>>,
    identity: Option<Spanned<identity::RawConfig>>,
    issuer: Option<Spanned<identity::RawIssuerConfig>>,
    workload_api: Option<Spanned<identity::RawWorkloadApiConfig>>,
    federation: Option<Spanned<identity::RawFederationConfig>>,
    api: Option<api::RawConfig>,
    metrics: Option<metrics::RawConfig>,
    fabric: Option<Spanned<identity::RawFabricConfig>>,
    dns: Option<Spanned<toml::Table>>,
    audit: Option<Spanned<identity::RawAuditConfig>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    name: Option<Spanned<String>>,
    site: Option<Spanned<String>>,
    state_dir: Option<PathBuf>,
}

impl Raw {
    /// `None` only if a problem was recorded; a section that fails does not keep the others from being checked.
    fn check(self, c: &mut Checker<'_>, path: &Path) -> Option<Config> {
        unsupported(c, self.dns.as_ref().map(Spanned::span), "[dns]");
        check_dependencies(&self, c);
        let node = self.node.unwrap_or_default().check(c);
        let state_dir = node.as_ref().map_or(DEFAULT_STATE_DIR.into(), |node| node.state_dir.clone());
        let tunnel = self.tunnel.map(|raw| raw.check(c, &state_dir));
        let overlay =
            tunnel.as_ref().and_then(Option::as_ref).map(|t| t.addresses.clone()).unwrap_or_default();
        let bgp = self.bgp.map(|raw| raw.check(c, &overlay));
        let interface = tunnel.as_ref().and_then(Option::as_ref).map(|t| t.interface.clone());
        let stale_time = bgp.as_ref().and_then(Option::as_ref).map(|bgp| bgp.graceful_restart);
        let fib = self.fib.map(|raw| raw.into_inner().check(c, interface, stale_time.unwrap_or_default()));
        let is_issuer = self.issuer.is_some();
        let fabric = self.fabric.map(Spanned::into_inner).unwrap_or_default().check(c, &state_dir);
        let identity = match (self.identity, fabric) {
            (Some(raw), Some(fabric)) => Some(raw.into_inner().check(c, &state_dir, is_issuer, fabric)),
            // A problem of [fabric] was recorded.
            (Some(_), None) => Some(None),
            (None, _) => None,
        };
        let audit = self.audit.map(|raw| raw.into_inner().check(c, &state_dir));
        let issuer = self
            .issuer
            .map(|raw| raw.into_inner().check(c, &state_dir, audit.as_ref().and_then(Option::clone)));
        let workload_api = self.workload_api.map(|raw| raw.into_inner().check(c));
        let federation = self.federation.map(|raw| raw.into_inner().check(c, &state_dir));
        let metrics = self.metrics.map(|raw| raw.check(c));
        Some(Config {
            path: path.to_owned(),
            node: node?,
            tunnel: all_or_none(tunnel)?,
            bgp: all_or_none(bgp)?,
            fib: all_or_none(fib)?,
            identity: all_or_none(identity)?,
            issuer: all_or_none(audit).and(all_or_none(issuer))?,
            workload_api: all_or_none(workload_api)?,
            federation: all_or_none(federation)?,
            api: self.api.unwrap_or_default().check(c),
            metrics: all_or_none(metrics)?,
            warnings: Vec::new(),
        })
    }
}

/// A section that is absent is fine (`Some(None)`); one that failed its checks is not (`None`).
#[expect(clippy::option_option, reason = "the two levels are two different facts")]
fn all_or_none<T>(section: Option<Option<T>>) -> Option<Option<T>> {
    match section {
        None => Some(None),
        Some(checked) => checked.map(Some),
    }
}

/// Sections that are useless, or dangerous, without another one.
fn check_dependencies(raw: &Raw, c: &mut Checker<'_>) {
    let asks = raw.identity.as_ref().is_some_and(|identity| identity.get_ref().has_issuers());
    if let Some(section) = raw.workload_api.as_ref().filter(|_| raw.issuer.is_none() && !asks) {
        c.problem(
            section.span(),
            "[workload_api] has nobody to issue its SVIDs",
            "add [issuer] with this site's CA, or issuers to [identity]: nodes that hold it",
        );
    }
    if let Some(section) = raw.identity.as_ref()
        && raw.node.as_ref().is_none_or(|node| node.site.is_none())
    {
        c.problem(
            section.span(),
            "[identity] cannot be checked: this node's site is not known",
            "add site to [node], as the certificate's SPIFFE ID names it",
        );
    }
    if let Some(section) = raw.federation.as_ref().filter(|_| raw.identity.is_none()) {
        c.problem(
            section.span(),
            "[federation] does not know which trust domain is ours",
            "add [identity] with trust_bundle, svid and key",
        );
    }
    if let Some(section) = raw.audit.as_ref().filter(|_| raw.issuer.is_none()) {
        c.problem(
            section.span(),
            "[audit] has nothing to write: this node issues nothing",
            "add [issuer] with this site's CA, or remove the section",
        );
    }
    if let Some(section) = raw.fabric.as_ref().filter(|_| raw.identity.is_none()) {
        c.problem(
            section.span(),
            "[fabric] has no use without an identity",
            "add [identity] with trust_bundle, svid and key: its roots are what the charter is checked against",
        );
    }
    if let Some(section) = raw.issuer.as_ref().filter(|_| raw.identity.is_none()) {
        c.problem(
            section.span(),
            "[issuer] does not know which root its CA hangs on",
            "add [identity] with trust_bundle",
        );
    }
}

/// A key that the design has and this version does not serve: said aloud, since ignoring it would look like serving it.
pub(crate) fn unsupported(c: &mut Checker<'_>, span: Option<Range<usize>>, what: &str) {
    if let Some(span) = span {
        c.problem(
            span,
            format!("{what} is not served by this version"),
            "remove it, or run a version that has it",
        );
    }
}

impl RawNode {
    fn check(self, c: &mut Checker<'_>) -> Option<Node> {
        let name = match self.name {
            Some(raw) => check_label(c, &raw, "node name")?,
            None => host_name(),
        };
        let site = match self.site {
            Some(raw) => Some(check_label(c, &raw, "site name")?),
            None => None,
        };
        let state_dir = self.state_dir.map_or(DEFAULT_STATE_DIR.into(), |dir| c.path(&dir));
        Some(Node { name, site, state_dir })
    }
}

/// The first label of the host's name in lower case, or "node" if that is no label.
fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let label = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if is_name(&label) { label } else { "node".into() }
}

fn check_label(c: &mut Checker<'_>, raw: &Spanned<String>, what: &str) -> Option<String> {
    let name = raw.get_ref();
    let good = is_name(name);
    let message = format!("\"{}\" cannot be a {what}", name.escape_debug());
    c.require(good, raw, &message, "use 1 to 63 of a-z, 0-9 and -, not at the ends: \"aws-use1\"")
        .then(|| name.clone())
}

/// Names go into metrics, logs and commands: no blanks, no control characters.
pub(crate) fn check_name(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let name = raw.get_ref();
    let good = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let message = format!("\"{}\" cannot be a name", name.escape_debug());
    c.require(good, raw, &message, "use 1 to 64 letters, digits, '-', '_' and '.'").then(|| name.clone())
}
