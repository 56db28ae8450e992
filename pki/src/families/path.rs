//! Every way from a leaf to an anchor, as a validator with backtracking searches: likely issuers first, within a budget.

use super::Parsed;
use crate::x509::Certificate;

/// Go's limit of signature checks for one verification.
const MAX_SIGNATURES: usize = 100;
/// Longest path and most paths that are looked at: a bound on the work, beyond what any validator accepts.
const MAX_DEPTH: usize = 16;
const MAX_PATHS: usize = 64;

/// What a search found.
#[derive(Default)]
pub(super) struct Search<'a> {
    /// Paths, leaf first, anchor last.
    pub(super) paths: Vec<Vec<&'a Certificate>>,
    /// Signatures that were checked.
    signatures: usize,
}

impl<'a> Search<'a> {
    pub(super) fn run(parsed: &'a Parsed) -> Self {
        let mut search = Self::default();
        if parsed.roots.iter().any(|root| root.der == parsed.leaf.der) {
            search.paths.push(vec![&parsed.leaf]);
            return search;
        }
        search.extend(&mut vec![&parsed.leaf], parsed);
        search
    }

    /// It was given up before everything was tried.
    pub(super) fn out_of_budget(&self) -> bool {
        self.signatures > MAX_SIGNATURES
    }

    fn extend(&mut self, path: &mut Vec<&'a Certificate>, parsed: &'a Parsed) {
        let Some(&last) = path.last() else { return };
        for (issuer, is_root) in candidates(last, parsed) {
            if self.is_at_an_end() || path.len() >= MAX_DEPTH || repeats(path, issuer) {
                continue;
            }
            self.signatures += 1;
            if self.out_of_budget() || !last.is_signed_by(issuer) {
                continue;
            }
            path.push(issuer);
            if is_root {
                self.paths.push(path.clone());
            } else {
                self.extend(path, parsed);
            }
            path.pop();
        }
    }

    fn is_at_an_end(&self) -> bool {
        self.out_of_budget() || self.paths.len() >= MAX_PATHS
    }
}

/// Those whose subject is the issuer, roots before intermediates, those whose key identifier fits before the others.
fn candidates<'a>(child: &Certificate, parsed: &'a Parsed) -> Vec<(&'a Certificate, bool)> {
    let named = |pool: &'a [Certificate], is_root| {
        let named = pool.iter().filter(|c| c.facts.subject_der == child.facts.issuer_der);
        let mut named: Vec<_> = named.map(|c| (c, is_root)).collect();
        named.sort_by_key(|(issuer, _)| match child.key_ids_agree(issuer) {
            Some(true) => 0,
            None => 1,
            Some(false) => 2,
        });
        named
    };
    let mut all = named(&parsed.roots, true);
    all.extend(named(&parsed.intermediates, false));
    all
}

fn repeats(path: &[&Certificate], issuer: &Certificate) -> bool {
    path.iter().any(|c| c.facts.spki == issuer.facts.spki && c.facts.subject_der == issuer.facts.subject_der)
}
