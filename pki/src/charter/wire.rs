//! The charter's text: JSON, version 1. What it does not know it refuses; a later part of the charter raises the version.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::{CaState, Charter, Error, PinnedCa, Root, RootState, Site};
use crate::{facts::Facts, id::TrustDomain, keyhash::KeyHash};

const VERSION: u64 = 1;

/// Read first, so that a newer charter is called newer and not wrong.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u64,
    trust_domain: String,
    sequence: u64,
    issued_at: i64,
    refresh_hint: u32,
    roots: Vec<WireRoot>,
    sites: Vec<WireSite>,
    crls: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRoot {
    certificate: String,
    state: RootState,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSite {
    name: String,
    ids: Vec<String>,
    cas: Vec<WireCa>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCa {
    key_sha256: KeyHash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root_sha256: Option<KeyHash>,
    state: CaState,
}

/// Reads the text that is signed and checks every rule. Who signed it is another question.
pub fn read(text: &[u8]) -> Result<Charter, Error> {
    let json = |e: serde_json::Error| Error::Text(format!("not the text of a charter: {e}"));
    let Version { version } = serde_json::from_slice(text).map_err(json)?;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let wire: Wire = serde_json::from_slice(text).map_err(json)?;
    let charter = Charter {
        trust_domain: TrustDomain::parse(&wire.trust_domain)
            .map_err(|e| Error::Text(format!("trust_domain: {e}")))?,
        sequence: wire.sequence,
        issued_at: wire.issued_at,
        refresh_hint: wire.refresh_hint,
        roots: wire.roots.into_iter().map(read_root).collect::<Result<_, _>>()?,
        sites: wire.sites.into_iter().map(read_site).collect(),
        crls: wire.crls.iter().map(|crl| decode("crls", crl)).collect::<Result<_, _>>()?,
    };
    charter.check()?;
    Ok(charter)
}

fn read_root(root: WireRoot) -> Result<Root, Error> {
    let certificate = CertificateDer::from(decode("root", &root.certificate)?);
    let facts = Facts::parse(&certificate).map_err(|e| Error::Text(format!("root: {e}")))?;
    Ok(Root { certificate, key: KeyHash::of(&facts), state: root.state })
}

fn read_site(site: WireSite) -> Site {
    let ca = |ca: WireCa| PinnedCa { key: ca.key_sha256, root: ca.root_sha256, state: ca.state };
    Site { name: site.name, ids: site.ids, cas: site.cas.into_iter().map(ca).collect() }
}

fn decode(place: &str, text: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|e| Error::Text(format!("{place}: not base64: {e}")))
}

/// The text that is signed.
pub(super) fn write(charter: &Charter) -> Result<Vec<u8>, Error> {
    charter.check()?;
    let ca =
        |ca: &PinnedCa| WireCa { key_sha256: ca.key.clone(), root_sha256: ca.root.clone(), state: ca.state };
    let site = |site: &Site| WireSite {
        name: site.name.clone(),
        ids: site.ids.clone(),
        cas: site.cas.iter().map(ca).collect(),
    };
    let root = |root: &Root| WireRoot { certificate: STANDARD.encode(&root.certificate), state: root.state };
    let wire = Wire {
        version: VERSION,
        trust_domain: charter.trust_domain.to_string(),
        sequence: charter.sequence,
        issued_at: charter.issued_at,
        refresh_hint: charter.refresh_hint,
        roots: charter.roots.iter().map(root).collect(),
        sites: charter.sites.iter().map(site).collect(),
        crls: charter.crls.iter().map(|crl| STANDARD.encode(crl)).collect(),
    };
    serde_json::to_vec(&wire).map_err(|e| Error::Text(e.to_string()))
}
