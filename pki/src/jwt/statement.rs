//! What else a site CA says under its signature, in the form of an endorsement: a JWS with the CA's certificate in `x5c`.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::SigningKey as _;
use rustls_pki_types::CertificateDer;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::{
    Error, base64url,
    endorsement::{certificate, raw_signature},
    jwk::{EcCurve, PublicKey},
    jws::{self, Jws},
};
use crate::{authority, bundle::TrustStore, facts::Facts, id::TrustDomain, verify};

/// Longest statement that is looked at, in bytes.
const MAX_LEN: usize = 16 << 10;

/// A statement whose signature holds under the certificate that it carries. Whether that is a site CA's, [`Statement::verify`] says.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What is said.
    pub payload: Map<String, Value>,
    /// Who says it.
    pub facts: Facts,
    certificate: CertificateDer<'static>,
}

/// Signs a payload as this CA; `typ` keeps one kind of statement from being taken for another.
pub fn state(ca: &authority::Authority, typ: &str, payload: &Map<String, Value>) -> Result<String, Error> {
    let (name, curve) = match PublicKey::from_spki(&ca.facts().spki)? {
        PublicKey::Ec { curve: EcCurve::P256, .. } => ("ES256", EcCurve::P256),
        PublicKey::Ec { curve: EcCurve::P384, .. } => ("ES384", EcCurve::P384),
        _ => return Err(Error::Endorser("the site CA's key is not ECDSA P-256 or P-384".into())),
    };
    let header = json!({ "alg": name, "typ": typ, "x5c": [BASE64_STANDARD.encode(ca.certificate())] });
    let payload = serde_json::to_vec(payload).expect("a map of JSON values is JSON");
    let input = jws::signing_input(&base64url::encode(header.to_string().as_bytes()), &payload);
    let der = ca.key().sign(input.as_bytes()).map_err(|_| Error::Sign)?;
    let raw = raw_signature(&der, curve.coordinate_len()).ok_or(Error::Sign)?;
    Ok(format!("{input}.{}", base64url::encode(&raw)))
}

impl Statement {
    /// Reads a statement of this type and checks its signature.
    pub fn parse(text: &str, typ: &str) -> Result<Self, Error> {
        let jws = Jws::parse(text, MAX_LEN, &["typ", "x5c"])?;
        match jws.text("typ")? {
            Some(found) if found == typ => {}
            other => return Err(Error::Type(jws::shown(other.unwrap_or_default()))),
        }
        let certificate = certificate(&jws)?;
        let facts = Facts::parse(&certificate).map_err(|e| Error::Endorser(e.to_string()))?;
        let key = PublicKey::from_spki(&facts.spki)?;
        if !jws.algorithm.fits(&key) {
            return Err(Error::KeyMismatch);
        }
        jws.verify(&key)?;
        Ok(Self { payload: jws.payload()?, facts, certificate })
    }

    /// Is it said by a site CA of this trust domain that was live at `when`?
    pub fn verify(
        &self,
        store: &TrustStore,
        trust_domain: &TrustDomain,
        when: OffsetDateTime,
    ) -> Result<(), Error> {
        verify::verify_ca(&self.certificate, store, trust_domain, when).map_err(Box::new)?;
        Ok(())
    }
}
