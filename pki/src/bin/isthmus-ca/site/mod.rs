//! `site csr` at the site, `site sign` at the root.

mod csr;
mod sign;

use std::path::{Path, PathBuf};

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// At the site: make the site CA's key, which stays there, and a request for its certificate.
    Csr(csr::Csr),
    /// At the root: sign a site's request. Only the public key is taken from it.
    Sign(sign::Sign),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Csr(args) => csr::request(args),
        Command::Sign(args) => sign::sign(args),
    }
}

/// site-ca.pem for the CA of now, site-ca-2.pem and so on for those of later.
pub(crate) fn file(dir: &Path, index: usize, extension: &str) -> PathBuf {
    match index {
        0 => dir.join(format!("site-ca.{extension}")),
        _ => dir.join(format!("site-ca-{}.{extension}", index + 1)),
    }
}

/// Words for a lifetime that was cut.
pub(crate) fn clamp_note(cut: Option<time::Duration>) -> Option<String> {
    let cut = humantime::format_duration(cut?.unsigned_abs());
    Some(format!("{cut} shorter than asked for, so that it does not outlive its issuer"))
}
