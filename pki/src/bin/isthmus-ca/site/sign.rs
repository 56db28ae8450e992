//! `site sign`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use isthmus_pki::{
    Profile,
    authority::{self, Outlook},
    bundle,
    facts::utc,
    plan::{Refusal, claimed_site},
};
use time::{Duration, OffsetDateTime};

use super::clamp_note;
use crate::{
    files::{self, New},
    record::{self, Record},
    report::{How, Report},
    request::Brought,
    review,
    root::{self, Unlock},
};

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// The request from the site.
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// Directory that `root init` filled.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The site that this CA will serve.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// Refuse a request that this plan does not have.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Directory for site-ca.pem and root.pem, to be carried back; by default where the request is.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Renewal: put the new site-ca.pem in the place of the old one.
    #[arg(long)]
    replace: bool,
    /// How long the site CA is valid.
    #[arg(long, default_value = "90d", value_parser = crate::lifetime)]
    lifetime: Duration,
    #[command(flatten)]
    unlock: Unlock,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

pub(super) fn sign(args: &Sign) -> anyhow::Result<()> {
    let out = args.out.clone().or_else(|| args.csr.parent().map(Into::into)).unwrap_or_default();
    let file = out.join("site-ca.pem");
    files::refuse_certificates(&file, args.replace)?;
    let brought = Brought::read(&args.csr)?;
    if args.how.dry_run {
        check(args, &brought)?;
        return rehearse(args, &brought, &file);
    }
    let mut record = Record::begin(&args.record, "site sign")?;
    record.request(&brought);
    if let Err(refusal) = check(args, &brought) {
        record.refuse(&refusal, || root::open(&args.root, &args.unlock))?;
        return Err(refusal);
    }
    let root = root::open(&args.root, &args.unlock)?;
    let issued = root.issue(&profile(args), &brought.request.public_key, crate::serial()?, crate::now())?;
    record.certificate(&file, &issued)?;
    let report = report(args, &brought, &file, issued.not_after, issued.clamped);
    let (pem, trust) = (bundle::to_pem([&issued.certificate]), bundle::to_pem([root.certificate()]));
    let mut new = vec![New::certificates(&file, &pem, args.replace)];
    let trust_file = out.join("root.pem");
    // The site needs the trust bundle too, if it has none yet.
    let report = if files::refuse_existing(&[&trust_file]).is_ok() {
        new.push(New::public(&trust_file, trust.as_bytes()));
        report.fact("trust_bundle", trust_file.display(), "")
    } else {
        report
    };
    record.finish(&root, &new)?;
    args.how.say(report)
}

fn profile(args: &Sign) -> Profile {
    Profile::SiteCa { site: args.site.clone(), lifetime: args.lifetime }
}

fn check(args: &Sign, brought: &Brought) -> anyhow::Result<()> {
    let trust_domain = authority::trust_domain(&root::facts(&args.root)?)
        .with_context(|| root::certificate_path(&args.root).display().to_string())?;
    let wanted = Some(args.site.as_str());
    let claimed = claimed_site(&brought.request, &trust_domain, wanted);
    claimed.map_err(|refusal| remedy(refusal, &args.site)).with_context(|| brought.name())?;
    if let Some(path) = &args.plan {
        let plan = review::plan(path)?;
        plan.review(&brought.request, wanted).with_context(|| brought.name())?;
    }
    Ok(())
}

fn rehearse(args: &Sign, brought: &Brought, file: &Path) -> anyhow::Result<()> {
    let outlook = Outlook::new(&root::facts(&args.root)?, &profile(args), crate::now())?;
    args.how.say(report(args, brought, file, outlook.not_after, outlook.clamped))
}

fn report(
    args: &Sign,
    brought: &Brought,
    file: &Path,
    until: OffsetDateTime,
    cut: Option<Duration>,
) -> Report {
    Report::new("site-sign", format!("signed the CA of site {}", args.site))
        .fact("certificate", file.display(), "")
        .fact("valid_until", utc(until.unix_timestamp()), "")
        .fact("key_sha256", brought.request.public_key.sha256(), "(must be what the site read out)")
        .fact("request_sha256", brought.sha256(), "")
        .lines("words", brought.words())
        .fact("subject", &brought.request.subject, "(what the request called itself)")
        .warn(clamp_note(cut))
}

/// That of another site has been mixed up with the one that was meant.
fn remedy(refusal: Refusal, site: &str) -> anyhow::Error {
    match refusal {
        Refusal::OtherSite { says, .. } => anyhow::anyhow!(
            "this is the request of site {says:?}, but --site says {site:?}; nothing was signed: take the request of site {site}, or say --site {says}"
        ),
        other => other.into(),
    }
}
