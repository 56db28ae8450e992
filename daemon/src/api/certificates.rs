//! Certificates that the node holds, trusts, or has issued.

use isthmus_proto::control::{Certificate, ListCertificatesResponse};

use crate::identity::CertificateInfo;

use super::Parts;

/// Every certificate.
pub(super) fn certificates(parts: &Parts) -> ListCertificatesResponse {
    let all = parts.identity.iter().flat_map(crate::identity::Handle::certificates);
    ListCertificatesResponse { certificates: all.map(certificate).collect() }
}

fn certificate(info: CertificateInfo) -> Certificate {
    Certificate {
        kind: info.kind.as_str().into(),
        spiffe_id: info.spiffe_id,
        subject: info.subject,
        issuer: info.issuer,
        serial: info.serial,
        not_before: info.not_before,
        not_after: info.not_after,
        sha256: info.sha256,
        path: info.path.map(|path| path.display().to_string()).unwrap_or_default(),
        renew_at: info.renew_at,
    }
}
