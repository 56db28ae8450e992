//! A PKI made by the library, for tests that need one that the ceremony would not make: another root, other times, other names.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Result;
use isthmus_pki::{Authority, Curve, Key, Profile, Serial, TrustDomain, bundle::to_pem, csr};
use time::{Duration, OffsetDateTime};

use crate::{files::write_secret, mesh::node_section, node::Node};

/// The trust domain of every PKI made here that is given no other.
pub const TRUST_DOMAIN: &str = "test.example";

/// A root and one site CA, both valid from an hour before `now` for long.
pub struct Pki {
    root: Arc<Authority>,
    site: Authority,
    site_key: Key,
    name: String,
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

impl Pki {
    /// Makes one for the site of this name.
    ///
    /// # Errors
    /// When a key can't be made.
    pub fn new(site: &str, now: OffsetDateTime) -> Result<Self> {
        Self::of(TRUST_DOMAIN, site, now)
    }

    /// The same in another trust domain.
    ///
    /// # Errors
    /// When a key can't be made, or the name is none of a trust domain.
    pub fn of(domain: &str, site: &str, now: OffsetDateTime) -> Result<Self> {
        let long = Duration::days(3650);
        let domain = TrustDomain::parse(domain)?;
        let root = Authority::root(&domain, Key::generate(Curve::P384)?, long, serial(), now)?;
        Self::under(Arc::new(root), site, now)
    }

    /// Another site's, under the same root.
    ///
    /// # Errors
    /// When a key can't be made.
    pub fn beside(&self, site: &str, now: OffsetDateTime) -> Result<Self> {
        Self::under(self.root.clone(), site, now)
    }

    fn under(root: Arc<Authority>, site: &str, now: OffsetDateTime) -> Result<Self> {
        let (site_ca, site_key) = site_ca(&root, site, now)?;
        Ok(Self { root, site: site_ca, site_key, name: site.to_owned() })
    }

    /// Puts another site CA, under the same root, in the place of the first.
    ///
    /// # Errors
    /// When a key can't be made.
    pub fn renew_site(&mut self, now: OffsetDateTime) -> Result<()> {
        (self.site, self.site_key) = site_ca(&self.root, &self.name, now)?;
        Ok(())
    }

    /// The certificate of the site's next CA, for the request that its issuer made.
    ///
    /// # Errors
    /// When it is no request.
    pub fn sign_site(&self, request: &str) -> Result<String> {
        let request = csr::parse(request.as_bytes())?;
        let profile = Profile::SiteCa { site: self.name.clone(), lifetime: Duration::days(365) };
        let now = OffsetDateTime::now_utc();
        Ok(to_pem([&self.root.issue(&profile, &request.public_key, serial(), now)?.certificate]))
    }

    /// The root's certificate.
    pub fn root_pem(&self) -> String {
        to_pem([self.root.certificate()])
    }

    /// Writes `root.pem`, `site-ca.pem` and `site-ca.key` into `dir`.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn write_site(&self, dir: &Path) -> Result<()> {
        fs::write(dir.join("root.pem"), self.root_pem())?;
        fs::write(dir.join("site-ca.pem"), to_pem([self.site.certificate()]))?;
        write_secret(&dir.join("site-ca.key"), &self.site_key.to_pem())
    }

    /// Writes `node.pem` and `node.key`: an SVID of the node `name` made at `now` for `lifetime`.
    ///
    /// # Errors
    /// When the CA is not valid at `now`, or a file can't be written.
    pub fn write_node(&self, dir: &Path, name: &str, now: OffsetDateTime, lifetime: Duration) -> Result<()> {
        let id = self.root.trust_domain().member(&format!("/site/{}/node/{name}", self.name))?;
        let (profile, key) =
            (Profile::Svid { id, dns_names: Vec::new(), lifetime }, Key::generate(Curve::P256)?);
        let issued = self.site.issue(&profile, &key.public(), serial(), now)?;
        fs::write(dir.join("node.pem"), to_pem([&issued.certificate, self.site.certificate()]))?;
        write_secret(&dir.join("node.key"), &key.to_pem())
    }

    /// Everything that an issuer needs, into `dir`, valid now.
    ///
    /// # Errors
    /// As the others.
    pub fn write_all(&self, dir: &Path, name: &str) -> Result<()> {
        self.write_site(dir)?;
        self.write_node(dir, name, OffsetDateTime::now_utc(), Duration::days(1))
    }
}

fn site_ca(root: &Authority, site: &str, now: OffsetDateTime) -> Result<(Authority, Key)> {
    let key = Key::generate(Curve::P256)?;
    let profile = Profile::SiteCa { site: site.to_owned(), lifetime: Duration::days(365) };
    let issued = root.issue(&profile, &key.public(), serial(), now)?;
    Ok((Authority::load(issued.certificate, Key::from_pkcs8(&key.to_pkcs8())?)?, key))
}

/// A configuration of `node` at `site` with the files in its own directory, and an issuer; entries may follow.
pub fn issuer_config(node: &Node, site: &str) -> String {
    let socket: PathBuf = node.workload_socket();
    format!(
        "{}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n[workload_api]\nsocket = {socket:?}\n",
        identity_config(node, site)
    )
}

/// The same without an issuer.
pub fn identity_config(node: &Node, site: &str) -> String {
    format!(
        "{}[identity]\ntrust_bundle = \"root.pem\"\nsvid = \"node.pem\"\nkey = \"node.key\"\n",
        node_section(node, Some(site))
    )
}
