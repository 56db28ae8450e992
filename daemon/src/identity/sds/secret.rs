//! Secrets as Envoy reads them.

use isthmus_proto::sds::envoy::{
    config::core::v3::{DataSource, TypedExtensionConfig, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{
        CertificateValidationContext, Secret, SpiffeCertValidatorConfig, TlsCertificate, secret::Type,
        spiffe_cert_validator_config::TrustDomain,
    },
};
use prost::Message as _;
use prost_types::Any;
use zeroize::Zeroizing;

use super::session::TYPE_URL;

/// Name of the extension in Envoy.
const SPIFFE_VALIDATOR: &str = "envoy.tls.cert_validator.spiffe";
const SPIFFE_VALIDATOR_URL: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig";

/// A certificate with its key, both PEM.
pub struct Certificate {
    /// Leaf first.
    pub chain: Vec<u8>,
    /// PKCS#8.
    pub key: Zeroizing<String>,
}

/// The anchors of one trust domain.
pub struct Anchors {
    /// Its bare name.
    pub trust_domain: String,
    /// PEM, never empty.
    pub pem: Vec<u8>,
}

fn inline(bytes: &[u8]) -> Option<DataSource> {
    Some(DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())) })
}

fn resource(name: &str, secret: Type) -> Any {
    let secret = Secret { name: name.to_owned(), r#type: Some(secret) };
    Any { type_url: TYPE_URL.into(), value: secret.encode_to_vec() }
}

/// A certificate with its key.
pub fn certificate(name: &str, certificate: &Certificate) -> Any {
    let certificate = TlsCertificate {
        certificate_chain: inline(&certificate.chain),
        private_key: inline(certificate.key.as_bytes()),
    };
    resource(name, Type::TlsCertificate(certificate))
}

/// The anchors of one trust domain. Envoy takes them for whatever a certificate under them says, so it is told nothing of other domains.
/// It is given no CRL either: with one it would demand one of every CA in a chain, and a site CA signs none.
pub fn bundle(name: &str, anchors: &Anchors) -> Any {
    let context =
        CertificateValidationContext { trusted_ca: inline(&anchors.pem), custom_validator_config: None };
    resource(name, Type::ValidationContext(context))
}

/// The anchors of several trust domains: Envoy's SPIFFE validator takes each for the IDs of its own domain only.
pub fn all_bundles(name: &str, all: &[Anchors]) -> Any {
    let domain = |anchors: &Anchors| TrustDomain {
        name: anchors.trust_domain.clone(),
        trust_bundle: inline(&anchors.pem),
    };
    let config = SpiffeCertValidatorConfig { trust_domains: all.iter().map(domain).collect() };
    let config = Any { type_url: SPIFFE_VALIDATOR_URL.into(), value: config.encode_to_vec() };
    let context = CertificateValidationContext {
        trusted_ca: None,
        custom_validator_config: Some(TypedExtensionConfig {
            name: SPIFFE_VALIDATOR.into(),
            typed_config: Some(config),
        }),
    };
    resource(name, Type::ValidationContext(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(any: &Any) -> (String, Type) {
        assert_eq!(any.type_url, "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret");
        let secret = Secret::decode(&any.value[..]).unwrap();
        (secret.name, secret.r#type.unwrap())
    }

    #[test]
    fn domains_are_never_pooled() {
        let anchors = |name: &str, pem: &str| Anchors { trust_domain: name.into(), pem: pem.into() };
        let all = all_bundles("ALL", &[anchors("a", "A"), anchors("b", "B")]);
        let (name, Type::ValidationContext(context)) = read(&all) else { panic!() };
        assert_eq!((name.as_str(), context.trusted_ca), ("ALL", None));
        let validator = context.custom_validator_config.unwrap();
        assert_eq!(validator.name, "envoy.tls.cert_validator.spiffe");
        let config = validator.typed_config.unwrap();
        let config = SpiffeCertValidatorConfig::decode(&config.value[..]).unwrap();
        let domains: Vec<_> = config.trust_domains.into_iter().map(|d| (d.name, d.trust_bundle)).collect();
        assert_eq!(domains, [("a".to_owned(), inline(b"A")), ("b".to_owned(), inline(b"B"))]);
    }

    #[test]
    fn a_certificate_and_a_bundle() {
        let svid = Certificate { chain: b"C".to_vec(), key: Zeroizing::new("K".into()) };
        let expected = TlsCertificate { certificate_chain: inline(b"C"), private_key: inline(b"K") };
        assert_eq!(read(&certificate("x", &svid)), ("x".into(), Type::TlsCertificate(expected)));
        let roots = bundle("y", &Anchors { trust_domain: "a".into(), pem: b"R".to_vec() });
        let (name, Type::ValidationContext(context)) = read(&roots) else { panic!() };
        assert_eq!((name.as_str(), context.trusted_ca), ("y", inline(b"R")));
        assert_eq!(context.custom_validator_config, None);
    }
}
