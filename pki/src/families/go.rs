//! Go's crypto/x509: every path is tried, the anchor is held to the same rules as the CAs below it, revocation is unknown.

use super::{Parsed, Reason, Rule, names, path::Search, usage};
use crate::{verify::Purpose, x509::Certificate};

pub(super) fn refusals(parsed: &Parsed, purpose: Purpose) -> Vec<Reason> {
    let chain = std::iter::once(&parsed.leaf).chain(&parsed.intermediates);
    let unreadable: Vec<_> = chain.filter_map(parser).collect();
    if !unreadable.is_empty() {
        return unreadable;
    }
    let search = Search::run(parsed);
    let judged = search.paths.iter().map(|path| judge(path, parsed, purpose));
    match judged.min_by_key(Vec::len) {
        Some(best) => best,
        None if search.out_of_budget() => {
            let what = "more than 100 signatures would have to be checked: give each CA generation a subject of its own";
            vec![Reason { rule: Rule::Budget, what: what.to_owned() }]
        }
        None => vec![no_path(parsed)],
    }
}

pub(super) fn no_path(parsed: &Parsed) -> Reason {
    let top = parsed.intermediates.last().unwrap_or(&parsed.leaf);
    let what = format!(
        "no anchor vouches for {}: an intermediate is missing from the chain, or it comes from another root",
        top.facts.issuer
    );
    Reason { rule: Rule::NoPath, what }
}

fn parser(certificate: &Certificate) -> Option<Reason> {
    let bad = certificate.constraints.iter().flat_map(|c| c.permitted_uris.iter().chain(&c.excluded_uris));
    let bad = bad.filter(|host| host.contains([':', '/'])).map(|host| {
        let what = format!("{} constrains URIs to {host:?}, which is no host name", certificate.label());
        Reason { rule: Rule::NameConstraints, what }
    });
    let negative = certificate.facts.negative_serial.then(|| Reason {
        rule: Rule::NegativeSerial,
        what: format!("{} has a negative serial number", certificate.label()),
    });
    negative.into_iter().chain(bad).next()
}

fn judge(path: &[&Certificate], parsed: &Parsed, purpose: Purpose) -> Vec<Reason> {
    let last = path.len() - 1;
    let mut reasons = Vec::new();
    for (depth, certificate) in path.iter().enumerate() {
        let anchor = depth == last && depth > 0;
        let mut refuse = |rule, what: String| reasons.push(Reason { rule, what });
        if let Some(why) = certificate.facts.out_of_date(parsed.now) {
            let rule = if anchor { Rule::AnchorDates } else { Rule::Dates };
            refuse(rule, format!("{}: {why}", certificate.label()));
        }
        if let Some(oid) = certificate.unknown_critical.first() {
            refuse(Rule::UnknownCritical, format!("{} has critical extension {oid}", certificate.label()));
        }
        if depth > 0 {
            reasons.extend(issuer(certificate, depth, anchor));
            reasons.extend(
                names::violation(path[0], certificate)
                    .map(|what| Reason { rule: Rule::NameConstraints, what }),
            );
        }
    }
    reasons.extend(extended_key_usage(path, purpose));
    reasons
}

fn issuer(ca: &Certificate, depth: usize, anchor: bool) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if !ca.facts.is_ca() {
        reasons.push(Reason { rule: Rule::NotCa, what: format!("{} issued, but is not a CA", ca.label()) });
    }
    if ca.facts.key_usage.is_some_and(|usage| !usage.key_cert_sign) {
        let what = format!("{} issued, but its keyUsage lacks keyCertSign", ca.label());
        reasons.push(Reason { rule: Rule::KeyCertSign, what });
    }
    reasons.extend(path_len(ca, depth - 1, anchor));
    reasons
}

/// `below`: CAs between this one and the leaf.
pub(super) fn path_len(ca: &Certificate, below: usize, anchor: bool) -> Option<Reason> {
    let allowed = ca.facts.basic_constraints?.path_len?;
    let rule = if anchor { Rule::AnchorPathLen } else { Rule::PathLen };
    let what = format!("{} allows {allowed} CAs below it, the path has {below}", ca.label());
    (below > usize::try_from(allowed).unwrap_or(usize::MAX)).then_some(Reason { rule, what })
}

/// Every certificate of the path, the anchor too, must allow the usage or say nothing.
pub(super) fn extended_key_usage(path: &[&Certificate], purpose: Purpose) -> Option<Reason> {
    let wanted = usage(purpose);
    let bad = path.iter().find(|c| !c.allows_usage(wanted))?;
    let what = format!("{}: its extKeyUsage lacks {wanted}", bad.label());
    Some(Reason { rule: Rule::ExtendedKeyUsage, what })
}
