//! OpenSSL 3 with `-x509_strict`, and BoringSSL as Envoy drives it. Both follow one issuer at a time without coming back: anchors first,
//! names and key identifiers must fit, and an issuer without keyCertSign is none.

use super::{
    Parsed, Reason, Rule,
    go::{extended_key_usage, no_path, path_len},
    names,
};
use crate::{verify::Purpose, x509::Certificate};

/// Longest path: deeper than anything that is in use, so that a loop ends.
const MAX_DEPTH: usize = 32;

/// Whose rules beyond the common ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `openssl verify -x509_strict`.
    Strict,
    /// Envoy: an anchor need not be self-signed, and has every right that it is used for. Its dates and its name constraints count.
    Envoy,
}

pub(super) fn refusals(parsed: &Parsed, purpose: Purpose, dialect: Dialect) -> Vec<Reason> {
    let path = match build(parsed, dialect) {
        Ok(path) => path,
        Err(reason) => return vec![reason],
    };
    let last = path.len() - 1;
    let mut reasons = Vec::new();
    for (depth, certificate) in path.iter().enumerate() {
        let anchor = depth == last && depth > 0;
        reasons.extend(dates(certificate, anchor, parsed));
        if !(anchor && dialect == Dialect::Envoy) {
            reasons.extend(rights(certificate, &path[..depth], anchor));
        }
        reasons.extend(constrained(&path[..depth], certificate));
        if dialect == Dialect::Strict {
            let strict =
                strict(certificate, depth == last).map(|what| format!("{}: {what}", certificate.label()));
            reasons.extend(strict.map(|what| Reason { rule: Rule::Strict, what }));
        }
    }
    reasons.extend(leaf_key_usage(path[0], purpose, dialect));
    let without_anchor = dialect == Dialect::Envoy && last > 0;
    reasons.extend(extended_key_usage(if without_anchor { &path[..last] } else { &path }, purpose));
    reasons.extend(revocation(&path, parsed));
    reasons
}

/// The path that the library follows.
fn build(parsed: &Parsed, dialect: Dialect) -> Result<Vec<&Certificate>, Reason> {
    let mut path = vec![&parsed.leaf];
    let mut trusted = parsed.roots.iter().any(|root| root.der == parsed.leaf.der);
    while path.len() < MAX_DEPTH {
        let last = path[path.len() - 1];
        if last.facts.self_issued && last.key_ids_agree(last) != Some(false) {
            break;
        }
        let from_roots = choose(last, &parsed.roots, parsed);
        let next =
            from_roots.or_else(|| if trusted { None } else { choose(last, &parsed.intermediates, parsed) });
        let Some(issuer) = next else { break };
        if !last.is_signed_by(issuer) {
            let what =
                format!("{} is named as the issuer of {}, but did not sign it", issuer.label(), last.label());
            return Err(Reason { rule: Rule::NoPath, what });
        }
        trusted |= from_roots.is_some();
        path.push(issuer);
        if from_roots.is_some() && dialect == Dialect::Envoy {
            return Ok(path);
        }
    }
    anchored(path, trusted, parsed, dialect)
}

fn anchored<'a>(
    path: Vec<&'a Certificate>,
    trusted: bool,
    parsed: &Parsed,
    dialect: Dialect,
) -> Result<Vec<&'a Certificate>, Reason> {
    let last = path[path.len() - 1];
    let trusted = trusted || parsed.roots.iter().any(|root| root.der == last.der);
    match (trusted, last.facts.self_issued || dialect == Dialect::Envoy) {
        (true, true) => Ok(path),
        (false, _) => Err(no_path(parsed)),
        (true, false) => {
            let what = format!("the anchor {} is not self-signed", last.label());
            Err(Reason { rule: Rule::AnchorNotRoot, what })
        }
    }
}

/// The first issuer that is valid now, else the one that is valid longest.
fn choose<'a>(child: &Certificate, pool: &'a [Certificate], parsed: &Parsed) -> Option<&'a Certificate> {
    let signs = |c: &Certificate| c.facts.key_usage.is_none_or(|usage| usage.key_cert_sign);
    let fits = |c: &&Certificate| child.names_as_issuer(c) && signs(c);
    let valid = pool.iter().filter(fits).find(|c| c.facts.out_of_date(parsed.now).is_none());
    valid.or_else(|| pool.iter().filter(fits).max_by_key(|c| c.facts.not_after))
}

fn dates(certificate: &Certificate, anchor: bool, parsed: &Parsed) -> Option<Reason> {
    let why = certificate.facts.out_of_date(parsed.now)?;
    let rule = if anchor { Rule::AnchorDates } else { Rule::Dates };
    Some(Reason { rule, what: format!("{}: {why}", certificate.label()) })
}

/// What is in a certificate must be known, and one that issued must be allowed to.
fn rights(certificate: &Certificate, below: &[&Certificate], anchor: bool) -> Vec<Reason> {
    let unknown = certificate.unknown_critical.first().map(|oid| {
        let what = format!("{} has critical extension {oid}", certificate.label());
        Reason { rule: Rule::UnknownCritical, what }
    });
    let issued = if below.is_empty() { Vec::new() } else { issuer(certificate, below, anchor) };
    unknown.into_iter().chain(issued).collect()
}

fn issuer(ca: &Certificate, below: &[&Certificate], anchor: bool) -> Vec<Reason> {
    let not_ca = (!ca.facts.is_ca())
        .then(|| Reason { rule: Rule::NotCa, what: format!("{} issued, but is not a CA", ca.label()) });
    // Self-issued CAs do not count (RFC 5280 section 6.1.4 (l)).
    let count = below.iter().skip(1).filter(|c| !c.facts.self_issued).count();
    not_ca.into_iter().chain(path_len(ca, count, anchor)).collect()
}

fn constrained(below: &[&Certificate], ca: &Certificate) -> Option<Reason> {
    let checked = below.iter().enumerate().filter(|(depth, c)| *depth == 0 || !c.facts.self_issued);
    let what = checked.filter_map(|(_, c)| names::violation(c, ca)).next()?;
    Some(Reason { rule: Rule::NameConstraints, what })
}

/// With an ECDSA key a peer proves itself by a signature, so BoringSSL wants that bit if keyUsage is there. OpenSSL is content with any
/// bit that some cipher suite of the purpose needs.
fn leaf_key_usage(leaf: &Certificate, purpose: Purpose, dialect: Dialect) -> Option<Reason> {
    let usage = leaf.facts.key_usage?;
    let agreed = usage.key_agreement || (usage.key_encipherment && purpose == Purpose::Server);
    let fits = usage.digital_signature || (dialect == Dialect::Strict && agreed);
    let what = || format!("{}: its keyUsage lacks digitalSignature", leaf.label());
    (!fits).then(|| Reason { rule: Rule::LeafKeyUsage, what: what() })
}

/// What X509_V_FLAG_X509_STRICT adds.
fn strict(certificate: &Certificate, last: bool) -> Option<&'static str> {
    let facts = &certificate.facts;
    let signs = facts.key_usage.is_some_and(|usage| usage.key_cert_sign);
    let constraints = facts.basic_constraints;
    let path_len = constraints.is_some_and(|b| b.path_len.is_some());
    let rules = [
        (path_len && !facts.is_ca(), "pathLen in a certificate that is not a CA"),
        (path_len && !signs, "pathLen without keyCertSign"),
        (
            facts.is_ca() && constraints.is_some_and(|b| !b.critical),
            "basicConstraints of a CA is not critical",
        ),
        (facts.is_ca() && facts.key_usage.is_none(), "a CA without keyUsage"),
        (!facts.is_ca() && signs, "keyCertSign in a certificate that is not a CA"),
        (facts.is_ca() && certificate.empty_subject, "a CA without a subject"),
        (
            certificate.empty_subject && !certificate.critical_names,
            "no subject, and its names are not critical",
        ),
        (!last && facts.authority_key_id.is_none(), "no authority key identifier"),
        (facts.is_ca() && facts.subject_key_id.is_none(), "a CA without a subject key identifier"),
    ];
    rules.into_iter().find(|(broken, _)| *broken).map(|(_, what)| what)
}

/// With lists given, every certificate needs one that is in force, the anchor too.
fn revocation(path: &[&Certificate], parsed: &Parsed) -> Vec<Reason> {
    if parsed.crls.is_empty() {
        return Vec::new();
    }
    let pairs = path.iter().enumerate().map(|(depth, c)| (*c, path[(depth + 1).min(path.len() - 1)]));
    pairs.filter_map(|(certificate, issuer)| revoked(certificate, issuer, parsed)).collect()
}

fn revoked(certificate: &Certificate, issuer: &Certificate, parsed: &Parsed) -> Option<Reason> {
    let may_sign = issuer.facts.key_usage.is_none_or(|usage| usage.crl_sign);
    let in_force = |list: &&crate::x509::Crl| {
        may_sign && list.is_signed_by(issuer) && list.out_of_date(parsed.now).is_none()
    };
    let Some(list) = parsed.crls.iter().find(in_force) else {
        let what = format!("no list in force of {} for {}", issuer.label(), certificate.label());
        return Some(Reason { rule: Rule::RevocationUnknown, what });
    };
    let what = || format!("{} is revoked by {}", certificate.label(), issuer.label());
    list.revokes(certificate).then(|| Reason { rule: Rule::Revoked, what: what() })
}
