//! CAs that are refused here though their keys are others': what a person wants to see on every node after an incident.

use std::collections::BTreeMap;

use isthmus_pki::{
    Bundle, KeyHash,
    charter::{PinnedCa, Site},
    facts::utc,
    rotation::{Line, Status, taint},
};

use super::{hear, store::Store};

const REFUSED: &str = "what it issued is refused: ";

/// A line for each; those of this node's own site are in the machine's own lines.
pub(super) fn lines(store: &Store) -> Vec<Line> {
    let mut all = by_charter(store);
    if let Ok(bundle) = hear::bundle(store) {
        for (key, line) in by_statement(store, &bundle) {
            // The charter has the last word, the CA itself the reason.
            all.entry(key)
                .and_modify(|known| {
                    known.detail = format!("{}; {}", known.detail, line.detail.trim_start_matches(REFUSED))
                })
                .or_insert(line);
        }
    }
    all.retain(|key, _| store.state.ca(key).is_none());
    all.into_values().collect()
}

fn by_charter(store: &Store) -> BTreeMap<KeyHash, Line> {
    let Some(signed) = &store.charter else { return BTreeMap::new() };
    let line = |(site, ca): (&Site, &PinnedCa)| {
        let why = format!("charter {} says so", signed.charter.sequence);
        (ca.key.clone(), refused(&ca.key, Some(&site.name), ca.state.as_str(), &why))
    };
    signed.charter.cas().filter(|(_, ca)| !ca.state.is_believed()).map(line).collect()
}

fn by_statement<'a>(store: &'a Store, bundle: &'a Bundle) -> impl Iterator<Item = (KeyHash, Line)> + 'a {
    let opened = store.taints.texts().filter_map(|statement| taint::open(statement, bundle).ok());
    opened.map(|taint| {
        let reason = if taint.reason.is_empty() { "without a reason" } else { &taint.reason };
        let why = format!("it said so itself at {}: {}", utc(taint.since), shown(reason));
        (taint.key.clone(), refused(&taint.key, taint.site.as_deref(), "tainted", &why))
    })
}

/// Whoever holds the CA's key chose these words: they are not to drive a terminal.
fn shown(reason: &str) -> String {
    const MOST: usize = 200;
    reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST).collect()
}

fn refused(key: &KeyHash, site: Option<&str>, state: &str, why: &str) -> Line {
    let of = site.map(|site| format!(" of {site}")).unwrap_or_default();
    let (step, detail) = (format!("{}{of} {state}", key.short()), format!("{REFUSED}{why}"));
    Line { track: "fabric", step, status: Status::Done, detail }
}
