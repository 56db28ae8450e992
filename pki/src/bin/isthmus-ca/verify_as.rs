//! `verify --as`: what the validators of others will say.

use std::process::ExitCode;

use clap::ValueEnum;
use isthmus_pki::{
    families::{self, Family, Question, Verdict},
    x509,
};
use rustls_pki_types::CertificateDer;

use crate::{files, verify::Args};

/// Whose verdict.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Validator {
    /// Go's crypto/x509: istiod, SPIRE, Kubernetes.
    Go,
    /// OpenSSL 3 with -x509_strict, and -crl_check_all where lists are given.
    Openssl,
    /// rustls: ztunnel, Linkerd.
    Rustls,
    /// Envoy (BoringSSL).
    Envoy,
    /// All of them, and where they differ.
    All,
}

impl Validator {
    fn families(self) -> &'static [Family] {
        match self {
            Self::Go => &[Family::Go],
            Self::Openssl => &[Family::OpenSsl],
            Self::Rustls => &[Family::Rustls],
            Self::Envoy => &[Family::Envoy],
            Self::All => &Family::ALL,
        }
    }
}

/// Exit code 1 if one that was asked for refuses.
pub(crate) fn run(args: &Args, validator: Validator) -> anyhow::Result<ExitCode> {
    let (chain, roots) = (certificates(&args.chain)?, certificates(&args.bundle)?);
    let mut crls = Vec::new();
    for path in &args.crl {
        let (lists, rejected) = x509::read_crls(&files::read(path)?);
        rejected
            .iter()
            .for_each(|bad| crate::note(&format!("{}: {}: {}", path.display(), bad.place, bad.reason)));
        crls.extend(lists.into_iter().map(|list| list.der));
    }
    let question = Question { chain: &chain, roots: &roots, crls: &crls, now: crate::now() };
    let verdicts: Vec<Verdict> =
        validator.families().iter().map(|f| families::predict(*f, &question)).collect();
    let mut lines: Vec<String> = verdicts.iter().flat_map(verdict_lines).collect();
    lines.extend(families::differences(&verdicts).into_iter().map(|line| format!("differs  {line}")));
    crate::say(&lines)?;
    Ok(if verdicts.iter().all(|v| v.accepts) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict_lines(verdict: &Verdict) -> Vec<String> {
    let name = verdict.family.name();
    if verdict.accepts {
        return vec![format!("{name:<8} accepts")];
    }
    verdict.reasons.iter().map(|reason| format!("{name:<8} refuses: {}", reason.what)).collect()
}

/// What can be read; the rest is told, as it is part of what may go wrong.
fn certificates(path: &std::path::Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let file = x509::PemFile::read(path.display().to_string(), &files::read(path)?);
    for bad in &file.rejected {
        crate::note(&format!("{}: {}: {}", file.place, bad.place, bad.reason));
    }
    if file.certificates.is_empty() {
        anyhow::bail!("{}: no certificate can be read from it", file.place);
    }
    Ok(file.certificates.into_iter().map(|c| c.der).collect())
}
