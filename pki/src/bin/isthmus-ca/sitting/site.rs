//! `sitting site`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use isthmus_pki::{Profile, SpiffeId, authority::Outlook, bundle, facts::utc, id::node_id, plan::Plan};

use super::{Site, collect, report};
use crate::{
    files::{self, New},
    node,
    record::Record,
    report::Report,
    request::Brought,
    review,
    site::clamp_note,
};

/// A request that will be signed.
struct Item<'a> {
    brought: &'a Brought,
    id: SpiffeId,
    profile: Profile,
    path: PathBuf,
}

pub(super) fn run(args: &Site) -> anyhow::Result<()> {
    let (plan, now) = (review::plan(&args.plan)?, crate::now());
    let facts = node::ca_facts(&args.ca)?;
    node::check_site(&args.ca, &facts, &args.site)?;
    let requests = collect::requests(&args.requests)?;
    let mut record =
        if args.how.dry_run { Record::none() } else { Record::begin(&args.record, "sitting site")? };
    requests.iter().for_each(|brought| record.request(brought));
    let items = match review_all(args, &plan, &requests) {
        Ok(items) => items,
        Err(refusal) => {
            record.refuse(&refusal, || node::open_ca(&args.ca, &args.key))?;
            return Err(refusal);
        }
    };
    files::refuse_existing(&items.iter().map(|item| item.path.as_path()).collect::<Vec<_>>())?;
    let mut parts = Vec::new();
    for item in &items {
        parts.push(describe(
            item,
            &Outlook::new(&facts, &item.profile, now).with_context(|| item.brought.name())?,
        ));
    }
    if !args.how.dry_run {
        sign(args, &items, record)?;
    }
    args.how.say(report(&args.plan, parts))
}

fn review_all<'a>(args: &Site, plan: &Plan, requests: &'a [Brought]) -> anyhow::Result<Vec<Item<'a>>> {
    let Some(site) = plan.site(&args.site) else {
        bail!("{}: site {:?} is not in the plan", args.plan.display(), args.site);
    };
    let (mut items, mut refusals) = (Vec::new(), Vec::new());
    for brought in requests {
        let planned = site.nodes.iter().find_map(|node| {
            let id = node_id(&plan.trust_domain, &site.name, &node.name).ok()?;
            (brought.request.uris == [id.to_string()]).then_some((node, id))
        });
        let Some((node, id)) = planned else {
            let asks = brought.request.uris.join(", ");
            refusals.push(format!(
                "{}: no node of site {} in the plan is {asks:?}",
                brought.name(),
                site.name
            ));
            continue;
        };
        let profile = Profile::Svid { id: id.clone(), dns_names: Vec::new(), lifetime: node.lifetime };
        items.push(Item { brought, id, profile, path: args.out.join(&node.name).join("node.pem") });
    }
    for node in &site.nodes {
        let brought =
            items.iter().filter(|item| item.id.node().is_some_and(|(_, name)| name == node.name)).count();
        if brought != 1 {
            refusals.push(format!("node {}: {brought} requests are here, the plan has one", node.name));
        }
    }
    if refusals.is_empty() { Ok(items) } else { Err(collect::refused(&refusals)) }
}

fn describe(item: &Item<'_>, outlook: &Outlook) -> Report {
    Report::new("sitting", format!("node {}", item.id))
        .fact("certificate", item.path.display(), "(with the site CA after it)")
        .fact("request", item.brought.name(), "")
        .fact("request_sha256", item.brought.sha256(), "")
        .fact("valid_until", utc(outlook.not_after.unix_timestamp()), "")
        .warn(clamp_note(outlook.clamped))
}

fn sign(args: &Site, items: &[Item<'_>], mut record: Record) -> anyhow::Result<()> {
    let ca = node::open_ca(&args.ca, &args.key)?;
    let mut chains = Vec::new();
    for item in items {
        let issued =
            ca.issue(&item.profile, &item.brought.request.public_key, crate::serial()?, crate::now())?;
        record.certificate(&item.path, &issued)?;
        chains.push(bundle::to_pem([&issued.certificate, ca.certificate()]));
    }
    record.seal(&ca)?;
    for item in items {
        files::make_dir(item.path.parent().unwrap_or(&args.out))?;
    }
    let files = items.iter().zip(&chains);
    let files: Vec<_> =
        files.map(|(item, pem)| New { path: &item.path, contents: pem.as_bytes(), secret: false }).collect();
    files::write_new_together(&files)
}
