//! Certificate signing requests (RFC 2986). Of a request only the public key is believed, and only after its signature held.

use aws_lc_rs::digest;
use rcgen::{CertificateParams, DistinguishedName, DnType, SanType, string::Ia5String};
use rustls_pki_types::CertificateSigningRequestDer;
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer as _,
};

use crate::{
    blocks::blocks,
    id::SpiffeId,
    key::{Key, PublicKey},
};

/// Longest request that is looked at, in bytes of PEM or DER.
pub const MAX_LEN: usize = 64 << 10;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_LEN`].
    #[error("the request has {0} bytes; more than {MAX_LEN} are refused")]
    TooLong(usize),
    /// Not one PEM block with a request.
    #[error("not one PEM block CERTIFICATE REQUEST: {0}")]
    Pem(String),
    /// Not PKCS#10 in DER.
    #[error("not a PKCS#10 request in DER: {0}")]
    Der(String),
    /// The key is not one we certify.
    #[error("the request's key must be ECDSA P-256 or P-384")]
    Key,
    /// The requester did not prove to hold the key.
    #[error("the request's signature does not verify with the key in it")]
    Signature,
    /// The request could not be made.
    #[error("the request can't be made: {0}")]
    Create(String),
}

/// A verified request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key that the requester holds.
    pub public_key: PublicKey,
    /// What the requester calls itself: for people, not believed.
    pub subject: String,
    /// URI names it asks for: for people, not believed.
    pub uris: Vec<String>,
}

/// Makes a request in PEM. `id` is a hint for the people at the ceremony; the signer decides what goes into the certificate.
pub fn create(key: &Key, common_name: &str, id: &SpiffeId) -> Result<String, Error> {
    let fail = |e: rcgen::Error| Error::Create(e.to_string());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let uri = Ia5String::try_from(id.to_string()).map_err(fail)?;
    params.subject_alt_names = vec![SanType::URI(uri)];
    params.serialize_request(key).and_then(|request| request.pem()).map_err(fail)
}

/// Reads a request in PEM or DER and checks its signature.
pub fn parse(bytes: &[u8]) -> Result<Request, Error> {
    if bytes.len() > MAX_LEN {
        return Err(Error::TooLong(bytes.len()));
    }
    let der = if bytes.first() == Some(&0x30) { bytes.to_vec() } else { from_pem(bytes)? };
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| {
        Error::Der("it is damaged, cut off, or something else; carry it over again, or make it anew".into())
    })?;
    if !rest.is_empty() {
        return Err(Error::Der(format!("{} bytes follow the request", rest.len())));
    }
    let info = &request.certification_request_info;
    let public_key = PublicKey::from_spki(info.subject_pki.raw).map_err(|_| Error::Key)?;
    request.verify_signature().map_err(|_| Error::Signature)?;
    Ok(Request { public_key, subject: info.subject.to_string(), uris: uris(&request) })
}

/// SHA-256 of a request's DER, in PEM or DER: what people at both ends compare.
pub fn sha256(bytes: &[u8]) -> Result<[u8; 32], Error> {
    let der = if bytes.first() == Some(&0x30) { bytes.to_vec() } else { from_pem(bytes)? };
    let digest = digest::digest(&digest::SHA256, &der);
    Ok(std::array::from_fn(|at| digest.as_ref()[at]))
}

fn from_pem(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let bad = |why: String| Err(Error::Pem(why));
    let found = blocks(bytes);
    let [block] = found.as_slice() else {
        return bad(match found.len() {
            0 => "there is none in it; give the .csr file that `isthmus-ca site csr` or `isthmus-ca node csr` made".into(),
            count => format!("{count} blocks are in it; give one file for each request"),
        });
    };
    match &block.contents {
        _ if !matches!(block.label.as_str(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") => {
            bad(format!("it says {:?}", block.label))
        }
        Ok(der) => Ok(der.to_vec()),
        Err(why) => {
            bad(format!("{}: {why}; the file is damaged or cut off, carry it over again", block.place()))
        }
    }
}

fn uris(request: &X509CertificationRequest<'_>) -> Vec<String> {
    let extensions = request.requested_extensions().into_iter().flatten();
    let names = extensions.filter_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    };
    names.flatten().filter_map(uri).collect()
}

/// DER of a request that [`create`] made; for those who send it on.
pub fn to_der(pem: &str) -> Result<CertificateSigningRequestDer<'static>, Error> {
    from_pem(pem.as_bytes()).map(Into::into)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{id::TrustDomain, key::Curve};

    fn request() -> (Key, String) {
        let key = Key::generate(Curve::P256).unwrap();
        let id = TrustDomain::parse("td").unwrap().id();
        let pem = create(&key, "site a", &id).unwrap();
        (key, pem)
    }

    #[test]
    fn only_the_key_is_taken() {
        let (key, pem) = request();
        let parsed = parse(pem.as_bytes()).unwrap();
        assert_eq!(parsed.public_key, key.public());
        assert_eq!(
            (parsed.subject.as_str(), parsed.uris.as_slice()),
            ("CN=site a", ["spiffe://td".to_string()].as_slice())
        );
        assert_eq!(parse(&to_der(&pem).unwrap()).unwrap(), parsed);
        assert_eq!(sha256(&to_der(&pem).unwrap()), sha256(pem.as_bytes()));
    }

    #[test]
    fn a_changed_request_is_refused() {
        let (_, pem) = request();
        let der = to_der(&pem).unwrap();
        let at = der.windows(6).position(|w| w == b"site a").unwrap();
        let mut changed = der.to_vec();
        changed[at] = b'S';
        assert_eq!(parse(&changed), Err(Error::Signature));
        let mut longer = der.to_vec();
        longer.push(0);
        assert!(matches!(parse(&longer), Err(Error::Der(_))));
        let refused = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert!(refused(&format!("{pem}{pem}")).contains("2 blocks are in it; give one file for each"));
        for nothing in ["", "hello"] {
            assert!(refused(nothing).contains("there is none in it; give the .csr file"));
        }
        assert!(
            refused(&pem[..pem.len() / 2]).contains("block 1 (line 1): it does not end; the file is damaged")
        );
        assert!(
            refused(&pem.replace("CERTIFICATE REQUEST", "CERTIFICATE")).contains("it says \"CERTIFICATE\"")
        );
        let cut = parse(&der[..der.len() / 2]).unwrap_err().to_string();
        assert!(cut.contains("cut off") && !cut.contains("Nom"), "{cut}");
        assert_eq!(parse(&vec![0x30; MAX_LEN + 1]), Err(Error::TooLong(MAX_LEN + 1)));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            bytes.insert(0, 0x30);
            let _ = parse(&bytes);
        }
    }
}
