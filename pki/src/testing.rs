//! A small fabric for the tests of this crate, on a clock of its own.

pub(crate) mod forge;

use std::sync::LazyLock;

use rcgen::{
    CertificateParams, CertificateRevocationListParams, CrlDistributionPoint, CrlIssuingDistributionPoint,
    Issuer, KeyIdMethod, RevokedCertParams, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime, macros::datetime};

use crate::{
    authority::Authority,
    bundle::Bundle,
    crl::Crl,
    facts::Facts,
    id::{SpiffeId, TrustDomain, node_id},
    key::{Curve, Key},
    profile::{Profile, Serial},
};

/// The clock of the tests.
pub(crate) const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

/// Root and one site CA, both made at [`NOW`].
pub(crate) struct Fabric {
    pub(crate) root: Authority,
    pub(crate) site: Authority,
    root_key: Key,
    site_key: Key,
}

pub(crate) fn domain(name: &str) -> TrustDomain {
    TrustDomain::parse(name).unwrap()
}

pub(crate) fn serial() -> Serial {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    Serial::from_random(bytes)
}

impl Fabric {
    pub(crate) fn new(trust_domain: &str) -> Self {
        let key = Key::generate(Curve::P384).unwrap();
        let root_key = Key::from_pkcs8(&key.to_pkcs8()).unwrap();
        let root = Authority::root(&domain(trust_domain), key, Duration::days(3650), serial(), NOW).unwrap();
        let site_key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: "s".into(), lifetime: Duration::days(90) };
        let site = root.issue(&profile, &site_key.public(), serial(), NOW).unwrap();
        let copy = Key::from_pkcs8(&site_key.to_pkcs8()).unwrap();
        Self { root, site: Authority::load(site.certificate, copy).unwrap(), root_key, site_key }
    }

    /// One for tests that only read.
    pub(crate) fn shared() -> &'static Self {
        static FABRIC: LazyLock<Fabric> = LazyLock::new(|| Fabric::new("td"));
        &FABRIC
    }

    pub(crate) fn root_certificate(&self) -> CertificateDer<'static> {
        self.root.certificate().clone()
    }

    /// The root and its key.
    pub(crate) fn root_with_key(&self) -> (&Authority, &Key) {
        (&self.root, &self.root_key)
    }

    pub(crate) fn bundle(&self) -> Bundle {
        Bundle::parse(self.root.certificate()).unwrap()
    }

    /// Another site's CA, under the same root.
    pub(crate) fn site_ca(&self, site: &str) -> Authority {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: site.into(), lifetime: Duration::days(90) };
        let certificate = self.root.issue(&profile, &key.public(), serial(), NOW).unwrap().certificate;
        Authority::load(certificate, key).unwrap()
    }

    pub(crate) fn site_key_pem(&self) -> zeroize::Zeroizing<String> {
        self.site_key.to_pem()
    }

    /// A node's SVID, for a day.
    pub(crate) fn node(&self, name: &str) -> (CertificateDer<'static>, Key) {
        self.svid(node_id(self.site.trust_domain(), "s", name).unwrap())
    }

    pub(crate) fn svid(&self, id: SpiffeId) -> (CertificateDer<'static>, Key) {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::Svid { id, dns_names: vec![], lifetime: Duration::days(1) };
        (self.site.issue(&profile, &key.public(), serial(), NOW).unwrap().certificate, key)
    }

    /// A certificate that our profiles would never make, signed by the site CA.
    pub(crate) fn forge(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let key = Key::generate(Curve::P256).unwrap();
        let id = node_id(self.site.trust_domain(), "s", "gw1").unwrap();
        let profile = Profile::Svid { id, dns_names: vec![], lifetime: Duration::days(1) };
        let mut params = profile.params(self.site.trust_domain(), serial(), NOW, None).unwrap();
        change(&mut params);
        let issuer = Issuer::from_ca_cert_der(self.site.certificate(), &self.site_key).unwrap();
        params.signed_by(&key, &issuer).unwrap().der().clone()
    }

    /// Any certificate, signed by the root.
    pub(crate) fn sign_with_root(&self, params: &CertificateParams, key: &Key) -> CertificateDer<'static> {
        let issuer = Issuer::from_ca_cert_der(self.root.certificate(), &self.root_key).unwrap();
        params.signed_by(key, &issuer).unwrap().der().clone()
    }

    /// The root's list, a month long: who is on it, and its number.
    pub(crate) fn crl(&self, revoked: &[&Facts], number: u64) -> Crl {
        Crl::parse(&self.crl_der(revoked, number, false)).unwrap()
    }

    /// The same in DER, perhaps for a part of what the root signed.
    pub(crate) fn crl_der(&self, revoked: &[&Facts], number: u64, partial: bool) -> Vec<u8> {
        let entry = |facts: &&Facts| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&hex::decode(&facts.serial).unwrap()),
            revocation_time: NOW,
            reason_code: None,
            invalidity_date: None,
        };
        let point = CrlIssuingDistributionPoint {
            distribution_point: CrlDistributionPoint { uris: vec!["https://crl.example/1".into()] },
            scope: None,
        };
        let params = CertificateRevocationListParams {
            this_update: NOW,
            next_update: NOW + Duration::days(30),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: partial.then_some(point),
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::from_ca_cert_der(self.root.certificate(), &self.root_key).unwrap();
        params.signed_by(&issuer).unwrap().der().to_vec()
    }
}
