//! `sitting root` and `sitting site`: one command that signs everything a plan names, or nothing.

mod collect;
mod root;
mod site;

use std::path::PathBuf;

use clap::Subcommand;

use crate::{
    node::CaKey,
    record,
    report::{How, Report},
    root::Unlock,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// At the root: sign the site CAs of now and of later, and the revocation lists, as the plan says.
    Root(Root),
    /// Where a site CA is: sign the certificates of the site's nodes, as the plan says.
    Site(Site),
}

#[derive(clap::Args)]
pub(crate) struct Root {
    /// The plan.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Directory with the requests, in it or in directories below it; each must be in the plan.
    #[arg(long, value_name = "DIR")]
    requests: PathBuf,
    /// Directory that `root init` filled.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Directory for SITE/site-ca.pem, SITE/root.pem and crl.pem; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    unlock: Unlock,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

#[derive(clap::Args)]
pub(crate) struct Site {
    /// The plan.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// The site.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// Directory with the nodes' requests, in it or in directories below it; each must be in the plan.
    #[arg(long, value_name = "DIR")]
    requests: PathBuf,
    /// The site CA's certificate.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    #[command(flatten)]
    key: CaKey,
    /// Directory for NODE/node.pem; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Root(args) => root::run(args),
        Command::Site(args) => site::run(args),
    }
}

/// The report on a sitting of this plan.
fn report(plan: &std::path::Path, parts: Vec<Report>) -> Report {
    Report::new("sitting", format!("signed all that {} names", plan.display())).parts(parts)
}
