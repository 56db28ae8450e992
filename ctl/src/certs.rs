//! `isthmusctl certs`: every certificate that the node holds or trusts.

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::{Moment, distance};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Asks for the certificates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query;

impl Question for Query {
    type Answer = wire::ListCertificatesResponse;
    type Document = CertificatesDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.list_certificates(wire::ListCertificatesRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<CertificatesDocument, Failure> {
        let certificates = answer.certificates.into_iter().map(Certificate::from).collect();
        Ok(CertificatesDocument { schema: "isthmus.v1/certs", certificates })
    }
}

/// Schema `isthmus.v1/certs`.
#[derive(Debug, Serialize)]
pub(crate) struct CertificatesDocument {
    schema: &'static str,
    certificates: Vec<Certificate>,
}

#[derive(Debug, Serialize)]
struct Certificate {
    kind: String,
    spiffe_id: Option<String>,
    subject: String,
    issuer: String,
    serial: String,
    not_before: Option<Moment>,
    not_after: Option<Moment>,
    sha256: String,
    path: Option<String>,
    renew_at: Option<Moment>,
}

impl From<wire::Certificate> for Certificate {
    fn from(certificate: wire::Certificate) -> Self {
        Self {
            kind: certificate.kind,
            spiffe_id: text::known(certificate.spiffe_id),
            subject: certificate.subject,
            issuer: certificate.issuer,
            serial: certificate.serial,
            not_before: Moment::from_unix(certificate.not_before),
            not_after: Moment::from_unix(certificate.not_after),
            sha256: certificate.sha256,
            path: text::known(certificate.path),
            renew_at: certificate.renew_at.and_then(Moment::from_unix),
        }
    }
}

/// Serial numbers, whole issuers and whole paths are in JSON and YAML: in a row they would leave no room for the rest.
impl Document for CertificatesDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let header = ["KIND", "NAME", "EXPIRES", "RENEWS", "ISSUER", "FILE"];
        let rows = self.certificates.iter().map(|certificate| certificate.row(now));
        page.table(header, rows, "no certificates");
    }
}

impl Certificate {
    fn row(&self, now: Moment) -> [Cell; 6] {
        [
            self.kind.as_str().into(),
            self.spiffe_id.as_deref().unwrap_or(&self.subject).into(),
            expiry(self.not_before, self.not_after, now),
            distance(self.renew_at, now).into(),
            text::common_name(&self.issuer).into(),
            text::file_name(self.path.as_deref().unwrap_or("")).into(),
        ]
    }
}

/// "in 23h", "3m ago" in red, or when it will begin to be valid.
pub(crate) fn expiry(not_before: Option<Moment>, not_after: Option<Moment>, now: Moment) -> Cell {
    match (not_before, not_after) {
        (Some(begin), _) if begin > now => {
            Cell::new(format!("not valid yet, {}", begin.distance(now)), Tone::Bad)
        }
        (_, Some(end)) if end <= now => Cell::new(format!("expired {}", end.distance(now)), Tone::Bad),
        (_, end) => distance(end, now).into(),
    }
}
