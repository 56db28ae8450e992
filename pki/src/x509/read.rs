//! Files with certificates or lists: what can be read is kept, and of the rest it is said which block and why.

use super::{Certificate, Crl};
use crate::blocks::{Block, blocks};

/// A block that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// "block 2 (line 14)".
    pub place: String,
    /// Why.
    pub reason: String,
    /// True: it is a certificate, and only some readers refuse it.
    pub readable: bool,
}

/// A file of certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PemFile {
    /// Path, or Kubernetes object and key.
    pub place: String,
    /// What can be read, in order.
    pub certificates: Vec<Certificate>,
    /// What can't.
    pub rejected: Vec<Rejected>,
}

impl PemFile {
    /// As [`read`] does.
    pub fn read(place: impl Into<String>, bytes: &[u8]) -> Self {
        let (certificates, rejected) = read(bytes);
        Self { place: place.into(), certificates, rejected }
    }
}

/// Certificates of PEM, or of one DER certificate. A certificate with a negative serial number is rejected, not kept: Go drops it, and
/// with it, in some programs, the whole file (istio/istio#56815).
pub fn read(bytes: &[u8]) -> (Vec<Certificate>, Vec<Rejected>) {
    if bytes.first() == Some(&0x30) {
        return split([("DER".to_owned(), certificate(bytes))]);
    }
    split(blocks(bytes).iter().map(|block| (block.place(), from_block(block))))
}

type Read = Result<Certificate, (String, bool)>;

fn split(all: impl IntoIterator<Item = (String, Read)>) -> (Vec<Certificate>, Vec<Rejected>) {
    let (mut kept, mut rejected) = (Vec::new(), Vec::new());
    for (place, read) in all {
        match read {
            Ok(certificate) => kept.push(certificate),
            Err((reason, readable)) => rejected.push(Rejected { place, reason, readable }),
        }
    }
    (kept, rejected)
}

fn from_block(block: &Block) -> Read {
    match (&block.contents, block.label.as_str()) {
        (Ok(der), "CERTIFICATE") => certificate(der),
        (Ok(_), label) => Err((format!("it is a {label:?}; only certificates belong here"), false)),
        (Err(why), _) => Err((why.clone(), false)),
    }
}

fn certificate(der: &[u8]) -> Read {
    let certificate = Certificate::parse(der).map_err(|e| (e.to_string(), false))?;
    if certificate.facts.negative_serial {
        return Err((
            format!("{} has a negative serial number, which Go refuses", certificate.label()),
            true,
        ));
    }
    Ok(certificate)
}

/// Revocation lists of PEM, or of one DER list.
pub fn read_crls(bytes: &[u8]) -> (Vec<Crl>, Vec<Rejected>) {
    let (mut kept, mut rejected) = (Vec::new(), Vec::new());
    let mut take = |place: String, list: Result<Crl, String>| match list {
        Ok(list) => kept.push(list),
        Err(reason) => rejected.push(Rejected { place, reason, readable: false }),
    };
    if bytes.first() == Some(&0x30) {
        take("DER".to_owned(), Crl::parse(bytes));
    } else {
        for block in blocks(bytes) {
            let list = match (&block.contents, block.label.as_str()) {
                (Ok(der), "X509 CRL") => Crl::parse(der),
                (Ok(_), label) => Err(format!("it is a {label:?}; only X509 CRL belongs here")),
                (Err(why), _) => Err(why.clone()),
            };
            take(block.place(), list);
        }
    }
    (kept, rejected)
}

/// One PEM block.
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), config)
}
