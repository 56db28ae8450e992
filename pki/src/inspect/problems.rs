//! Why a certificate or a list would be refused, by itself.

use time::OffsetDateTime;

use super::Item;
use crate::{facts::Facts, verify, x509::Crl};

pub(super) fn list(list: Crl, now: OffsetDateTime) -> Item {
    let mut problems: Vec<String> = list.out_of_date(now).into_iter().collect();
    if list.next_update.is_none() {
        problems.push("it does not say when the next one is due, which RFC 5280 wants".into());
    }
    if list.authority_key_id.is_none() {
        problems.push(
            "it lacks the authority key identifier: which of several CAs of one name signed it is a guess"
                .into(),
        );
    }
    Item::Crl { list: Box::new(list), problems }
}

pub(super) fn certificate(facts: Facts, now: OffsetDateTime) -> Item {
    let kind = match (facts.is_ca(), facts.self_issued, facts.uris.is_empty()) {
        (true, true, _) => "root",
        (true, false, _) => "ca",
        (false, _, false) => "svid",
        (false, _, true) => "other",
    };
    Item::Certificate { kind, problems: problems(&facts, now), facts: Box::new(facts) }
}

fn problems(facts: &Facts, now: OffsetDateTime) -> Vec<String> {
    let mut problems: Vec<String> = facts.out_of_date(now).into_iter().collect();
    if facts.negative_serial {
        problems.push("its serial number is negative: Go refuses it".into());
    }
    if facts.is_ca() {
        ca_problems(facts, &mut problems)
    } else {
        leaf_problems(facts, &mut problems)
    }
    problems
}

fn ca_problems(facts: &Facts, problems: &mut Vec<String>) {
    if !facts.may_sign_certificates() {
        problems.push("a CA without keyCertSign issues nothing".into());
    }
    if facts.name_constraints {
        problems.push("it has name constraints: rustls and Istio ambient refuse constraints on URIs".into());
    }
    let both = |usages: &Vec<String>| {
        ["serverAuth", "clientAuth"].iter().all(|want| usages.iter().any(|u| u == want))
    };
    if facts.extended_key_usage.as_ref().is_some_and(|usages| !both(usages)) {
        problems.push(
            "its extKeyUsage limits everything below it; it needs both serverAuth and clientAuth, or none"
                .into(),
        );
    }
}

fn leaf_problems(facts: &Facts, problems: &mut Vec<String>) {
    if let Err(e) = verify::check_leaf(facts) {
        problems.push(e.to_string());
    }
    for usage in ["serverAuth", "clientAuth"] {
        if !facts.extended_key_usage.as_ref().is_some_and(|usages| usages.iter().any(|u| u == usage)) {
            problems.push(format!("its extKeyUsage lacks {usage}"));
        }
    }
}
