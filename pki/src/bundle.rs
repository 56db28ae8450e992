//! Trust bundles and chains: PEM or DER in, certificates out, strictly. One bad certificate is an error that says which one.

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;

use crate::{
    facts::{self, Facts},
    id::{SpiffeId, TrustDomain},
};

/// Most certificates in one bundle or chain.
pub const MAX_CERTIFICATES: usize = 64;

/// Why a bundle or chain can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing in it.
    #[error("no certificate in it")]
    Empty,
    /// Beyond [`MAX_CERTIFICATES`].
    #[error("more than {MAX_CERTIFICATES} certificates in it")]
    TooMany,
    /// PEM that can't be read.
    #[error("PEM can't be read: {0}")]
    Pem(String),
    /// A block that is not a certificate.
    #[error("PEM block {number} is {label:?}, only CERTIFICATE belongs here")]
    Label {
        /// From 1.
        number: usize,
        /// What the block says it is.
        label: String,
    },
    /// A certificate that can't be read.
    #[error("certificate {number}: {reason}")]
    Certificate {
        /// From 1.
        number: usize,
        /// What is wrong with it.
        reason: facts::Error,
    },
    /// A certificate that can't be an anchor.
    #[error("certificate {number} ({subject}): {reason}")]
    NotAnAnchor {
        /// From 1.
        number: usize,
        /// Whose it is.
        subject: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Roots of several trust domains in one file: pooled roots let one domain vouch for another.
    #[error("roots of two trust domains in one bundle: {0} and {1}; give each its own file")]
    Mixed(TrustDomain, TrustDomain),
}

/// Reads PEM with CERTIFICATE blocks only, or one or several concatenated DER certificates.
pub fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let list = if bytes.first() == Some(&0x30) { from_der(bytes)? } else { from_pem(bytes)? };
    match list.len() {
        0 => Err(Error::Empty),
        1..=MAX_CERTIFICATES => check(list),
        _ => Err(Error::TooMany),
    }
}

fn check(list: Vec<CertificateDer<'static>>) -> Result<Vec<CertificateDer<'static>>, Error> {
    for (index, der) in list.iter().enumerate() {
        Facts::parse(der).map_err(|reason| Error::Certificate { number: index + 1, reason })?;
    }
    Ok(list)
}

fn from_pem(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let blocks = pem::parse_many(bytes).map_err(|e| Error::Pem(e.to_string()))?;
    if let Some(damage) = damaged_blocks(bytes, blocks.len()) {
        return Err(Error::Pem(damage));
    }
    let certificate = |(index, block): (usize, pem::Pem)| match block.tag() {
        "CERTIFICATE" => Ok(CertificateDer::from(block.into_contents())),
        label => Err(Error::Label { number: index + 1, label: label.to_owned() }),
    };
    blocks.into_iter().enumerate().map(certificate).collect()
}

/// What a parser that found `read` blocks left out without a word: it stops at a block that does not end.
pub(crate) fn damaged_blocks(bytes: &[u8], read: usize) -> Option<String> {
    let marks = bytes.windows(10).filter(|window| window == b"-----BEGIN").count();
    (marks != read).then(|| format!("{} of {marks} blocks are damaged", marks.saturating_sub(read)))
}

fn from_der(mut bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let length = der_length(bytes).filter(|l| *l <= bytes.len()).ok_or(Error::Certificate {
            number: list.len() + 1,
            reason: facts::Error::Der("its length does not fit".into()),
        })?;
        let (one, rest) = bytes.split_at(length);
        list.push(CertificateDer::from(one.to_vec()));
        if list.len() > MAX_CERTIFICATES {
            return Err(Error::TooMany);
        }
        bytes = rest;
    }
    Ok(list)
}

/// Length of the DER SEQUENCE at the start, header included.
fn der_length(bytes: &[u8]) -> Option<usize> {
    let first = usize::from(*bytes.get(1)?);
    if bytes[0] != 0x30 || first < 0x80 {
        return (bytes[0] == 0x30).then_some(first + 2);
    }
    let count = first & 0x7f;
    let digits = bytes.get(2..2 + count).filter(|_| (1..=3).contains(&count))?;
    Some(digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)) + 2 + count)
}

/// PEM of certificates, one after another.
pub fn to_pem<'a>(list: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let block =
        |der: &CertificateDer<'_>| pem::encode_config(&pem::Pem::new("CERTIFICATE", der.to_vec()), config);
    list.into_iter().map(block).collect()
}

/// The anchors of one trust domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    trust_domain: TrustDomain,
    anchors: Vec<CertificateDer<'static>>,
}

impl Bundle {
    /// Reads a bundle; every root names its trust domain by a URI SAN without a path, and all name the same.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let anchors = certificates(bytes)?;
        let mut domains = anchors.iter().enumerate().map(|(index, der)| anchor_domain(index + 1, der));
        let first = domains.next().unwrap_or(Err(Error::Empty))?;
        for other in domains {
            let other = other?;
            if other != first {
                return Err(Error::Mixed(first, other));
            }
        }
        Ok(Self { trust_domain: first, anchors })
    }

    /// The trust domain that all anchors vouch for.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The roots, in the file's order.
    pub fn anchors(&self) -> &[CertificateDer<'static>] {
        &self.anchors
    }

    /// Concatenated DER, as the Workload API sends it.
    pub fn to_der(&self) -> Vec<u8> {
        self.anchors.iter().flat_map(|der| der.iter().copied()).collect()
    }
}

fn anchor_domain(number: usize, der: &CertificateDer<'_>) -> Result<TrustDomain, Error> {
    let facts = Facts::parse(der).map_err(|reason| Error::Certificate { number, reason })?;
    let refuse = |reason| Err(Error::NotAnAnchor { number, subject: facts.subject.clone(), reason });
    if !facts.self_issued {
        return refuse("not a root: issuer and subject differ");
    }
    if !facts.is_ca() || !facts.may_sign_certificates() {
        return refuse("not a CA: cA and keyCertSign must be set");
    }
    if facts.negative_serial {
        return refuse("its serial number is negative");
    }
    match facts.uris.as_slice() {
        [uri] => match SpiffeId::parse(uri) {
            Ok(id) if id.is_trust_domain() => Ok(id.trust_domain().clone()),
            _ => refuse("its URI SAN is not a trust domain's SPIFFE ID"),
        },
        _ => refuse("it must name its trust domain in exactly one URI SAN"),
    }
}

/// Bundles of several trust domains, never pooled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustStore(BTreeMap<TrustDomain, Bundle>);

impl TrustStore {
    /// Adds a bundle, or replaces that of the same trust domain.
    pub fn insert(&mut self, bundle: Bundle) {
        self.0.insert(bundle.trust_domain.clone(), bundle);
    }

    /// The bundle that may vouch for IDs of this trust domain.
    pub fn bundle(&self, trust_domain: &TrustDomain) -> Option<&Bundle> {
        self.0.get(trust_domain)
    }
}

impl From<Bundle> for TrustStore {
    fn from(bundle: Bundle) -> Self {
        let mut store = Self::default();
        store.insert(bundle);
        store
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Fabric, domain};

    #[test]
    fn pem_and_concatenated_der_are_the_same() {
        let fabric = Fabric::new("td");
        let roots = [fabric.root_certificate(), Fabric::new("td").root_certificate()];
        let bundle = Bundle::parse(to_pem(&roots).as_bytes()).unwrap();
        assert_eq!(bundle.trust_domain(), &domain("td"));
        assert_eq!(bundle.anchors(), roots);
        assert_eq!(certificates(&bundle.to_der()).unwrap(), roots);
    }

    #[test]
    fn refuses_what_is_not_a_bundle_of_one_domain() {
        let fabric = Fabric::new("td");
        let other = Fabric::new("other");
        let pem = to_pem(&[fabric.root_certificate()]);
        let mixed = to_pem(&[fabric.root_certificate(), other.root_certificate()]);
        assert_eq!(Bundle::parse(mixed.as_bytes()), Err(Error::Mixed(domain("td"), domain("other"))));
        let site = Bundle::parse(to_pem(&[fabric.site.certificate().clone()]).as_bytes());
        assert!(matches!(site, Err(Error::NotAnAnchor { number: 1, .. })), "{site:?}");
        assert_eq!(Bundle::parse(b""), Err(Error::Empty));
        let key = pem.clone() + &crate::key::Key::generate(crate::key::Curve::P256).unwrap().to_pem();
        assert!(matches!(Bundle::parse(key.as_bytes()), Err(Error::Label { number: 2, .. })));
        let damaged = pem.clone() + "-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(matches!(Bundle::parse(damaged.as_bytes()), Err(Error::Pem(_))));
        let mut der = fabric.root_certificate().to_vec();
        der.push(0);
        assert!(certificates(&der).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Bundle::parse(&bytes);
            bytes.insert(0, 0x30);
            let _ = Bundle::parse(&bytes);
            let _ = Facts::parse(&bytes);
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0usize..2000, bit in 0u8..8) {
            let mut der = Fabric::shared().root_certificate().to_vec();
            let at = at % der.len();
            der[at] ^= 1 << bit;
            let _ = Bundle::parse(&der);
        }
    }
}
