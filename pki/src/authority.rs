//! A CA: its certificate, its key and the rule that nothing it issues outlives it.

mod crl;
mod outlook;

pub use crl::{Reason, Revoked, check_serial, crl_number, crl_to_pem, revoked_before};
pub use outlook::Outlook;
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, SigningKey as _};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use crate::{
    facts::{self, Facts},
    id::{SpiffeId, TrustDomain},
    key::{Key, PublicKey},
    profile::{self, Profile, Serial},
};

/// Why a CA can't be used or can't issue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The certificate can't be read.
    #[error(transparent)]
    Certificate(#[from] facts::Error),
    /// It is a leaf.
    #[error("the certificate is not a CA: basicConstraints cA and keyUsage keyCertSign must be set")]
    NotCa,
    /// Whatever it issues is refused (RUSTSEC-2026-0098).
    #[error(
        "the CA has a name constraint on URIs, and rustls, Istio's ambient mode and every verifier of ours refuse what it issues; have it signed again without name constraints"
    )]
    UriConstraints,
    /// It does not say whom it serves.
    #[error("a CA names its trust domain in exactly one URI SAN, this one has {0:?}")]
    TrustDomain(Vec<String>),
    /// Key and certificate don't belong together.
    #[error(
        "the private key does not belong to the certificate (key {key}, certificate {certificate}, SHA-256 of the public keys)"
    )]
    KeyMismatch {
        /// Hex SHA-256 of the key's public half.
        key: String,
        /// Hex SHA-256 of the certificate's key.
        certificate: String,
    },
    /// The subject can't be written back byte for byte, so what it issues would not chain.
    #[error("the CA's subject can't be reproduced as an issuer name; reissue the CA with a plain subject")]
    Subject,
    /// An ID of another trust domain.
    #[error("{id} is outside the CA's trust domain {trust_domain}")]
    Foreign {
        /// What was asked for.
        id: SpiffeId,
        /// What the CA serves.
        trust_domain: TrustDomain,
    },
    /// A site CA that should issue a CA, or a root that should issue an SVID.
    #[error("a {0} can't issue this kind of certificate")]
    Kind(&'static str),
    /// The CA is not valid now.
    #[error("the CA's {0}")]
    OutOfDate(String),
    /// The profile is refused.
    #[error(transparent)]
    Profile(#[from] profile::Error),
    /// A CRL's dates.
    #[error("a CRL's next update must come after this one")]
    CrlDates,
    /// A CRL by a CA that may not sign any.
    #[error("the CA may not sign CRLs: its keyUsage lacks cRLSign")]
    NotCrlSigner,
    /// An earlier CRL that can't be taken over.
    #[error("the earlier CRL can't be used: {0}")]
    Crl(String),
    /// Nothing that a CRL could name.
    #[error("{0:?} is not a serial number: 1 to 20 bytes, positive")]
    Serial(String),
    /// The library refused.
    #[error("signing failed: {0}")]
    Sign(String),
}

/// A CA that issues. Make one with [`Authority::root`] or [`Authority::load`], then [`Authority::issue`].
pub struct Authority {
    certificate: CertificateDer<'static>,
    facts: Facts,
    trust_domain: TrustDomain,
    issuer: Issuer<'static, Key>,
}

/// A certificate just issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// DER.
    pub certificate: CertificateDer<'static>,
    /// First valid second.
    pub not_before: OffsetDateTime,
    /// Last valid second.
    pub not_after: OffsetDateTime,
    /// By how much its lifetime was cut so that it does not outlive the CA.
    pub clamped: Option<Duration>,
}

impl Authority {
    /// Makes a self-signed root.
    pub fn root(
        trust_domain: &TrustDomain,
        key: Key,
        lifetime: Duration,
        serial: Serial,
        now: OffsetDateTime,
    ) -> Result<Self, Error> {
        let params = Profile::Root { lifetime }.params(trust_domain, serial, whole_second(now), None)?;
        let certificate = params.self_signed(&key).map_err(|e| Error::Sign(key.why(&e)))?;
        Self::load(certificate.der().clone(), key)
    }

    /// Takes a CA's certificate and key, and checks that they are what they seem.
    pub fn load(certificate: CertificateDer<'static>, key: Key) -> Result<Self, Error> {
        let facts = Facts::parse(&certificate)?;
        if !facts.is_ca() || !facts.may_sign_certificates() {
            return Err(Error::NotCa);
        }
        if facts.uri_constraints {
            return Err(Error::UriConstraints);
        }
        let trust_domain = trust_domain(&facts)?;
        check_key(&facts, &key)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| Error::Subject)?;
        check_subject(&facts, &issuer)?;
        Ok(Self { certificate, facts, trust_domain, issuer })
    }

    /// Issues a certificate for a key whose possession was proven. Only the key comes from the requester.
    pub fn issue(
        &self,
        profile: &Profile,
        key: &PublicKey,
        serial: Serial,
        now: OffsetDateTime,
    ) -> Result<Issued, Error> {
        let outlook = Outlook::new(&self.facts, profile, now)?;
        let params = profile.params(&self.trust_domain, serial, whole_second(now), Some(outlook.latest))?;
        let key = key.for_signing().map_err(|e| Error::Sign(e.to_string()))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|e| self.failed(&e))?;
        Ok(Issued {
            certificate: certificate.der().clone(),
            not_before: params.not_before,
            not_after: params.not_after,
            clamped: outlook.clamped,
        })
    }

    /// Signs a statement that is no certificate; `context` keeps it apart from everything else that the key signs.
    pub fn sign_statement(&self, context: &str, statement: &[u8]) -> Result<Vec<u8>, Error> {
        let message = self::statement(context, statement);
        self.issuer.key().sign(&message).map_err(|e| self.failed(&e))
    }

    fn failed(&self, error: &rcgen::Error) -> Error {
        Error::Sign(self.issuer.key().why(error))
    }

    /// The CA's certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// What the CA's certificate says.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// True if it was signed as the CA of this site: goes by [`Facts::site`], which holds the name whole.
    pub fn serves_site(&self, site: &str) -> bool {
        self.facts.site() == Some(site)
    }

    /// Signs a message with the CA's key: ECDSA in DER, with the hash of the key's curve.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.issuer.key().sign(message).map_err(|e| Error::Sign(e.to_string()))
    }

    /// The trust domain it serves.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }
}

/// Checks that key and certificate belong together.
pub fn check_key(facts: &Facts, key: &Key) -> Result<(), Error> {
    let public = key.public();
    if public.spki() == facts.spki {
        return Ok(());
    }
    Err(Error::KeyMismatch { key: public.sha256(), certificate: facts.key_sha256.clone() })
}

/// The trust domain that a CA's certificate names.
pub fn trust_domain(facts: &Facts) -> Result<TrustDomain, Error> {
    match facts.uris.as_slice() {
        [uri] => {
            SpiffeId::parse(uri).ok().filter(SpiffeId::is_trust_domain).map(|id| id.trust_domain().clone())
        }
        _ => None,
    }
    .ok_or_else(|| Error::TrustDomain(facts.uris.clone()))
}

/// Names pass through a map in the library, which can merge attributes: sign a probe and compare.
fn check_subject(facts: &Facts, issuer: &Issuer<'static, Key>) -> Result<(), Error> {
    let mut probe = CertificateParams::default();
    probe.distinguished_name = DistinguishedName::new();
    probe.distinguished_name.push(DnType::CommonName, "probe");
    let probe = probe.signed_by(issuer.key(), issuer).map_err(|e| Error::Sign(e.to_string()))?;
    if Facts::parse(probe.der())?.issuer_der == facts.subject_der { Ok(()) } else { Err(Error::Subject) }
}

/// What is signed for a statement. DER starts with 0x30, which is the digit 0 and never starts this.
pub(crate) fn statement(context: &str, statement: &[u8]) -> Vec<u8> {
    [b"isthmus statement, ", context.as_bytes(), b"\n", statement].concat()
}

fn whole_second(now: OffsetDateTime) -> OffsetDateTime {
    now.replace_nanosecond(0).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        key::Curve,
        testing::{Fabric, NOW, domain, serial},
    };

    #[test]
    fn every_field_is_set() {
        let fabric = Fabric::new("td");
        let (leaf, _) = fabric.node("gw1");
        let root = Facts::parse(&fabric.root_certificate()).unwrap();
        let site = Facts::parse(fabric.site.certificate()).unwrap();
        let leaf = Facts::parse(&leaf).unwrap();
        for (facts, ca, path_len, uri) in [
            (&root, true, Some(1), "spiffe://td"),
            (&site, true, Some(0), "spiffe://td"),
            (&leaf, false, None, "spiffe://td/site/s/node/gw1"),
        ] {
            let constraints = facts.basic_constraints.unwrap();
            assert_eq!((constraints.ca, constraints.path_len, constraints.critical), (ca, path_len, true));
            let usage = facts.key_usage.unwrap();
            assert_eq!((usage.digital_signature, usage.key_cert_sign, usage.crl_sign), (!ca, ca, ca));
            assert!(usage.critical && !facts.negative_serial && !facts.name_constraints);
            assert_eq!(facts.serial.len(), 32);
            assert_eq!(facts.uris, [uri]);
            assert!(facts.subject_key_id.is_some() && facts.authority_key_id.is_some());
        }
        assert_eq!(
            (&site.authority_key_id, &leaf.authority_key_id),
            (&root.subject_key_id, &site.subject_key_id)
        );
        assert_eq!((root.extended_key_usage, site.extended_key_usage), (None, None));
        assert_eq!(leaf.extended_key_usage.unwrap(), ["serverAuth", "clientAuth"]);
        let now = NOW.unix_timestamp();
        assert_eq!((root.not_before, site.not_before, leaf.not_before), (now - 3600, now - 3600, now - 60));
        assert_ne!(Facts::parse(Fabric::new("td").site.certificate()).unwrap().subject, site.subject);
    }

    #[test]
    fn subject_and_serial_are_told_without_reading_the_certificate() {
        let fabric = Fabric::shared();
        let (number, key) = (serial(), Key::generate(Curve::P256).unwrap().public());
        let id = domain("td").member("/w").unwrap();
        let profile = Profile::Svid { id, dns_names: vec![], lifetime: Duration::hours(1) };
        let facts =
            Facts::parse(&fabric.site.issue(&profile, &key, number, NOW).unwrap().certificate).unwrap();
        assert_eq!(facts.subject, profile::svid_subject(&domain("td"), number));
        assert_eq!(facts.serial, number.to_string());
    }

    /// RUSTSEC-2026-0098, rustls/webpki#514.
    #[test]
    fn a_ca_with_a_uri_constraint_issues_nothing() {
        // permittedSubtrees [0] { GeneralSubtree { uniformResourceIdentifier [6] or dNSName [2] "td" } }
        let constraint = |kind: u8| [&[0x30, 8, 0xa0, 6, 0x30, 4, kind, 2], b"td".as_slice()].concat();
        let load = |kind| {
            let key = Key::generate(Curve::P256).unwrap();
            let profile = Profile::Root { lifetime: Duration::days(1) };
            let mut params = profile.params(&domain("td"), serial(), NOW, None).unwrap();
            let names = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 30], constraint(kind));
            params.custom_extensions.push(names);
            let certificate = params.self_signed(&key).unwrap().der().clone();
            Authority::load(certificate, key).map(drop)
        };
        assert_eq!(load(0x86), Err(Error::UriConstraints));
        assert_eq!(load(0x82), Ok(()), "names of hosts hinder nobody's identity");
    }

    #[test]
    fn nothing_outlives_its_issuer() {
        let fabric = Fabric::new("td");
        let key = Key::generate(Curve::P256).unwrap().public();
        let id = domain("td").member("/w").unwrap();
        let profile = Profile::Svid { id, dns_names: vec![], lifetime: Duration::days(4000) };
        let issued = fabric.site.issue(&profile, &key, serial(), NOW).unwrap();
        assert_eq!(issued.not_after.unix_timestamp(), fabric.site.facts().not_after);
        assert_eq!(issued.clamped, Some(Duration::days(4000 - 90)));
        let late = fabric.site.issue(&profile, &key, serial(), NOW + Duration::days(91));
        assert!(matches!(late, Err(Error::OutOfDate(_))));
    }

    #[test]
    fn an_authority_stays_in_its_place() {
        let fabric = Fabric::new("td");
        let key = Key::generate(Curve::P256).unwrap().public();
        let svid = |domain_name: &str, path: &str| Profile::Svid {
            id: domain(domain_name).member(path).unwrap(),
            dns_names: vec![],
            lifetime: Duration::hours(1),
        };
        let issue = |authority: &Authority, profile: &Profile| authority.issue(profile, &key, serial(), NOW);
        assert!(matches!(issue(&fabric.site, &svid("other", "/w")), Err(Error::Foreign { .. })));
        assert!(matches!(
            issue(&fabric.site, &svid("td", "")),
            Err(Error::Profile(profile::Error::TrustDomainId(_)))
        ));
        assert!(matches!(issue(&fabric.root, &svid("td", "/w")), Err(Error::Kind("root"))));
        let ca = |site: &str| Profile::SiteCa { site: site.into(), lifetime: Duration::days(1) };
        assert!(matches!(issue(&fabric.site, &ca("s")), Err(Error::Kind("site CA"))));
        assert!(matches!(issue(&fabric.root, &ca("..")), Err(Error::Profile(profile::Error::Site(..)))));
        for name in ["", "a..b", "-a", "a b", "*.x", &"a".repeat(64)] {
            let Profile::Svid { id, lifetime, .. } = svid("td", "/w") else { panic!("svid") };
            let profile = Profile::Svid { id, dns_names: vec![name.into()], lifetime };
            assert!(
                matches!(issue(&fabric.site, &profile), Err(Error::Profile(profile::Error::DnsName(_)))),
                "{name}"
            );
        }
    }

    #[test]
    fn sites_that_differ_only_at_the_end_are_told_apart() {
        let fabric = Fabric::new("td");
        let [ours, theirs] = ["1", "2"].map(|end| "s".repeat(62) + end);
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: ours.clone(), lifetime: Duration::days(1) };
        let issued = fabric.root.issue(&profile, &key.public(), serial(), NOW).unwrap();
        let authority = Authority::load(issued.certificate, key).unwrap();
        assert!(authority.serves_site(&ours) && !authority.serves_site(&theirs));
        let subject = &authority.facts().subject;
        assert!(subject.contains(&format!("OU={ours}, CN=Isthmus site CA sss")), "{subject}");
        let too_long = Profile::SiteCa { site: "s".repeat(65), lifetime: Duration::days(1) };
        let refused = fabric.root.issue(&too_long, &authority.issuer.key().public(), serial(), NOW);
        assert!(matches!(refused, Err(Error::Profile(profile::Error::SiteTooLong(_)))));
        assert_eq!(fabric.root.facts().site(), None);
    }

    #[test]
    fn load_checks_what_it_is_given() {
        let fabric = Fabric::new("td");
        let key = || Key::generate(Curve::P256).unwrap();
        let wrong = Authority::load(fabric.site.certificate().clone(), key());
        assert!(matches!(wrong, Err(Error::KeyMismatch { .. })));
        assert!(
            fabric.site.serves_site("s") && !fabric.site.serves_site("t") && !fabric.root.serves_site("s")
        );
        let (leaf, leaf_key) = fabric.node("gw1");
        assert!(matches!(Authority::load(leaf, leaf_key), Err(Error::NotCa)));
    }
}
