//! `isthmus-ca`: the ceremony that makes a fabric's root, its site CAs and its first node certificates. Works without a network.

#![forbid(unsafe_code)]

mod charter;
mod crl;
mod export;
mod files;
mod generate;
mod inspect;
mod node;
mod record;
mod report;
mod request;
mod review;
mod root;
mod say;
mod secret;
mod share;
mod site;
mod sitting;
mod token;
mod transcript;
mod verify;
mod verify_as;

use std::{process::ExitCode, time::SystemTime};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use isthmus_pki::{Serial, id};
use say::{note, say, say_exactly, say_json};
use time::{Duration, OffsetDateTime};

#[derive(Parser)]
#[command(
    name = "isthmus-ca",
    version,
    about = "Offline ceremony: root, site CAs and node certificates of an Isthmus fabric"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The offline root: make it once, on a machine without a network.
    #[command(subcommand)]
    Root(root::Command),
    /// A site's CA: request it at the site, sign it with the root.
    #[command(subcommand)]
    Site(site::Command),
    /// A node's certificate: request it at the node, sign it with the site CA.
    #[command(subcommand)]
    Node(node::Command),
    /// A site CA for other people's programs.
    #[command(subcommand)]
    Export(export::Command),
    /// A site CA's request, held against the plan of the ceremony.
    #[command(subcommand)]
    Csr(review::Command),
    /// Sign everything that a plan names in one go.
    #[command(subcommand)]
    Sitting(sitting::Command),
    /// Revocation lists of the root.
    #[command(subcommand)]
    Crl(crl::Command),
    /// Shares of the key that opens the root.
    #[command(subcommand)]
    Share(share::Command),
    /// The signed transcript of a ceremony.
    #[command(subcommand)]
    Transcript(transcript::Command),
    /// The fabric's charter: whom it trusts, and which CA may issue what.
    #[command(subcommand)]
    Charter(charter::Command),
    /// Show what is in a PEM or DER file, and why it would be refused.
    Inspect(inspect::Args),
    /// Verify a chain the way every Isthmus node does, or as others will.
    Verify(verify::Args),
    /// Write shell completions and man pages.
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(e) => {
            say::say_error(&e);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Root(command) => root::run(command)?,
        Command::Site(command) => site::run(&command)?,
        Command::Node(command) => node::run(&command)?,
        Command::Csr(command) => review::run(&command)?,
        Command::Sitting(command) => sitting::run(&command)?,
        Command::Crl(command) => crl::run(&command)?,
        Command::Share(command) => share::run(&command)?,
        Command::Transcript(command) => transcript::run(&command)?,
        Command::Charter(command) => charter::run(command)?,
        Command::Inspect(args) => return inspect::run(&args),
        Command::Export(command) => export::run(&command)?,
        Command::Verify(args) => return verify::run(&args),
        Command::Generate(args) => generate::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// This machine's clock, the only place that reads it.
fn now() -> OffsetDateTime {
    SystemTime::now().into()
}

/// Fresh random bytes from the cryptographic library.
fn random() -> anyhow::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// Fills a buffer with them.
fn fill(bytes: &mut [u8]) -> anyhow::Result<()> {
    aws_lc_rs::rand::fill(bytes).ok().context("no random bytes from the operating system")
}

fn serial() -> anyhow::Result<Serial> {
    random().map(Serial::from_random)
}

/// Command-line value parser: "90d", "24h".
fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime =
        humantime::parse_duration(text).map_err(|e| format!("{e}; write it like \"90d\" or \"24h\""))?;
    Duration::try_from(lifetime).map_err(|_| "too long".to_owned())
}

/// Command-line value parser: a lifetime of more than nothing.
fn period(text: &str) -> Result<Duration, String> {
    let period = lifetime(text)?;
    if period.is_zero() { Err("must be more than nothing".to_owned()) } else { Ok(period) }
}

/// Command-line value parser: the name of a site or a node, as `[node]` in the daemon's configuration takes it.
fn name(text: &str) -> Result<String, String> {
    let rule = "use 1 to 63 of a-z, 0-9 and -, not at the ends, as isthmusd does for [node] name and site";
    id::is_name(text).then(|| text.to_owned()).ok_or_else(|| rule.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_those_that_the_daemon_takes() {
        for good in ["a", "0", "gw1", "aws-use1", &"x".repeat(63)] {
            assert_eq!(super::name(good).as_deref(), Ok(good));
        }
        for bad in ["", "Gw1", "a.b", "a_b", "a b", "-a", "a-", "ü", "a/b", &"x".repeat(64)] {
            assert!(super::name(bad).is_err(), "{bad:?}");
        }
    }
}
