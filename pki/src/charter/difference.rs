//! What changes from one charter to the next, in lines for people.

use std::collections::BTreeMap;

use super::{Charter, Site};

/// One line a change; empty if nothing but sequence and date differ.
pub fn differences(old: &Charter, new: &Charter) -> Vec<String> {
    let mut lines = Vec::new();
    if old.trust_domain != new.trust_domain {
        lines.push(format!("trust domain: {} -> {}", old.trust_domain, new.trust_domain));
    }
    if old.refresh_hint != new.refresh_hint {
        lines.push(format!("refresh hint: {} s -> {} s", old.refresh_hint, new.refresh_hint));
    }
    let roots =
        |charter: &Charter| map(charter.roots.iter().map(|root| (root.key.to_string(), root.state.as_str())));
    compare("root", &roots(old), &roots(new), &mut lines);
    let sites =
        |charter: &Charter| charter.sites.iter().map(|site| (site.name.clone(), site.clone())).collect();
    let (before, after): (BTreeMap<String, Site>, BTreeMap<String, Site>) = (sites(old), sites(new));
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        lines.push(format!("site {name}: gone, with its {} CAs", before[name].cas.len()));
    }
    for (name, site) in &after {
        if !before.contains_key(name) {
            lines.push(format!("site {name}: new"));
        }
        compare_site(before.get(name), site, &mut lines);
    }
    let crls = |charter: &Charter| {
        map(charter.crls.iter().map(|crl| (crate::key::sha256_hex(crl)[..16].to_owned(), "there")))
    };
    compare("CRL", &crls(old), &crls(new), &mut lines);
    lines
}

fn compare_site(old: Option<&Site>, new: &Site, lines: &mut Vec<String>) {
    let cas = |site: &Site| map(site.cas.iter().map(|ca| (ca.key.to_string(), ca.state.as_str())));
    let ids = |site: &Site| map(site.ids.iter().map(|id| (id.clone(), "there")));
    let name = &new.name;
    compare(&format!("site {name}: CA"), &old.map(cas).unwrap_or_default(), &cas(new), lines);
    compare(&format!("site {name}: IDs under"), &old.map(ids).unwrap_or_default(), &ids(new), lines);
}

type Named = BTreeMap<String, &'static str>;

fn map(items: impl Iterator<Item = (String, &'static str)>) -> Named {
    items.collect()
}

fn compare(what: &str, old: &Named, new: &Named, lines: &mut Vec<String>) {
    for (name, state) in old {
        match new.get(name) {
            None => lines.push(format!("{what} {name}: gone (was {state})")),
            Some(now) if now != state => lines.push(format!("{what} {name}: {state} -> {now}")),
            Some(_) => {}
        }
    }
    for (name, state) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        lines.push(format!("{what} {name}: new, {state}"));
    }
}
