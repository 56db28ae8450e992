//! rustls: webpki itself is asked, with anchors as they are in a file of roots and nothing of our own beside it.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, Error, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
};

use super::{Question, Reason, Rule};
use crate::verify::Purpose;

pub(super) fn refusals(question: &Question<'_>, purpose: Purpose) -> Vec<Reason> {
    match ask(question, purpose) {
        Ok(()) => Vec::new(),
        Err(error) => vec![Reason { rule: rule(&error), what: format!("webpki says {error}") }],
    }
}

fn ask(question: &Question<'_>, purpose: Purpose) -> Result<(), Error> {
    let (leaf, intermediates) = question.chain.split_first().ok_or(Error::BadDer)?;
    let leaf = EndEntityCert::try_from(leaf)?;
    let anchor =
        |der: &'_ CertificateDer<'static>| webpki::anchor_from_trusted_cert(der).map(|a| a.to_owned()).ok();
    let anchors: Vec<_> = question.roots.iter().filter_map(anchor).collect();
    let lists: Vec<CertRevocationList<'_>> = question
        .crls
        .iter()
        .filter_map(|der| OwnedCertRevocationList::from_der(der).ok().map(CertRevocationList::from))
        .collect();
    let lists: Vec<&CertRevocationList<'_>> = lists.iter().collect();
    let revocation = RevocationOptionsBuilder::new(&lists).ok().map(RevocationOptionsBuilder::build);
    let usage = match purpose {
        Purpose::Server => KeyUsage::server_auth(),
        Purpose::Client => KeyUsage::client_auth(),
    };
    let seconds = u64::try_from(question.now.unix_timestamp()).unwrap_or(0);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    leaf.verify_for_usage(algorithms, &anchors, intermediates, now, usage, revocation, None).map(|_| ())
}

fn rule(error: &Error) -> Rule {
    match error {
        Error::UnknownIssuer => Rule::NoPath,
        Error::CertExpired { .. } | Error::CertNotValidYet { .. } => Rule::Dates,
        Error::CaUsedAsEndEntity => Rule::LeafIsCa,
        Error::EndEntityUsedAsCa => Rule::NotCa,
        Error::NameConstraintViolation | Error::MalformedNameConstraint => Rule::NameConstraints,
        Error::PathLenConstraintViolated | Error::MaximumPathDepthExceeded => Rule::PathLen,
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => Rule::ExtendedKeyUsage,
        Error::MaximumSignatureChecksExceeded | Error::MaximumPathBuildCallsExceeded => Rule::Budget,
        Error::UnsupportedCriticalExtension => Rule::UnknownCritical,
        Error::CertRevoked => Rule::Revoked,
        Error::UnknownRevocationStatus | Error::CrlExpired { .. } | Error::IssuerNotCrlSigner => {
            Rule::RevocationUnknown
        }
        _ => Rule::Unreadable,
    }
}
