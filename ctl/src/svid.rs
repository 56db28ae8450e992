//! `isthmusctl svid fetch`: the X.509-SVIDs that the SPIFFE Workload API gives to this process.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use isthmus_pki::{Facts, Key, bundle};
use isthmus_proto::workload::spiffe_workload_api_client::SpiffeWorkloadApiClient;
use isthmus_proto::workload::{X509svid, X509svidRequest, X509svidResponse};
use serde::Serialize;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};
use zeroize::Zeroizing;

use crate::certs::expiry;
use crate::cli::SvidFetch;
use crate::client::Server;
use crate::failure::Failure;
use crate::moment::{Moment, distance};
use crate::output::{Document, Output};
use crate::page::{Cell, Page};
use crate::svid_files;
use crate::text;
use crate::watch;

const DEFAULT_ENDPOINT: &str = "unix:///run/isthmus/workload.sock";

/// How long to wait for the first message of the stream; it comes at once where an identity is due.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Fetches the identities once, writes them where that is asked for, and prints them without their keys.
///
/// # Errors
/// An endpoint that cannot be reached, no identity for this process, an answer that makes no sense, files that cannot be written.
pub(crate) fn fetch(output: &Output, options: &SvidFetch) -> Result<(), Failure> {
    let socket = endpoint(options.workload_socket.clone(), env::var("SPIFFE_ENDPOINT_SOCKET").ok())?;
    let response = watch::run(receive(&Server::workload(&socket)))?;
    let federated = response.federated_bundles.keys().cloned().collect();
    let identities = response.svids.into_iter().map(Identity::try_from).collect::<Result<Vec<_>, _>>()?;
    let written = match &options.write {
        Some(directory) => svid_files::write(directory, &identities)?,
        None => Vec::new(),
    };
    output.print(&SvidsDocument {
        schema: "isthmus.v1/svids",
        svids: identities.iter().map(Svid::from).collect(),
        federated_trust_domains: federated,
        written: written.iter().map(|path| path.display().to_string()).collect(),
    })
}

/// The socket's path from the option, else the environment, else the default (SPIFFE Workload Endpoint, section 4).
fn endpoint(option: Option<String>, environment: Option<String>) -> Result<PathBuf, Failure> {
    let environment = environment.filter(|value| !value.is_empty());
    let (source, uri) = match (option, environment) {
        (Some(uri), _) => ("--workload-socket", uri),
        (None, Some(uri)) => ("SPIFFE_ENDPOINT_SOCKET", uri),
        (None, None) => ("the default", DEFAULT_ENDPOINT.to_owned()),
    };
    let path = uri.strip_prefix("unix://").or_else(|| uri.strip_prefix("unix:"));
    match path {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err(Failure::usage(format!("{source} is {uri:?}, but must be unix:///ABSOLUTE/PATH"))),
    }
}

async fn receive(server: &Server) -> Result<X509svidResponse, Failure> {
    let mut client = SpiffeWorkloadApiClient::new(server.connect().await?);
    let mut request = Request::new(X509svidRequest {});
    // The server refuses without it: a browser that is tricked into asking cannot set it.
    request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
    let first = async {
        let mut stream = client.fetch_x509svid(request).await?.into_inner();
        stream.message().await
    };
    let first = tokio::time::timeout(ANSWER_WITHIN, first)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("no first message")));
    match first {
        Ok(Some(response)) => Ok(response),
        Ok(None) => Err(Failure::failed("the Workload API ended the stream without an identity")),
        Err(status) if status.code() == Code::PermissionDenied => {
            Err(server.failed(&status).with_help(
                "no [[workload_api.entry]] in isthmusd.toml matches this process: compare its selectors with the output of id",
            ))
        }
        Err(status) => Err(server.failed(&status)),
    }
}

/// One identity as received, read and found to be what it claims.
pub(crate) struct Identity {
    pub(crate) spiffe_id: String,
    hint: String,
    /// The leaf and its intermediates, leaf first.
    pub(crate) chain: Vec<Vec<u8>>,
    leaf: Facts,
    /// PKCS#8 DER.
    pub(crate) key: Zeroizing<Vec<u8>>,
    /// Roots of the own trust domain.
    pub(crate) bundle: Vec<Vec<u8>>,
}

impl TryFrom<X509svid> for Identity {
    type Error = Failure;

    fn try_from(svid: X509svid) -> Result<Self, Failure> {
        let key = Zeroizing::new(svid.x509_svid_key);
        let id = svid.spiffe_id;
        let wrong = |what: String| Failure::failed(format!("the Workload API sent {id} {what}"));
        let chain = certificates(&svid.x509_svid).map_err(|why| wrong(format!("with a bad chain: {why}")))?;
        let bundle = certificates(&svid.bundle).map_err(|why| wrong(format!("with a bad bundle: {why}")))?;
        let leaf = Facts::parse(&chain[0]).map_err(|why| wrong(format!("with a bad chain: {why}")))?;
        if leaf.uris != [id.as_str()] {
            return Err(wrong(format!("with a certificate for {}", leaf.uris.join(", "))));
        }
        let public = Key::from_pkcs8(&key).map_err(|why| wrong(format!("with a bad key: {why}")))?.public();
        if public.spki() != leaf.spki {
            return Err(wrong("with a key that does not belong to its certificate".to_owned()));
        }
        Ok(Self { spiffe_id: id, hint: svid.hint, chain, leaf, key, bundle })
    }
}

/// Concatenated DER certificates, one or more.
fn certificates(der: &[u8]) -> Result<Vec<Vec<u8>>, bundle::Error> {
    Ok(bundle::certificates(der)?.iter().map(|certificate| certificate.to_vec()).collect())
}

/// Schema `isthmus.v1/svids`. Keys are never part of it.
#[derive(Debug, Serialize)]
struct SvidsDocument {
    schema: &'static str,
    svids: Vec<Svid>,
    federated_trust_domains: Vec<String>,
    /// Files that were written.
    written: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Svid {
    spiffe_id: String,
    hint: Option<String>,
    not_before: Option<Moment>,
    not_after: Option<Moment>,
    serial: String,
    issuer: String,
    dns_names: Vec<String>,
    chain_length: usize,
    bundle_length: usize,
    sha256: String,
}

impl From<&Identity> for Svid {
    fn from(identity: &Identity) -> Self {
        let leaf = &identity.leaf;
        Self {
            spiffe_id: identity.spiffe_id.clone(),
            hint: text::known(identity.hint.clone()),
            not_before: Moment::from_unix(leaf.not_before),
            not_after: Moment::from_unix(leaf.not_after),
            serial: leaf.serial.clone(),
            issuer: leaf.issuer.clone(),
            dns_names: leaf.dns_names.clone(),
            chain_length: identity.chain.len(),
            bundle_length: identity.bundle.len(),
            sha256: leaf.sha256.clone(),
        }
    }
}

impl Document for SvidsDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let header = ["SPIFFE ID", "HINT", "ISSUED", "EXPIRES", "SERIAL", "ISSUER"];
        page.table(header, self.svids.iter().map(|svid| svid.row(now)), "no identities");
        for domain in &self.federated_trust_domains {
            page.line(format!("with the bundle of {domain}"));
        }
        for path in &self.written {
            page.line(format!("wrote {path}"));
        }
    }
}

impl Svid {
    fn row(&self, now: Moment) -> [Cell; 6] {
        [
            self.spiffe_id.as_str().into(),
            self.hint.as_deref().unwrap_or("").into(),
            distance(self.not_before, now).into(),
            expiry(self.not_before, self.not_after, now),
            self.serial.as_str().into(),
            self.issuer.as_str().into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_beats_the_environment_beats_the_default() {
        let path = |option: Option<&str>, environment: Option<&str>| {
            endpoint(option.map(str::to_owned), environment.map(str::to_owned))
                .map(|path| path.display().to_string())
        };
        assert_eq!(path(Some("unix:///a"), Some("unix:///b")).expect("valid"), "/a");
        assert_eq!(path(None, Some("unix:/b")).expect("valid"), "/b");
        assert_eq!(path(None, Some("")).expect("valid"), "/run/isthmus/workload.sock");
        assert_eq!(path(None, None).expect("valid"), "/run/isthmus/workload.sock");
        for bad in ["", "/run/x.sock", "unix://", "unix:relative", "tcp://127.0.0.1:80", "unix://host/path"] {
            assert!(path(Some(bad), None).is_err(), "{bad}");
        }
    }
}
