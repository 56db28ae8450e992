//! Our side of an export: the signing CA with its key, the roots and the revocation lists.

use std::path::Path;

use anyhow::{Context as _, bail};
use isthmus_pki::{
    Authority, Key,
    authority::{crl_number, crl_to_pem},
    istio::Signer,
    x509::{self, PemFile},
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::Istio;
use crate::{files, secret};

pub(super) fn read(args: &Istio) -> anyhow::Result<Signer> {
    let pem = files::read_secret(&args.ca_key)?;
    let key = secret::open_key(&pem, args.passphrase_file.as_deref(), "the site CA's key")
        .with_context(|| args.ca_key.display().to_string())?;
    let mut roots = Vec::new();
    for path in &args.root {
        roots.extend(certificates(path)?);
    }
    let chain = certificates(&args.ca)?;
    let mut crls = String::new();
    for path in &args.crl {
        crls.push_str(&lists(path)?);
    }
    if let Some(ca) = chain.first().filter(|_| !crls.is_empty()) {
        crls.push_str(&own_list(ca, &key, &crls).with_context(|| args.ca.display().to_string())?);
    }
    let key = Zeroizing::new(key.to_pem().as_bytes().to_vec());
    Ok(Signer { chain, key, roots, crls })
}

/// The signing CA's own list, if none was given: it revokes nothing and lasts as long as the CA, whose leaves live for a day. Its key is
/// at hand here and in istiod, which makes no lists.
fn own_list(ca: &x509::Certificate, key: &Key, given: &str) -> anyhow::Result<String> {
    let known = x509::read_crls(given.as_bytes()).0.iter().any(|list| list.is_signed_by(ca));
    if known || !ca.facts.is_ca() {
        return Ok(String::new());
    }
    let authority = Authority::load(ca.der.clone(), Key::from_pkcs8(&key.to_pkcs8())?)?;
    let (now, end) = (crate::now(), OffsetDateTime::from_unix_timestamp(ca.facts.not_after)?);
    Ok(crl_to_pem(&authority.sign_crl(&[], crl_number(now, 0), now, end)?))
}

/// All of a file, or an error that names the block.
fn certificates(path: &Path) -> anyhow::Result<Vec<x509::Certificate>> {
    let file = PemFile::read(path.display().to_string(), &files::read(path)?);
    if let Some(bad) = file.rejected.first() {
        bail!("{}: {}: {}", file.place, bad.place, bad.reason);
    }
    if file.certificates.is_empty() {
        bail!("{}: no certificate in it", file.place);
    }
    Ok(file.certificates)
}

fn lists(path: &Path) -> anyhow::Result<String> {
    let (lists, rejected) = x509::read_crls(&files::read(path)?);
    if let Some(bad) = rejected.first() {
        bail!("{}: {}: {}", path.display(), bad.place, bad.reason);
    }
    Ok(lists.iter().map(|list| x509::to_pem("X509 CRL", &list.der)).collect())
}
