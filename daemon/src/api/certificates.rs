//! Certificates that the node holds or trusts.

use isthmus_proto::control::{Certificate, ListCertificatesResponse};

use crate::identity::CertificateInfo;

use super::{Parts, epoch};

/// Every certificate, roots first.
pub(super) fn certificates(parts: &Parts) -> ListCertificatesResponse {
    let all = parts.identity.iter().flat_map(crate::identity::Handle::certificates);
    ListCertificatesResponse { certificates: all.map(certificate).collect() }
}

fn certificate(info: CertificateInfo) -> Certificate {
    let _ = epoch;
    todo!()
}
