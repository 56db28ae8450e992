//! Did this CA sign that certificate, or that CRL? Names, key identifiers and the signature; no dates and no trust.

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_parser::{
    certificate::X509Certificate, prelude::FromDer as _, revocation_list::CertificateRevocationList,
};

/// True if `issuer` (DER) signed `certificate` (DER).
pub fn certificate(certificate: &[u8], issuer: &[u8]) -> bool {
    let (Some(child), Some(parent)) = (read(certificate), read(issuer)) else { return false };
    child.issuer().as_raw() == parent.subject().as_raw()
        && signature(issuer, child.tbs_certificate.as_ref(), &child.signature_value.data)
}

/// True if `issuer` (DER of a certificate) signed the whole of `crl` (DER).
pub fn crl(crl: &[u8], issuer: &[u8]) -> bool {
    let Some(parent) = read(issuer) else { return false };
    let Ok((rest, list)) = CertificateRevocationList::from_der(crl) else { return false };
    rest.is_empty()
        && list.issuer().as_raw() == parent.subject().as_raw()
        && signature(issuer, list.tbs_cert_list.as_ref(), &list.signature_value.data)
}

/// True if the key of the certificate `signer` made this signature, as X.509 has them: by the algorithms of the verifier behind TLS.
fn signature(signer: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let signer = CertificateDer::from(signer);
    let Ok(signer) = EndEntityCert::try_from(&signer) else { return false };
    webpki::ALL_VERIFICATION_ALGS
        .iter()
        .any(|algorithm| signer.verify_signature(*algorithm, message, signature).is_ok())
}

/// True if `crl` (DER) lists the serial number of `certificate` (DER).
pub fn crl_lists(crl: &[u8], certificate: &[u8]) -> bool {
    let (Ok((_, list)), Some(certificate)) = (CertificateRevocationList::from_der(crl), read(certificate))
    else {
        return false;
    };
    list.iter_revoked_certificates().any(|entry| *entry.serial() == certificate.tbs_certificate.serial)
}

/// The DER of one CRL, given as DER or as PEM; `None`: it is neither.
pub fn crl_der(bytes: &[u8]) -> Option<Vec<u8>> {
    let der = match bytes.first()? {
        0x30 => bytes.to_vec(),
        _ => pem::parse(bytes).ok().filter(|block| block.tag() == "X509 CRL")?.into_contents(),
    };
    let whole = CertificateRevocationList::from_der(&der).is_ok_and(|(rest, _)| rest.is_empty());
    whole.then_some(der)
}

fn read(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der)
        .ok()
        .filter(|(rest, _)| rest.is_empty())
        .map(|(_, certificate)| certificate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fabric;

    #[test]
    fn tells_issuers_apart() {
        let (ours, theirs) = (Fabric::shared(), Fabric::new("td"));
        let (leaf, _) = ours.node("gw1");
        assert!(certificate(ours.site.certificate(), ours.root.certificate()));
        assert!(certificate(&leaf, ours.site.certificate()));
        assert!(!certificate(&leaf, ours.root.certificate()));
        assert!(!certificate(ours.site.certificate(), theirs.root.certificate()));
        assert!(!certificate(b"0", ours.root.certificate()) && !crl(b"0", ours.root.certificate()));
    }
}
