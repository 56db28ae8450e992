//! `isthmusctl certs inspect FILE`: what the certificates in a PEM file say. Asks no daemon and verifies nothing.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Serialize;

use crate::certs::expiry;
use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::{Document, Output};
use crate::page::Page;
use crate::x509::{self, Facts};

/// The largest file that is read; a bundle of a thousand certificates is smaller.
const LARGEST_FILE: u64 = 4 << 20;

/// Prints what is written in the certificates of a file.
///
/// # Errors
/// A file that cannot be read or holds no certificate.
pub(crate) fn inspect(output: &Output, file: &Path) -> Result<(), Failure> {
    let content =
        read(file).map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))?;
    let certificates = certificates(&content)
        .map_err(|reason| Failure::failed(format!("{}: {reason}", file.display())).with_help(PEM_HELP))?;
    output.print(&InspectDocument {
        schema: "isthmus.v1/certificate-file",
        file: file.display().to_string(),
        certificates,
    })
}

const PEM_HELP: &str =
    "expected PEM: -----BEGIN CERTIFICATE----- and so on; openssl x509 -inform DER converts DER";

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(file)?.take(LARGEST_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST_FILE >> 20)));
    }
    Ok(content)
}

/// The certificates among the PEM blocks. Other blocks are passed over; their content is never shown, it may be a key.
fn certificates(content: &[u8]) -> Result<Vec<Facts>, String> {
    let blocks = pem::parse_many(content).map_err(|error| error.to_string())?;
    let mut certificates = Vec::new();
    for block in blocks.iter().filter(|block| block.tag() == "CERTIFICATE") {
        certificates.extend(x509::read_all(block.contents())?.into_iter().map(|(_, facts)| facts));
    }
    if !certificates.is_empty() {
        return Ok(certificates);
    }
    match blocks.first() {
        Some(block) => Err(format!("it holds no certificate, but a {}", block.tag())),
        None => Err("it holds no certificate".to_owned()),
    }
}

/// Schema `isthmus.v1/certificate-file`.
#[derive(Debug, Serialize)]
struct InspectDocument {
    schema: &'static str,
    file: String,
    certificates: Vec<Facts>,
}

impl Document for InspectDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        for (index, certificate) in self.certificates.iter().enumerate() {
            if index > 0 {
                page.line("");
            }
            certificate.lay_out(now, page);
        }
    }
}

impl Facts {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let authority = match (self.is_ca, self.path_len) {
            (false, _) => "no".to_owned(),
            (true, None) => "yes".to_owned(),
            (true, Some(length)) => format!("yes, pathLen {length}"),
        };
        page.facts([
            ("Subject", self.subject.as_str().into()),
            ("Issuer", self.issuer.as_str().into()),
            ("Serial", self.serial.as_str().into()),
            ("URI", self.uris.join(", ").into()),
            ("DNS names", self.dns_names.join(", ").into()),
            ("Valid since", age(self.not_before, now).into()),
            ("Expires", expiry(self.not_before, self.not_after, now)),
            ("CA", authority.into()),
            ("Key", self.key_algorithm.as_str().into()),
            ("SHA-256", self.sha256.as_str().into()),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_named_and_never_shown() {
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        assert_eq!(
            certificates(key.as_bytes()),
            Err("it holds no certificate, but a PRIVATE KEY".to_owned())
        );
    }

    proptest! {
        #[test]
        fn random_files_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "\\PC*") {
            let _ = certificates(&bytes);
            let _ = certificates(format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").as_bytes());
        }
    }
}
