//! The charter as a person writes it: TOML, certificates named by file.

use std::time::Duration;

use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use toml::Spanned;

use super::{CaState, Charter, Error, PinnedCa, Root, RootState, Site};
use crate::{
    bundle, facts::Facts, id::TrustDomain, keyhash::KeyHash, profile::site_ca_name, signed_by,
    text::toml_error,
};

const DEFAULT_HINT: &str = "5m";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    trust_domain: Spanned<String>,
    sequence: Spanned<u64>,
    #[serde(default = "default_hint")]
    refresh_hint: String,
    #[serde(default)]
    root: Vec<DraftRoot>,
    #[serde(default)]
    site: Vec<DraftSite>,
    #[serde(default)]
    crls: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftRoot {
    certificate: String,
    state: RootState,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftSite {
    name: String,
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    ca: Vec<DraftCa>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftCa {
    certificate: String,
    state: CaState,
}

fn default_hint() -> String {
    DEFAULT_HINT.into()
}

/// Reads a draft. `file` reads what a name in it stands for; `issued_at` is now, in seconds since the Unix epoch.
pub fn from_toml(
    text: &str,
    issued_at: i64,
    file: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<Charter, Error> {
    let draft: Draft = toml::from_str(text).map_err(|e| Error::Text(toml_error(text, &e)))?;
    let domain = draft.trust_domain.get_ref();
    let trust_domain =
        TrustDomain::parse(domain).map_err(|e| Error::Text(format!("trust_domain {domain:?}: {e}")))?;
    let roots = draft.root.iter().map(|one| root(one, file)).collect::<Result<Vec<_>, _>>()?;
    let sites = draft.site.iter().map(|one| site(one, &roots, file)).collect::<Result<_, _>>()?;
    let crls = draft.crls.iter().map(|name| crl(name, file)).collect::<Result<_, _>>()?;
    let refresh_hint = hint(&draft.refresh_hint)?;
    let sequence = *draft.sequence.get_ref();
    let charter = Charter { trust_domain, sequence, issued_at, refresh_hint, roots, sites, crls };
    charter.check()?;
    Ok(charter)
}

type Files<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

fn root(draft: &DraftRoot, file: &mut Files<'_>) -> Result<Root, Error> {
    let (certificate, facts) = certificate(&draft.certificate, file)?;
    Ok(Root { certificate, key: KeyHash::of(&facts), state: draft.state })
}

fn site(draft: &DraftSite, roots: &[Root], file: &mut Files<'_>) -> Result<Site, Error> {
    let cas = draft.ca.iter().map(|one| ca(one, &draft.name, roots, file)).collect::<Result<_, _>>()?;
    Ok(Site { name: draft.name.clone(), ids: draft.ids.clone(), cas })
}

fn ca(draft: &DraftCa, site: &str, roots: &[Root], file: &mut Files<'_>) -> Result<PinnedCa, Error> {
    let (certificate, facts) = certificate(&draft.certificate, file)?;
    let wanted = format!("CN={}", site_ca_name(site));
    if !facts.subject.split(", ").any(|part| part == wanted) {
        let reason = format!("it is of {:?}, not of the CA of site {site:?}; files mixed up?", facts.subject);
        return Err(Error::Rule { place: draft.certificate.clone(), reason });
    }
    let root = roots.iter().find(|root| signed_by::certificate(&certificate, &root.certificate));
    Ok(PinnedCa { key: KeyHash::of(&facts), root: root.map(|root| root.key.clone()), state: draft.state })
}

fn certificate(name: &str, file: &mut Files<'_>) -> Result<(CertificateDer<'static>, Facts), Error> {
    let refuse = |reason: String| Error::Rule { place: name.to_owned(), reason };
    let mut list = bundle::certificates(&file(name).map_err(refuse)?).map_err(|e| refuse(e.to_string()))?;
    let first = list.swap_remove(0);
    if !list.is_empty() {
        return Err(refuse("more than one certificate in it; name one file for each".into()));
    }
    let facts = Facts::parse(&first).map_err(|e| refuse(e.to_string()))?;
    Ok((first, facts))
}

fn crl(name: &str, file: &mut Files<'_>) -> Result<Vec<u8>, Error> {
    let refuse = |reason: String| Error::Rule { place: name.to_owned(), reason };
    let bytes = file(name).map_err(refuse)?;
    signed_by::crl_der(&bytes).ok_or_else(|| refuse("neither DER nor PEM of one X509 CRL".into()))
}

fn hint(text: &str) -> Result<u32, Error> {
    let whole = |hint: Duration| u32::try_from(hint.as_secs()).ok().filter(|_| hint.subsec_nanos() == 0);
    humantime::parse_duration(text)
        .ok()
        .and_then(whole)
        .ok_or_else(|| Error::Text(format!("refresh_hint {text:?}: write whole seconds, such as \"5m\"")))
}
