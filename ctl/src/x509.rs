//! What an X.509 certificate says. Nothing is verified here: whoever shows a certificate shows what is written in it.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::moment::Moment;

/// The certificates of a chain or bundle that are taken; more is no chain.
const MOST_CERTIFICATES: usize = 1000;

/// A certificate's content, in the words of RFC 5280.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Facts {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// Lower-case hex.
    pub(crate) serial: String,
    pub(crate) not_before: Option<Moment>,
    pub(crate) not_after: Option<Moment>,
    /// URI names of the subjectAltName, for an SVID its one SPIFFE ID.
    pub(crate) uris: Vec<String>,
    pub(crate) dns_names: Vec<String>,
    pub(crate) is_ca: bool,
    pub(crate) path_len: Option<u32>,
    /// Object identifier of the public key's algorithm with its curve, where it has one.
    pub(crate) key_algorithm: String,
    /// Lower-case hex SHA-256 of the DER.
    pub(crate) sha256: String,
}

/// Splits concatenated DER certificates, as the SPIFFE Workload API carries them, and reads each.
///
/// # Errors
/// Which certificate cannot be read, counted from 1, and why.
pub(crate) fn read_all(mut der: &[u8]) -> Result<Vec<(&[u8], Facts)>, String> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let number = found.len() + 1;
        if number > MOST_CERTIFICATES {
            return Err(format!("more than {MOST_CERTIFICATES} certificates"));
        }
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|error| format!("certificate {number}: {error}"))?;
        let own = &der[..der.len() - rest.len()];
        found.push((own, facts(own, &certificate)));
        der = rest;
    }
    Ok(found)
}

fn facts(der: &[u8], certificate: &X509Certificate<'_>) -> Facts {
    let constraints = certificate.basic_constraints().ok().flatten();
    let mut facts = Facts {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        serial: hex::encode(certificate.raw_serial()),
        not_before: Moment::from_unix(certificate.validity().not_before.timestamp()),
        not_after: Moment::from_unix(certificate.validity().not_after.timestamp()),
        uris: Vec::new(),
        dns_names: Vec::new(),
        is_ca: constraints.as_ref().is_some_and(|found| found.value.ca),
        path_len: constraints.and_then(|found| found.value.path_len_constraint),
        key_algorithm: key_algorithm(certificate),
        sha256: hex::encode(Sha256::digest(der)),
    };
    let names = certificate.subject_alternative_name().ok().flatten();
    for name in names.iter().flat_map(|found| &found.value.general_names) {
        match name {
            GeneralName::URI(uri) => facts.uris.push((*uri).to_owned()),
            GeneralName::DNSName(name) => facts.dns_names.push((*name).to_owned()),
            _ => {}
        }
    }
    facts
}

fn key_algorithm(certificate: &X509Certificate<'_>) -> String {
    let algorithm = &certificate.public_key().algorithm;
    let mut words = name_of(&algorithm.algorithm.to_id_string());
    if let Some(curve) = algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok()) {
        // Writing to a String cannot fail.
        let _ = write!(words, " {}", name_of(&curve.to_id_string()));
    }
    words
}

/// The usual word for the object identifiers that occur (RFC 5480, RFC 3279, RFC 8410), else the identifier.
fn name_of(oid: &str) -> String {
    let name = match oid {
        "1.2.840.10045.2.1" => "ECDSA",
        "1.2.840.10045.3.1.7" => "P-256",
        "1.3.132.0.34" => "P-384",
        "1.3.132.0.35" => "P-521",
        "1.2.840.113549.1.1.1" => "RSA",
        "1.3.101.112" => "Ed25519",
        other => other,
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(name: &str) -> Vec<u8> {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).expect("a DNS name");
        let id = format!("spiffe://fabric.example/{name}").try_into().expect("ASCII");
        params.subject_alt_names.push(SanType::URI(id));
        params.self_signed(&KeyPair::generate().expect("a key")).expect("signed").der().to_vec()
    }

    #[test]
    fn a_chain_is_split_and_read() {
        let (first, second) = (certificate("a"), certificate("b"));
        let chain = [first.clone(), second.clone()].concat();
        let found = read_all(&chain).expect("two certificates");
        assert_eq!((found[0].0, found[1].0, found.len()), (&first[..], &second[..], 2));
        let facts = &found[1].1;
        assert_eq!(facts.uris, ["spiffe://fabric.example/b"]);
        assert_eq!(facts.dns_names, ["b.example"]);
        assert_eq!((facts.is_ca, facts.key_algorithm.as_str()), (false, "ECDSA P-256"));
        assert_eq!(facts.sha256, hex::encode(Sha256::digest(&second)));
    }

    #[test]
    fn what_follows_a_certificate_must_be_one() {
        let chain = [certificate("a"), b"trailing".to_vec()].concat();
        assert!(read_all(&chain).expect_err("trailing bytes").starts_with("certificate 2: "));
        assert_eq!(read_all(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn random_and_damaged_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(), flip in 1_u8..) {
            let _ = read_all(&bytes);
            let mut damaged = certificate("a");
            let at = at.index(damaged.len());
            damaged[at] ^= flip;
            let _ = read_all(&damaged);
        }
    }
}
