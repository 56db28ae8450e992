//! `sitting root`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use isthmus_pki::{
    Authority, Facts, Profile, authority,
    authority::Outlook,
    bundle,
    facts::utc,
    plan::{Plan, Site},
};
use time::OffsetDateTime;

use super::{Root, begin, collect, report};
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

/// All that will be signed, and where it goes.
struct Sitting<'a> {
    args: &'a Root,
    plan: &'a Plan,
    items: Vec<Item<'a>>,
    lists: Vec<PathBuf>,
    now: OffsetDateTime,
}

pub(super) fn run(args: &Root) -> anyhow::Result<()> {
    let (plan, now) = (review::plan(&args.plan)?, crate::now());
    let requests = collect::requests(&args.requests)?;
    let record = begin(&args.record, &args.how, "sitting root", &requests)?;
    let items = match review_all(&plan, &requests, &args.out, now) {
        Ok(items) => items,
        Err(refusal) => {
            record.refuse(&refusal, || root_key::open(&args.root, &args.unlock))?;
            return Err(refusal);
        }
    };
    let lists = refuse_existing(args, &plan, &items)?;
    let sitting = Sitting { args, plan: &plan, items, lists, now };
    let parts = sitting.outlook()?;
    if !args.how.dry_run {
        sitting.sign(record)?;
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
    let (mut placed, mut refusals) = (Vec::new(), Vec::new());
    for brought in requests {
        let from = collect::directory(brought).filter(|name| plan.site(name).is_some());
        match plan.review(&brought.request, from) {
            Ok(site) => placed.push((&site.name, brought)),
            Err(refusal) => refusals.push(format!("{}: {refusal}", brought.name())),
        }
    }
    let mut items = Vec::new();
    for site in &plan.sites {
        let of_site = placed.iter().filter(|(name, _)| **name == site.name).map(|(_, brought)| *brought);
        let before = items.len();
        items.extend(of_site.enumerate().map(|(index, brought)| item(site, index, brought, out, now)));
        let (here, planned) = (items.len() - before, site.requests);
        let wrong = format!("site {}: {here} requests are here, the plan has {planned}", site.name);
        refusals.extend((here != planned).then_some(wrong));
    }
    if refusals.is_empty() { Ok(items) } else { Err(collect::refused(refusals)) }
}

fn item<'a>(site: &Site, index: usize, brought: &'a Brought, out: &Path, now: OffsetDateTime) -> Item<'a> {
    Item {
        brought,
        profile: Profile::SiteCa { site: site.name.clone(), lifetime: site.lifetime },
        starts: site.starts(index, now),
        path: file(&out.join(&site.name), index, "pem"),
    }
}

/// Nothing that will be written is there; where the lists go.
fn refuse_existing(args: &Root, plan: &Plan, items: &[Item<'_>]) -> anyhow::Result<Vec<PathBuf>> {
    let certificates: Vec<_> = items.iter().map(|item| item.path.as_path()).collect();
    files::refuse_existing(&certificates)?;
    plan.crl.as_ref().map_or(Ok(Vec::new()), |planned| crl::refuse_existing(planned, &args.out))
}

impl Sitting<'_> {
    /// What will be signed, from the root's certificate alone.
    fn outlook(&self) -> anyhow::Result<Vec<Report>> {
        let facts = root_key::facts(&self.args.root)?;
        self.check_domain(&facts)?;
        let part = |item: &Item<'_>| {
            let outlook = Outlook::new(&facts, &item.profile, item.starts);
            Ok(describe(item, &outlook.with_context(|| item.brought.name())?))
        };
        let mut parts = self.items.iter().map(part).collect::<anyhow::Result<Vec<_>>>()?;
        parts.extend(self.plan.crl.as_ref().map(|planned| crl::report(planned, &self.lists, self.now)));
        Ok(parts)
    }

    fn check_domain(&self, root: &Facts) -> anyhow::Result<()> {
        let (ours, planned) = (authority::trust_domain(root)?, &self.plan.trust_domain);
        if ours == *planned {
            return Ok(());
        }
        bail!("{}: is a plan for {planned}, the root is of {ours}", self.args.plan.display())
    }

    fn sign(&self, mut record: Record) -> anyhow::Result<()> {
        let root = root_key::open(&self.args.root, &self.args.unlock)?;
        let certificates = self.certificates(&root, &mut record)?;
        let lists = match &self.plan.crl {
            Some(planned) => crl::sign(&root, planned, &self.lists, self.now, &mut record)?,
            None => Vec::new(),
        };
        let (trust, bundles) = (bundle::to_pem([root.certificate()]), self.bundles());
        let certificates = self.items.iter().zip(&certificates);
        let mut all: Vec<New<'_>> =
            certificates.map(|(item, pem)| New::public(&item.path, pem.as_bytes())).collect();
        all.extend(lists.iter().map(crl::Signed::file));
        all.extend(bundles.iter().map(|path| New::public(path, trust.as_bytes())));
        record.finish(&root, &all)
    }

    fn certificates(&self, root: &Authority, record: &mut Record) -> anyhow::Result<Vec<String>> {
        let issue = |item: &Item<'_>| {
            let key = &item.brought.request.public_key;
            let issued = root.issue(&item.profile, key, crate::serial()?, item.starts)?;
            record.certificate(&item.path, &issued)?;
            Ok(bundle::to_pem([&issued.certificate]))
        };
        self.items.iter().map(issue).collect()
    }

    /// Where the trust bundle goes: to each site that has none yet.
    fn bundles(&self) -> Vec<PathBuf> {
        let paths = self.plan.sites.iter().map(|site| self.args.out.join(&site.name).join("root.pem"));
        paths.filter(|path| files::refuse_existing(&[path]).is_ok()).collect()
    }
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
