//! `csr review`: a request against the plan, before the root is opened.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use isthmus_pki::plan::Plan;

use crate::{
    files,
    report::{Form, Report},
    request::Brought,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Hold a site CA's request against the plan, and show its digest in words for the site to confirm.
    Review(Review),
}

#[derive(clap::Args)]
pub(crate) struct Review {
    /// The request.
    csr: PathBuf,
    /// The plan of the ceremony.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// The site that brought it.
    #[arg(long, value_parser = crate::name)]
    site: Option<String>,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Review(args) = command;
    let (plan, brought) = (plan(&args.plan)?, Brought::read(&args.csr)?);
    let site = plan.review(&brought.request, args.site.as_deref()).with_context(|| brought.name())?;
    let lifetime = humantime::format_duration(site.lifetime.unsigned_abs()).to_string();
    args.form.say(
        &Report::new("csr-review", format!("ok: {} is as planned", brought.name()))
            .fact("site", &site.name, "")
            .fact("trust_domain", &plan.trust_domain, "")
            .fact("key", format!("{:?}", brought.request.public_key.curve()), "(as planned)")
            .fact("lifetime", lifetime, "(the plan's; a request has no say in it)")
            .fact("subject", &brought.request.subject, "(what it calls itself; not taken over)")
            .fact("key_sha256", brought.request.public_key.sha256(), "")
            .fact("sha256", brought.sha256(), "(of the request)")
            .lines("words", brought.words()),
    )
}

/// Reads a plan.
pub(crate) fn plan(path: &std::path::Path) -> anyhow::Result<Plan> {
    Plan::parse(&files::read(path)?).with_context(|| path.display().to_string())
}
