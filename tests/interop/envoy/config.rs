//! What two Envoys are told: certificates and trust come from our socket, nothing else is special.

use serde_json::{Value, json};

/// Where a proxy listens, and what for.
pub(crate) struct Ports {
    pub(crate) front: u16,
    pub(crate) back: u16,
    pub(crate) admin: u16,
}

fn sds(socket: &str) -> Value {
    json!({
        "name": "sds",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
        "load_assignment": endpoints("sds", &json!({ "pipe": { "path": socket } })),
    })
}

fn endpoints(name: &str, address: &Value) -> Value {
    json!({
        "cluster_name": name,
        "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address } }] }],
    })
}

fn loopback(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

fn secret(name: &str) -> Value {
    let source = json!({
        "resource_api_version": "V3",
        "api_config_source": {
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "sds" } }],
        },
    });
    json!({ "name": name, "sds_config": source })
}

/// Certificate and trust by SDS; the peer has to be `peer`.
fn tls(validation: &str, peer: &str) -> Value {
    json!({
        "tls_params": { "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" },
        "tls_certificate_sds_secret_configs": [secret("default")],
        "combined_validation_context": {
            "default_validation_context": {
                "match_typed_subject_alt_names": [{ "san_type": "URI", "matcher": { "exact": peer } }],
            },
            "validation_context_sds_secret_config": secret(validation),
        },
    })
}

fn listener(port: u16, routes: &Value, transport: Option<Value>) -> Value {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [routes] }] },
        "http_filters": [{
            "name": "router",
            "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
        }],
    });
    let mut chain = json!({ "filters": [{ "name": "http", "typed_config": manager }] });
    if let Some(transport) = transport {
        chain["transport_socket"] = transport;
    }
    json!({ "name": "in", "address": loopback(port), "filter_chains": [chain] })
}

fn proxy(name: &str, admin: u16, listener: &Value, clusters: &[Value]) -> String {
    json!({
        "node": { "id": name, "cluster": "lab" },
        "admin": { "address": loopback(admin) },
        "static_resources": { "listeners": [listener], "clusters": clusters },
    })
    .to_string()
}

/// Takes plain HTTP and passes it on over mutual TLS, with a new handshake for each request.
pub(crate) fn front(ports: &Ports, socket: &str, validation: &str, peer: &str) -> String {
    let mut tls = tls(validation, peer);
    tls = json!({ "common_tls_context": tls, "max_session_keys": 0 });
    tls["@type"] = json!("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    let cluster = json!({
        "name": "back",
        "type": "STATIC",
        "connect_timeout": "2s",
        "max_requests_per_connection": 1,
        "load_assignment": endpoints("back", &loopback(ports.back)),
        "transport_socket": { "name": "tls", "typed_config": tls },
    });
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "back" } });
    proxy("front", ports.admin, &listener(ports.front, &route, None), &[cluster, sds(socket)])
}

/// Takes mutual TLS and answers by itself.
pub(crate) fn back(ports: &Ports, socket: &str, validation: &str, peer: &str) -> String {
    let context = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": tls(validation, peer),
        "require_client_certificate": true,
        "disable_stateless_session_resumption": true,
    });
    let answer = json!({ "status": 200, "body": { "inline_string": "served" } });
    let route = json!({ "match": { "prefix": "/" }, "direct_response": answer });
    let transport = json!({ "name": "tls", "typed_config": context });
    proxy("back", ports.admin, &listener(ports.back, &route, Some(transport)), &[sds(socket)])
}
