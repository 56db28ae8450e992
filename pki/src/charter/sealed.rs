//! The file `charter.jws`: one compact JWS a line, all over the same text, each by another root.
//!
//! One line is enough for nodes that trust its root. While roots change hands a charter is signed by the old and the new one, so that
//! a node which slept through the step between still finds a signature it can believe.

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{Charter, Error, wire};
use crate::{
    authority::Authority,
    facts::Facts,
    statement::{self, Kind, Opened},
};

/// Most signatures of one charter.
pub const MAX_SIGNATURES: usize = 4;
/// Longest file, and so longest signature with what is signed.
pub const MAX_LEN: usize = 1 << 20;
const KIND: Kind = Kind { typ: "isthmus-charter", longest: MAX_LEN };

/// Signs a charter with one or more roots.
pub fn seal(charter: &Charter, roots: &[&Authority]) -> Result<String, Error> {
    if !(1..=MAX_SIGNATURES).contains(&roots.len()) {
        return Err(Error::Signatures(roots.len()));
    }
    let text = wire::write(charter)?;
    let mut file = String::new();
    for root in roots {
        file.push_str(&statement::seal(KIND, &text, root)?);
        file.push('\n');
    }
    Ok(file)
}

/// Reads a charter that one of the `trusted` roots (DER) signed; that root must be valid at `now`.
pub fn open(file: &[u8], trusted: &[CertificateDer<'_>], now: OffsetDateTime) -> Result<Charter, Error> {
    let signatures = signatures(file)?;
    let believed = |one: &Opened| {
        trusted.iter().any(|root| **root == *one.signer) && one.facts.out_of_date(now).is_none()
    };
    match signatures.iter().find(|one| believed(one)) {
        Some(one) => wire::read(&one.payload),
        None => Err(Error::Stranger { signers: names(&signatures) }),
    }
}

/// Reads a charter and says who signed it, believing nobody: for people to look at, never to act on.
pub fn look(file: &[u8]) -> Result<(Charter, Vec<Facts>), Error> {
    let signatures = signatures(file)?;
    let first = signatures.first().ok_or(Error::Signatures(0))?;
    Ok((wire::read(&first.payload)?, signatures.into_iter().map(|one| one.facts).collect()))
}

/// Every line, its signature checked, all over one text.
fn signatures(file: &[u8]) -> Result<Vec<Opened>, Error> {
    if file.len() > MAX_LEN {
        return Err(statement::Error::TooLong { length: file.len(), longest: MAX_LEN }.into());
    }
    let text = std::str::from_utf8(file).map_err(|_| Error::Text("not the text of a JWS".into()))?;
    let count = text.lines().count();
    if !(1..=MAX_SIGNATURES).contains(&count) {
        return Err(Error::Signatures(count));
    }
    let opened: Vec<Opened> =
        text.lines().map(|line| statement::open(line, KIND)).collect::<Result<_, _>>()?;
    match opened.iter().position(|one| one.payload != opened[0].payload) {
        Some(index) => Err(Error::Torn(index + 1)),
        None => Ok(opened),
    }
}

fn names(signatures: &[Opened]) -> String {
    let name = |one: &Opened| format!("{} (key {})", one.facts.subject, one.facts.key_sha256);
    signatures.iter().map(name).collect::<Vec<_>>().join(" and ")
}
