//! `sitting root`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use isthmus_pki::{
    Authority, Profile,
    authority::Outlook,
    bundle,
    facts::utc,
    plan::{Plan, Site},
};
use time::OffsetDateTime;

use super::{Root, collect, report};
use crate::{
    crl,
    files::{self, New},
    record::Record,
    report::Report,
    request::Brought,
    review, root as root_key,
    site::{clamp_note, file},
};

/// A request that will be signed.
struct Item<'a> {
    brought: &'a Brought,
    profile: Profile,
    starts: OffsetDateTime,
    path: PathBuf,
}

pub(super) fn run(args: &Root) -> anyhow::Result<()> {
    let (plan, now) = (review::plan(&args.plan)?, crate::now());
    let requests = collect::requests(&args.requests)?;
    let mut record =
        if args.how.dry_run { Record::none() } else { Record::begin(&args.record, "sitting root")? };
    requests.iter().for_each(|brought| record.request(brought));
    let items = match review_all(&plan, &requests, &args.out, now) {
        Ok(items) => items,
        Err(refusal) => {
            record.refuse(&refusal, || root_key::open(&args.root, &args.unlock))?;
            return Err(refusal);
        }
    };
    let lists = refuse_existing(args, &plan, &items)?;
    let facts = root_key::facts(&args.root)?;
    let trust_domain = isthmus_pki::authority::trust_domain(&facts)?;
    if trust_domain != plan.trust_domain {
        bail!("{}: is a plan for {}, the root is of {trust_domain}", args.plan.display(), plan.trust_domain);
    }
    let mut parts = Vec::new();
    for item in &items {
        let outlook =
            Outlook::new(&facts, &item.profile, item.starts).with_context(|| item.brought.name())?;
        parts.push(describe(item, &outlook));
    }
    parts.extend(plan.crl.as_ref().map(|planned| crl::report(planned, &lists, now)));
    if !args.how.dry_run {
        sign(args, &plan, &items, &lists, now, record)?;
    }
    args.how.say(report(&args.plan, parts))
}

/// Every request has its place in the plan, every place its request; all that is wrong is told at once.
fn review_all<'a>(
    plan: &Plan,
    requests: &'a [Brought],
    out: &Path,
    now: OffsetDateTime,
) -> anyhow::Result<Vec<Item<'a>>> {
    let (mut items, mut refusals) = (Vec::new(), Vec::new());
    let mut of_site = vec![Vec::new(); plan.sites.len()];
    for brought in requests {
        let from = collect::directory(brought).filter(|name| plan.site(name).is_some());
        match plan.review(&brought.request, from) {
            Ok(site) => of_site[position(plan, site)].push(brought),
            Err(refusal) => refusals.push(format!("{}: {refusal}", brought.name())),
        }
    }
    for (site, brought) in plan.sites.iter().zip(of_site) {
        if brought.len() != site.requests {
            refusals.push(format!(
                "site {}: {} requests are here, the plan has {}",
                site.name,
                brought.len(),
                site.requests
            ));
        }
        items.extend(brought.into_iter().enumerate().map(|(index, brought)| Item {
            brought,
            profile: Profile::SiteCa { site: site.name.clone(), lifetime: site.lifetime },
            starts: site.starts(index, now),
            path: file(&out.join(&site.name), index, "pem"),
        }));
    }
    if refusals.is_empty() { Ok(items) } else { Err(collect::refused(&refusals)) }
}

fn position(plan: &Plan, site: &Site) -> usize {
    plan.sites.iter().position(|other| other.name == site.name).unwrap_or_default()
}

/// Nothing that will be written is there; where the lists go.
fn refuse_existing(args: &Root, plan: &Plan, items: &[Item<'_>]) -> anyhow::Result<Vec<PathBuf>> {
    let certificates: Vec<_> = items.iter().map(|item| item.path.as_path()).collect();
    files::refuse_existing(&certificates)?;
    plan.crl.as_ref().map_or(Ok(Vec::new()), |planned| crl::refuse_existing(planned, &args.out))
}

fn describe(item: &Item<'_>, outlook: &Outlook) -> Report {
    Report::new("sitting", format!("site CA {}", item.path.display()))
        .fact("request", item.brought.name(), "")
        .fact("request_sha256", item.brought.sha256(), "")
        .lines("words", item.brought.words())
        .fact("begins", utc(item.starts.unix_timestamp()), "(and an hour before)")
        .fact("valid_until", utc(outlook.not_after.unix_timestamp()), "")
        .warn(clamp_note(outlook.clamped))
}

fn sign(
    args: &Root,
    plan: &Plan,
    items: &[Item<'_>],
    list_paths: &[PathBuf],
    now: OffsetDateTime,
    mut record: Record,
) -> anyhow::Result<()> {
    let root = root_key::open(&args.root, &args.unlock)?;
    let mut certificates = Vec::new();
    for item in items {
        let issued =
            root.issue(&item.profile, &item.brought.request.public_key, crate::serial()?, item.starts)?;
        record.certificate(&item.path, &issued)?;
        certificates.push((&item.path, bundle::to_pem([&issued.certificate])));
    }
    let lists = match &plan.crl {
        Some(planned) => crl::sign(&root, planned, list_paths, now, &mut record)?,
        None => Vec::new(),
    };
    record.seal(&root)?;
    for site in &plan.sites {
        files::make_dir(&args.out.join(&site.name))?;
    }
    let mut all: Vec<New<'_>> = certificates
        .iter()
        .map(|(path, pem)| New { path, contents: pem.as_bytes(), secret: false })
        .collect();
    all.extend(lists.iter().map(crl::Signed::file));
    files::write_new_together(&all)?;
    write_bundles(args, plan, &root)
}

/// Each site gets the trust bundle, unless it lies there already.
fn write_bundles(args: &Root, plan: &Plan, root: &Authority) -> anyhow::Result<()> {
    for site in &plan.sites {
        let path = args.out.join(&site.name).join("root.pem");
        if files::refuse_existing(&[&path]).is_ok() {
            files::write_certificates(&path, &bundle::to_pem([root.certificate()]), false)?;
        }
    }
    Ok(())
}
