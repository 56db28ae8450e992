//! Field numbers of the Workload API, against bytes worked out by hand from the SPIFFE specification.

use isthmus_proto::workload::{
    JwtsvidRequest, ValidateJwtsvidRequest, X509BundlesResponse, X509svid, X509svidResponse,
};
use prost::Message;

#[test]
fn x509_svid_response() {
    let response = X509svidResponse {
        svids: vec![X509svid {
            spiffe_id: "spiffe://a/b".into(),
            x509_svid: vec![1, 2],
            x509_svid_key: vec![3],
            bundle: vec![4],
            hint: "h".into(),
        }],
        crl: vec![vec![5]],
        federated_bundles: [("k".to_string(), vec![6])].into(),
    };
    let mut golden = vec![0x0a, 27, 0x0a, 12];
    golden.extend(b"spiffe://a/b");
    golden.extend([0x12, 2, 1, 2, 0x1a, 1, 3, 0x22, 1, 4, 0x2a, 1, b'h']);
    golden.extend([0x12, 1, 5, 0x1a, 6, 0x0a, 1, b'k', 0x12, 1, 6]);
    assert_eq!(response.encode_to_vec(), golden);
    assert_eq!(X509svidResponse::decode(&golden[..]).expect("decodes"), response);
}

#[test]
fn x509_bundles_response() {
    let response = X509BundlesResponse { crl: vec![vec![1]], bundles: [("k".to_string(), vec![2])].into() };
    assert_eq!(response.encode_to_vec(), [0x0a, 1, 1, 0x12, 6, 0x0a, 1, b'k', 0x12, 1, 2]);
}

#[test]
fn jwt_requests() {
    let request = JwtsvidRequest { audience: vec!["a".into()], spiffe_id: "s".into() };
    assert_eq!(request.encode_to_vec(), [0x0a, 1, b'a', 0x12, 1, b's']);
    let request = ValidateJwtsvidRequest { audience: "a".into(), svid: "s".into() };
    assert_eq!(request.encode_to_vec(), [0x0a, 1, b'a', 0x12, 1, b's']);
}

#[test]
fn service_has_no_package() {
    use isthmus_proto::workload::spiffe_workload_api_server::SERVICE_NAME;
    assert_eq!(SERVICE_NAME, "SpiffeWorkloadAPI");
}

#[test]
fn debug_shows_no_key_and_no_token() {
    let svid = X509svid { x509_svid_key: vec![0xab; 4], ..Default::default() };
    assert!(!format!("{svid:?}").contains("171"));
    let request = ValidateJwtsvidRequest { svid: "token".into(), ..Default::default() };
    assert!(!format!("{request:?}").contains("token"));
}

#[test]
fn jwt_answers() {
    use isthmus_proto::workload::{JwtBundlesResponse, Jwtsvid, JwtsvidResponse, ValidateJwtsvidResponse};
    let svid = Jwtsvid { spiffe_id: "i".into(), svid: "t".into(), hint: "h".into() };
    let response = JwtsvidResponse { svids: vec![svid] };
    assert_eq!(response.encode_to_vec(), [0x0a, 9, 0x0a, 1, b'i', 0x12, 1, b't', 0x1a, 1, b'h']);
    let response = JwtBundlesResponse { bundles: [("k".to_string(), vec![2])].into() };
    assert_eq!(response.encode_to_vec(), [0x0a, 6, 0x0a, 1, b'k', 0x12, 1, 2]);
    let claims = prost_types::Struct::default();
    let response = ValidateJwtsvidResponse { spiffe_id: "i".into(), claims: Some(claims) };
    assert_eq!(response.encode_to_vec(), [0x0a, 1, b'i', 0x12, 0]);
}
