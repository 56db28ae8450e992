//! `[federation]`: who is told our bundle, and whose bundles we fetch. Nothing is inferred: trust domain, URL and profile are each
//! written down (SPIFFE Federation section 5.1).

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use hyper::Uri;
use isthmus_pki::{SpiffeId, TrustDomain};
use serde::Deserialize;
use toml::Spanned;

use super::{Bundles, FederationError, client::Client, fetch::check_url, web};
use crate::config::Checker;

/// SPIFFE Federation section 4.1: what a reader does that is told nothing.
const DEFAULT_REFRESH: Duration = Duration::from_secs(300);
const REFRESH_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(86_400);

/// A validated `[federation]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FederationConfig {
    /// Where fetched bundles are kept: `federation` in the node's state directory.
    pub state_dir: PathBuf,
    /// Where our own bundle is served.
    pub endpoint: Option<EndpointConfig>,
    /// Whose bundles are fetched.
    pub domains: Vec<DomainConfig>,
}

/// Our bundle endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Address and TCP port.
    pub listen: SocketAddr,
    /// What it proves itself with.
    pub proof: EndpointProof,
    /// Path of the bundle, from the first slash.
    pub path: String,
    /// How often readers should look, told to them in the bundle.
    pub refresh_hint: Duration,
}

/// What a bundle endpoint shows to its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointProof {
    /// `https_web`: a certificate of the web's PKI.
    Web {
        /// PEM, leaf first.
        certificate: PathBuf,
        /// PEM, 0600.
        key: PathBuf,
    },
    /// `https_spiffe`: the node's own SVID.
    Spiffe,
}

/// A `[[federation.trust_domain]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// Whose bundle it is.
    pub trust_domain: TrustDomain,
    /// Where it is.
    pub url: Uri,
    /// How that place proves itself.
    pub profile: Profile,
}

/// How a foreign endpoint proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `https_web`: by its DNS name and a CA of the web.
    Web {
        /// PEM with the CAs; none: those of the operating system.
        ca_file: Option<PathBuf>,
    },
    /// `https_spiffe`: by its SPIFFE ID.
    Spiffe {
        /// Who it must be.
        endpoint_id: SpiffeId,
        /// Bundle of that ID's trust domain, to begin with: PEM or a bundle document.
        bootstrap_bundle: PathBuf,
    },
}

impl FederationConfig {
    /// Reads and checks every file that it names, and keeps nothing.
    pub fn check(&self) -> Result<(), FederationError> {
        for domain in &self.domains {
            Client::open(domain.clone(), &self.state_dir, Bundles::default())?;
        }
        match self.endpoint.as_ref().map(|endpoint| &endpoint.proof) {
            Some(EndpointProof::Web { certificate, key }) => web::server(certificate, key).map(drop),
            _ => Ok(()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFederationConfig {
    listen: Option<Spanned<String>>,
    profile: Option<Spanned<String>>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    path: Option<Spanned<String>>,
    refresh_hint: Option<Spanned<String>>,
    #[serde(default)]
    trust_domain: Vec<Spanned<RawDomain>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDomain {
    name: Spanned<String>,
    url: Spanned<String>,
    profile: Spanned<String>,
    ca_file: Option<Spanned<PathBuf>>,
    endpoint_spiffe_id: Option<Spanned<String>>,
    bootstrap_bundle: Option<Spanned<PathBuf>>,
}

const PROFILES: &str = "write \"https_web\" or \"https_spiffe\"";

impl RawFederationConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>, state_dir: &std::path::Path) -> Option<FederationConfig> {
        let count = self.trust_domain.len();
        let mut names = BTreeSet::new();
        let mut domains = Vec::new();
        for raw in self.trust_domain {
            let span = raw.span();
            let Some(domain) = raw.into_inner().check(c) else { continue };
            if names.insert(domain.trust_domain.clone()) {
                domains.push(domain);
            } else {
                let message = format!("trust domain {} is there twice", domain.trust_domain);
                c.problem(span, message, "keep one: a domain has one bundle");
            }
        }
        let endpoint = match self.listen {
            Some(listen) => {
                let raw = RawEndpoint {
                    listen,
                    profile: self.profile,
                    certificate: self.certificate,
                    key: self.key,
                    path: self.path,
                    refresh_hint: self.refresh_hint,
                };
                Some(raw.check(c)?)
            }
            None => {
                let stray = self.profile.map(|raw| raw.span());
                let stray =
                    stray.or(self.certificate.map(|raw| raw.span())).or(self.key.map(|raw| raw.span()));
                if let Some(span) =
                    stray.or(self.path.map(|raw| raw.span())).or(self.refresh_hint.map(|r| r.span()))
                {
                    c.problem(
                        span,
                        "this is about our endpoint, and there is none",
                        "add listen = \"[::]:8443\"",
                    );
                    return None;
                }
                None
            }
        };
        (domains.len() == count).then(|| FederationConfig {
            state_dir: state_dir.join("federation"),
            endpoint,
            domains,
        })
    }
}

struct RawEndpoint {
    listen: Spanned<String>,
    profile: Option<Spanned<String>>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    path: Option<Spanned<String>>,
    refresh_hint: Option<Spanned<String>>,
}

impl RawEndpoint {
    fn check(self, c: &mut Checker<'_>) -> Option<EndpointConfig> {
        let listen = self.listen.get_ref().parse().ok();
        let help = "write ADDRESS:PORT: \"[::]:8443\"";
        c.require(listen.is_some(), &self.listen, "this is not an address to listen on", help);
        let path = self.path.as_ref().map_or("/", |raw| raw.get_ref().as_str()).to_owned();
        if let Some(raw) = &self.path {
            let good = path.starts_with('/') && path.parse::<Uri>().is_ok_and(|uri| uri.path() == path);
            c.require(
                good,
                raw,
                "this is not the path of a URL",
                "write it from the slash: \"/bundle.json\"",
            );
        }
        let refresh_hint =
            self.refresh_hint.map_or(Some(DEFAULT_REFRESH), |raw| c.duration(&raw, REFRESH_RANGE));
        let name = self.profile.as_ref().map(|raw| raw.get_ref().as_str());
        let proof = match (name, self.certificate, self.key) {
            (Some("https_spiffe"), None, None) => Some(EndpointProof::Spiffe),
            (Some("https_web"), Some(certificate), Some(key)) => {
                let file = c.readable_file(&certificate, "web certificate");
                c.secret_file(&key, "key file")?;
                Some(EndpointProof::Web { certificate: file?, key: c.path(key.get_ref()) })
            }
            (Some("https_web"), ..) => {
                let help = "add certificate = \"web.pem\" and key = \"web.key\"";
                c.problem(self.listen.span(), "https_web needs certificate and key", help);
                None
            }
            (Some("https_spiffe"), ..) => {
                let help = "remove them, or set profile = \"https_web\"";
                c.problem(
                    self.listen.span(),
                    "https_spiffe shows the node's SVID: no certificate, no key",
                    help,
                );
                None
            }
            _ => {
                let span = self.profile.as_ref().map_or(self.listen.span(), Spanned::span);
                c.problem(span, "an endpoint needs a profile", PROFILES);
                None
            }
        };
        Some(EndpointConfig { listen: listen?, proof: proof?, path, refresh_hint: refresh_hint? })
    }
}

impl RawDomain {
    fn check(self, c: &mut Checker<'_>) -> Option<DomainConfig> {
        let trust_domain = TrustDomain::parse(self.name.get_ref());
        if let Err(reason) = &trust_domain {
            let message =
                format!("\"{}\" is not a trust domain: {reason}", self.name.get_ref().escape_debug());
            c.problem(self.name.span(), message, "write the bare name: \"partner.example\"");
        }
        let url = self.url.get_ref().parse::<Uri>().map_err(|e| e.to_string());
        let url = url.and_then(|url| check_url(&url).map(|()| url));
        if let Err(reason) = &url {
            let message = format!("this is not the URL of a bundle endpoint: {reason}");
            c.problem(self.url.span(), message, "write \"https://HOST[:PORT]/PATH\", without user name");
        }
        let span = self.profile.span();
        let web_only = self.ca_file.as_ref().map(Spanned::span);
        let spiffe_only = self.endpoint_spiffe_id.as_ref().map(Spanned::span);
        let spiffe_only = spiffe_only.or(self.bootstrap_bundle.as_ref().map(Spanned::span));
        let profile = match self.profile.get_ref().as_str() {
            "https_web" => {
                unused(c, spiffe_only, "https_spiffe")?;
                match self.ca_file {
                    Some(raw) => Some(Profile::Web { ca_file: Some(c.readable_file(&raw, "CA file")?) }),
                    None => Some(Profile::Web { ca_file: None }),
                }
            }
            "https_spiffe" => {
                unused(c, web_only, "https_web")?;
                let (Some(id), Some(bundle)) = (self.endpoint_spiffe_id, self.bootstrap_bundle) else {
                    let help =
                        "add endpoint_spiffe_id = \"spiffe://...\" and bootstrap_bundle = \"partner.pem\"";
                    c.problem(
                        span,
                        "https_spiffe must know whom it talks to, and whom it believes at first",
                        help,
                    );
                    return None;
                };
                check_spiffe(c, &id, &bundle)
            }
            _ => {
                c.problem(span, "this is not a profile", PROFILES);
                None
            }
        };
        Some(DomainConfig { trust_domain: trust_domain.ok()?, url: url.ok()?, profile: profile? })
    }
}

fn unused(c: &mut Checker<'_>, span: Option<std::ops::Range<usize>>, profile: &str) -> Option<()> {
    let Some(span) = span else { return Some(()) };
    c.problem(span, format!("this belongs to profile {profile}"), "remove it, or change the profile");
    None
}

fn check_spiffe(c: &mut Checker<'_>, id: &Spanned<String>, bundle: &Spanned<PathBuf>) -> Option<Profile> {
    let parsed = SpiffeId::parse(id.get_ref()).ok().filter(|id| !id.is_trust_domain());
    let help = "write the endpoint's whole ID: \"spiffe://partner.example/spire/server\"";
    c.require(parsed.is_some(), id, "this is not the SPIFFE ID of an endpoint", help);
    let bootstrap_bundle = c.readable_file(bundle, "bootstrap bundle");
    Some(Profile::Spiffe { endpoint_id: parsed?, bootstrap_bundle: bootstrap_bundle? })
}

#[cfg(test)]
mod tests;
