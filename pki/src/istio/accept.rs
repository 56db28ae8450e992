//! What istiod asks of its files before it starts.

use time::OffsetDateTime;

use super::{CA_CERT, CA_CRL, CA_KEY, CERT_CHAIN, Cacerts, ISTIO_GENERATED, REQUIRED, ROOT_CERT, TLS};
use crate::{
    families::{Family, Question, refusals},
    verify::Purpose,
    x509::Certificate,
};

/// One thing for which istiod refuses to start, or starts as something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Name of the file.
    pub file: &'static str,
    /// The field in it.
    pub field: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: &'static str,
}

fn complaint(file: &'static str, field: &str, what: impl Into<String>, remedy: &'static str) -> Complaint {
    Complaint { file, field: field.to_owned(), what: what.into(), remedy }
}

/// Everything that istiod would refuse at `now`; empty: it starts with this CA.
pub fn accept(files: &Cacerts, now: OffsetDateTime) -> Vec<Complaint> {
    let mut complaints = complete(files);
    if !complaints.is_empty() {
        return complaints;
    }
    let names = if files.tls { TLS } else { [CA_CERT, CA_KEY, ROOT_CERT] };
    complaints.extend(key(files, names));
    match files.ca_cert.certificates.first() {
        Some(ca) => complaints.extend(signing_ca(files, ca, names[0], now)),
        None => complaints.push(complaint(
            names[0],
            "certificate 1",
            "no certificate can be read from it",
            "put the signing CA's certificate there",
        )),
    }
    if files.root_cert.certificates.is_empty() {
        complaints.push(complaint(
            names[2],
            "certificates",
            "no root can be read from it",
            "put the root certificates there",
        ));
    }
    complaints.extend(revocation(files, now));
    complaints
}

/// Any of the four without the others is an error at start (istio/istio#55696).
fn complete(files: &Cacerts) -> Vec<Complaint> {
    let wanted: &[&'static str] = if files.tls { &TLS } else { &REQUIRED };
    let missing = wanted.iter().filter(|name| !files.present.contains(**name));
    let incomplete = "with some of the files but not all of them istiod does not start";
    let mut complaints: Vec<Complaint> = missing
        .map(|name| {
            complaint(name, "file", format!("is missing: {incomplete}"), "write all of them together")
        })
        .collect();
    if files.present.contains(ISTIO_GENERATED) {
        let what = "the key makes istiod take the Secret for its own self-signed CA";
        complaints.push(complaint(ISTIO_GENERATED, "key", what, "remove it from the Secret"));
    }
    complaints
}

fn key(files: &Cacerts, [_, file, _]: [&'static str; 3]) -> Option<Complaint> {
    let key = match files.key.as_ref()? {
        Ok(key) => key,
        Err(fault) => {
            return Some(complaint(
                file,
                "private key",
                fault.to_string(),
                "give an unencrypted PKCS#8, SEC 1 or PKCS#1 key",
            ));
        }
    };
    let ca = files.ca_cert.certificates.first().filter(|ca| ca.facts.spki != key.spki)?;
    let what = format!(
        "does not belong to the certificate (key {}, certificate {}, SHA-256 of the public keys)",
        key.key_sha256, ca.facts.key_sha256
    );
    Some(complaint(file, "private key", what, "put the key there that the certificate was requested with"))
}

fn signing_ca(files: &Cacerts, ca: &Certificate, file: &'static str, now: OffsetDateTime) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    if !ca.facts.is_ca() {
        let what = format!("{} is a leaf, not a CA (basicConstraints cA)", ca.label());
        complaints.push(complaint(
            file,
            "basicConstraints",
            what,
            "put a site CA there, not a node's or workload's certificate",
        ));
    } else if ca.facts.key_usage.is_some_and(|usage| !usage.key_cert_sign) {
        let what = format!("{} lacks keyCertSign: Go refuses all that it issues", ca.label());
        complaints.push(complaint(file, "keyUsage", what, "have it signed again with keyCertSign"));
    }
    let mut chain = vec![ca.der.clone()];
    chain.extend(files.cert_chain.certificates.iter().map(|c| c.der.clone()));
    let roots: Vec<_> = files.root_cert.certificates.iter().map(|c| c.der.clone()).collect();
    let question = Question { chain: &chain, roots: &roots, crls: &[], now };
    let refused = refusals(Family::Go, &question, Purpose::Server);
    let remedy =
        "make root-cert.pem and cert-chain.pem of the CAs that signed ca-cert.pem, all of them valid now";
    let path =
        |what| complaint(file, "certificate 1", format!("Go finds no valid path to a root: {what}"), remedy);
    complaints.extend(refused.into_iter().map(|reason| path(reason.what)));
    complaints
}

/// With any list, one of every certificate in cert-chain.pem is needed: Envoy checks them all.
fn revocation(files: &Cacerts, now: OffsetDateTime) -> Vec<Complaint> {
    let Some((lists, rejected)) = &files.crls else { return Vec::new() };
    let remedy = "give the list of every CA in cert-chain.pem and of the root, or none at all";
    let unread = rejected.iter().map(|r| complaint(CA_CRL, &r.place, r.reason.clone(), remedy));
    let stale = lists.iter().filter_map(|list| {
        let why = list.out_of_date(now)?;
        Some(complaint(
            CA_CRL,
            "nextUpdate",
            format!("the list of {} is out of date: {why}", list.issuer),
            "sign it anew",
        ))
    });
    let cas = files.cert_chain.certificates.iter().chain(&files.root_cert.certificates);
    let mut uncovered: Vec<Complaint> = cas
        .filter(|ca| !lists.iter().any(|list| list.is_signed_by(ca)))
        .map(|ca| {
            complaint(
                CA_CRL,
                "issuer",
                format!("no list of {}: Envoy then refuses every peer", ca.label()),
                remedy,
            )
        })
        .collect();
    uncovered.dedup();
    let revoked = files.cert_chain.certificates.iter().filter(|c| lists.iter().any(|list| list.revokes(c)));
    let revoked = revoked.map(|c| {
        complaint(
            CERT_CHAIN,
            "serialNumber",
            format!("{} is revoked by ca-crl.pem", c.label()),
            "use a CA that is not revoked",
        )
    });
    unread.chain(stale).chain(uncovered).chain(revoked).collect()
}
