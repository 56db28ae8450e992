//! `sitting site`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use isthmus_pki::{
    Facts, Profile,
    authority::Outlook,
    bundle,
    facts::utc,
    id::node_id,
    plan::{self, Node, Plan},
};

use super::{Site, begin, collect, report};
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
    node: &'a Node,
    profile: Profile,
    path: PathBuf,
}

pub(super) fn run(args: &Site) -> anyhow::Result<()> {
    let plan = review::plan(&args.plan)?;
    let facts = node::ca_facts(&args.ca)?;
    node::check_site(&args.ca, &facts, &args.site)?;
    let requests = collect::requests(&args.requests)?;
    let record = begin(&args.record, &args.how, "sitting site", &requests)?;
    let items = match review_all(args, &plan, &requests) {
        Ok(items) => items,
        Err(refusal) => {
            record.refuse(&refusal, || node::open_ca(&args.ca, &args.key))?;
            return Err(refusal);
        }
    };
    files::refuse_existing(&items.iter().map(|item| item.path.as_path()).collect::<Vec<_>>())?;
    let parts = items.iter().map(|item| describe(item, &facts)).collect::<anyhow::Result<_>>()?;
    if !args.how.dry_run {
        sign(args, &items, record)?;
    }
    args.how.say(report(&args.plan, parts))
}

/// Every request is a planned node's, every planned node has its request; all that is wrong is told at once.
fn review_all<'a>(args: &Site, plan: &'a Plan, requests: &'a [Brought]) -> anyhow::Result<Vec<Item<'a>>> {
    let Some(site) = plan.site(&args.site) else {
        bail!("{}: site {:?} is not in the plan", args.plan.display(), args.site);
    };
    let (mut items, mut refusals) = (Vec::new(), Vec::new());
    for brought in requests {
        match item(args, plan, site, brought) {
            Some(item) => items.push(item),
            None => refusals.push(stranger(brought, site)),
        }
    }
    for node in &site.nodes {
        let here = items.iter().filter(|item| item.node == node).count();
        let wrong = format!("node {}: {here} requests are here, the plan has one", node.name);
        refusals.extend((here != 1).then_some(wrong));
    }
    if refusals.is_empty() { Ok(items) } else { Err(collect::refused(refusals)) }
}

fn stranger(brought: &Brought, site: &plan::Site) -> String {
    let asks = brought.request.uris.join(", ");
    format!("{}: no node of site {} in the plan is {asks:?}", brought.name(), site.name)
}

fn item<'a>(args: &Site, plan: &Plan, site: &'a plan::Site, brought: &'a Brought) -> Option<Item<'a>> {
    site.nodes.iter().find_map(|node| {
        let id = node_id(&plan.trust_domain, &site.name, &node.name).ok()?;
        let asks = brought.request.uris == [id.to_string()];
        let profile = Profile::Svid { id, dns_names: Vec::new(), lifetime: node.lifetime };
        let path = args.out.join(&node.name).join("node.pem");
        asks.then_some(Item { brought, node, profile, path })
    })
}

fn describe(item: &Item<'_>, ca: &Facts) -> anyhow::Result<Report> {
    let outlook = Outlook::new(ca, &item.profile, crate::now()).with_context(|| item.brought.name())?;
    Ok(Report::new("sitting", format!("node {}", item.node.name))
        .fact("certificate", item.path.display(), "(with the site CA after it)")
        .fact("request", item.brought.name(), "")
        .fact("request_sha256", item.brought.sha256(), "")
        .fact("valid_until", utc(outlook.not_after.unix_timestamp()), "")
        .warn(clamp_note(outlook.clamped)))
}

fn sign(args: &Site, items: &[Item<'_>], mut record: Record) -> anyhow::Result<()> {
    let ca = node::open_ca(&args.ca, &args.key)?;
    let mut chains = Vec::new();
    for item in items {
        let key = &item.brought.request.public_key;
        let issued = ca.issue(&item.profile, key, crate::serial()?, crate::now())?;
        record.certificate(&item.path, &issued)?;
        chains.push(bundle::to_pem([&issued.certificate, ca.certificate()]));
    }
    let files = items.iter().zip(&chains).map(|(item, pem)| New::public(&item.path, pem.as_bytes()));
    record.finish(&ca, &files.collect::<Vec<_>>())
}
