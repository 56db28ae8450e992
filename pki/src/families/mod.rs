//! What the validators of others will say of a chain, before they are asked: Go's crypto/x509 (istiod, SPIRE, Kubernetes), OpenSSL with
//! `-x509_strict` (Python, curl), rustls (ztunnel, Linkerd, ourselves) and BoringSSL as Envoy drives it.
//!
//! Rustls is not predicted: its verifier is asked. The others are modelled by the rules on which they differ; `tests/interop` holds
//! the models against the programs. Signatures and names that are damaged look the same to all of them.

mod go;
mod names;
mod openssl;
mod path;
mod rule;
mod rustls;

use std::collections::BTreeSet;

use rustls_pki_types::CertificateDer;
use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    verify::Purpose,
    x509::{Certificate, Crl},
};

pub use rule::Rule;

/// A family of validators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// crypto/x509 of Go 1.23 or newer. It never looks at revocation lists.
    Go,
    /// OpenSSL 3 with `-x509_strict`, and `-crl_check_all` where lists are given.
    OpenSsl,
    /// rustls with webpki 0.103.
    Rustls,
    /// BoringSSL as the TLS context of Envoy 1.40 uses it.
    Envoy,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Go, Self::OpenSsl, Self::Rustls, Self::Envoy];

    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::OpenSsl => "openssl",
            Self::Rustls => "rustls",
            Self::Envoy => "envoy",
        }
    }
}

/// A chain, and those who might vouch for it. Slices longer than [`MAX_CERTIFICATES`] are refused by every family.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Leaf first.
    pub chain: &'a [CertificateDer<'static>],
    /// The anchors.
    pub roots: &'a [CertificateDer<'static>],
    /// Revocation lists in DER; empty: revocation is not looked at.
    pub crls: &'a [Vec<u8>],
    /// The validator's clock.
    pub now: OffsetDateTime,
}

/// Most certificates of one question.
pub const MAX_CERTIFICATES: usize = 1024;

/// Why one family refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Reason {
    /// The rule that is broken.
    pub rule: Rule,
    /// By what, in words.
    pub what: String,
}

/// What one family says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whose verdict.
    pub family: Family,
    /// It lets the chain pass both as a TLS server's and as a client's.
    pub accepts: bool,
    /// Why not.
    pub reasons: Vec<Reason>,
}

/// What a family says of a chain that must serve both ways, as an X.509-SVID does.
pub fn predict(family: Family, question: &Question<'_>) -> Verdict {
    let both = [Purpose::Server, Purpose::Client].map(|purpose| refusals(family, question, purpose));
    let reasons: BTreeSet<Reason> = both.into_iter().flatten().collect();
    Verdict { family, accepts: reasons.is_empty(), reasons: reasons.into_iter().collect() }
}

/// The same for one purpose; empty: it is accepted.
pub fn refusals(family: Family, question: &Question<'_>, purpose: Purpose) -> Vec<Reason> {
    if question.chain.len().max(question.roots.len()).max(question.crls.len()) > MAX_CERTIFICATES {
        let what = format!("more than {MAX_CERTIFICATES} certificates or lists");
        return vec![Reason { rule: Rule::Unreadable, what }];
    }
    match (family, Parsed::new(question)) {
        (Family::Rustls, _) => rustls::refusals(question, purpose),
        (_, Err(reason)) => vec![reason],
        (Family::Go, Ok(parsed)) => go::refusals(&parsed, purpose),
        (Family::OpenSsl, Ok(parsed)) => openssl::refusals(&parsed, purpose, openssl::Dialect::Strict),
        (Family::Envoy, Ok(parsed)) => openssl::refusals(&parsed, purpose, openssl::Dialect::Envoy),
    }
}

/// For each rule on which the verdicts part: who refuses, and why the others let it pass.
pub fn differences(verdicts: &[Verdict]) -> Vec<String> {
    let rules: BTreeSet<Rule> = verdicts.iter().flat_map(|v| v.reasons.iter().map(|r| r.rule)).collect();
    let names = |which: &dyn Fn(&Verdict) -> bool| -> Vec<&str> {
        verdicts.iter().filter(|v| which(v)).map(|v| v.family.name()).collect()
    };
    let difference = |rule: &Rule| {
        let breaks = |v: &Verdict| v.reasons.iter().any(|r| r.rule == *rule);
        let lenient = names(&|v| v.accepts);
        let refuse = names(&breaks).join(", ");
        (!lenient.is_empty()).then(|| {
            format!("{refuse} refuse(s), {} accept(s): {}", lenient.join(", "), rule.why_families_differ())
        })
    };
    rules.iter().filter_map(difference).collect()
}

/// The question in a form that rules can look at.
struct Parsed {
    leaf: Certificate,
    intermediates: Vec<Certificate>,
    roots: Vec<Certificate>,
    crls: Vec<Crl>,
    now: OffsetDateTime,
}

impl Parsed {
    /// A root or list that can't be read is left out, as pools of roots do; one in the chain is a refusal.
    fn new(question: &Question<'_>) -> Result<Self, Reason> {
        let unreadable = |what: String| Reason { rule: Rule::Unreadable, what };
        let mut chain = Vec::new();
        for (index, der) in question.chain.iter().enumerate() {
            let read = Certificate::parse(der);
            chain.push(read.map_err(|e| unreadable(format!("certificate {} of the chain: {e}", index + 1)))?);
        }
        let intermediates = chain.split_off(chain.len().min(1));
        let leaf = chain.pop().ok_or_else(|| unreadable("the chain is empty".to_owned()))?;
        let roots = question.roots.iter().filter_map(|der| Certificate::parse(der).ok()).collect();
        let crls = question.crls.iter().filter_map(|der| Crl::parse(der).ok()).collect();
        Ok(Self { leaf, intermediates, roots, crls, now: question.now })
    }
}

/// "serverAuth" or "clientAuth".
fn usage(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Server => "serverAuth",
        Purpose::Client => "clientAuth",
    }
}

#[cfg(test)]
mod tests;
