//! Field numbers and type names of Envoy's secret discovery service, against bytes worked out by hand from Envoy's definitions.

use isthmus_proto::sds::{
    envoy::{
        config::core::v3::{DataSource, Node, TypedExtensionConfig, data_source::Specifier},
        extensions::transport_sockets::tls::v3::{
            CertificateValidationContext, Secret, SpiffeCertValidatorConfig, TlsCertificate, secret,
            spiffe_cert_validator_config::TrustDomain,
        },
        service::{
            discovery::v3::{DiscoveryRequest, DiscoveryResponse},
            secret::v3::secret_discovery_service_server::SERVICE_NAME,
        },
    },
    google::rpc::Status,
};
use prost::{Message, Name};

fn inline(bytes: &[u8]) -> Option<DataSource> {
    Some(DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())) })
}

#[test]
fn the_service_is_envoys() {
    assert_eq!(SERVICE_NAME, "envoy.service.secret.v3.SecretDiscoveryService");
}

#[test]
fn requests() {
    let request = DiscoveryRequest {
        version_info: "1".into(),
        node: Some(Node { id: "n".into(), cluster: "c".into(), user_agent_name: "e".into() }),
        resource_names: vec!["default".into()],
        type_url: "t".into(),
        response_nonce: "o".into(),
        error_detail: Some(Status { code: 3, message: "m".into() }),
    };
    let mut golden = vec![0x0a, 1, b'1', 0x12, 9, 0x0a, 1, b'n', 0x12, 1, b'c', 0x32, 1, b'e', 0x1a, 7];
    golden.extend(b"default");
    golden.extend([0x22, 1, b't', 0x2a, 1, b'o', 0x32, 5, 0x08, 3, 0x12, 1, b'm']);
    assert_eq!(request.encode_to_vec(), golden);
    // What else Envoy sends about itself is skipped: metadata 3, build version 8, extensions 9.
    let mut node = vec![0x12, 11, 0x0a, 1, b'n', 0x1a, 0, 0x42, 0, 0x4a, 2, 0x0a, 0];
    node.extend([0x3a, 0]);
    let request = DiscoveryRequest::decode(&node[..]).expect("decodes");
    assert_eq!(request.node.expect("node").id, "n");
}

#[test]
fn responses() {
    let any = prost_types::Any { type_url: "u".into(), value: vec![7] };
    let response = DiscoveryResponse {
        version_info: "2".into(),
        resources: vec![any],
        type_url: "t".into(),
        nonce: "o".into(),
    };
    let golden = [0x0a, 1, b'2', 0x12, 6, 0x0a, 1, b'u', 0x12, 1, 7, 0x22, 1, b't', 0x2a, 1, b'o'];
    assert_eq!(response.encode_to_vec(), golden);
}

#[test]
fn secrets() {
    let certificate = TlsCertificate { certificate_chain: inline(&[1]), private_key: inline(&[2]) };
    let svid = Secret { name: "d".into(), r#type: Some(secret::Type::TlsCertificate(certificate)) };
    let golden = [0x0a, 1, b'd', 0x12, 10, 0x0a, 3, 0x12, 1, 1, 0x12, 3, 0x12, 1, 2];
    assert_eq!(svid.encode_to_vec(), golden);

    let context = CertificateValidationContext { trusted_ca: inline(&[3]), custom_validator_config: None };
    let anchors = Secret { name: "r".into(), r#type: Some(secret::Type::ValidationContext(context)) };
    assert_eq!(anchors.encode_to_vec(), [0x0a, 1, b'r', 0x22, 5, 0x0a, 3, 0x12, 1, 3]);

    let config = TypedExtensionConfig { name: "x".into(), typed_config: Some(prost_types::Any::default()) };
    let context = CertificateValidationContext { trusted_ca: None, custom_validator_config: Some(config) };
    assert_eq!(context.encode_to_vec(), [0x62, 5, 0x0a, 1, b'x', 0x12, 0]);

    let domain = TrustDomain { name: "a".into(), trust_bundle: inline(&[4]) };
    let all = SpiffeCertValidatorConfig { trust_domains: vec![domain] };
    assert_eq!(all.encode_to_vec(), [0x0a, 8, 0x0a, 1, b'a', 0x12, 3, 0x12, 1, 4]);
}

#[test]
fn types_have_envoys_names() {
    // prost's own idea of the names, where it was told to keep them.
    fn of<M: Name>() -> String {
        M::full_name()
    }
    assert_eq!(of::<Secret>(), "envoy.extensions.transport_sockets.tls.v3.Secret");
    assert_eq!(
        of::<SpiffeCertValidatorConfig>(),
        "envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig"
    );
}

#[test]
fn debug_shows_no_key() {
    let source = inline(&[0xab; 4]);
    assert!(!format!("{source:?}").contains("171"));
    let any = prost_types::Any { type_url: "u".into(), value: vec![0xab; 4] };
    let response = DiscoveryResponse { resources: vec![any], ..Default::default() };
    assert!(!format!("{response:?}").contains("171"));
}
