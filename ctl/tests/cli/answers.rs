//! A healthy gateway as the daemon would describe it. Ages are far enough in the past to print the same for as long as a test runs.

use std::time::{SystemTime, UNIX_EPOCH};

use isthmus_proto::control::*;

use crate::server::Answers;

/// 2023-11-14T22:13:20Z.
pub(crate) const THEN: i64 = 1_700_000_000;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// So many seconds after now, with half of the smallest unit that is printed to spare.
pub(crate) fn from_now(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    i64::try_from(now).expect("before the end of time")
        + seconds
        + if seconds < 0 { -HOUR / 2 } else { HOUR / 2 }
}

/// Everything up.
pub(crate) fn healthy() -> Answers {
    Answers {
        drain: Vec::new(),
        status: status(),
        peers: ListPeersResponse { peers: vec![peer_up(), peer_down()] },
        tunnel: tunnel(),
        offload: SetOffloadResponse { offload: Some(switched_off()) },
        routes: ListRoutesResponse { routes: vec![learned_route(), static_route()] },
        why: ExplainRouteResponse {
            route: Some(learned_route()),
            steps: vec![
                "10.20.0.0/16 is the longest prefix that covers 10.20.3.4".to_owned(),
                "azure-gw1 carries it: the only live path".to_owned(),
            ],
            ..ExplainRouteResponse::default()
        },
        neighbors: ListBgpNeighborsResponse {
            local_asn: 4_200_000_001,
            router_id: "10.99.0.1".to_owned(),
            neighbors: vec![established(), idle()],
        },
        bfd: ListBfdSessionsResponse { sessions: vec![watched()] },
        certificates: ListCertificatesResponse { certificates: vec![root(), svid()] },
        neighbor: crate::bgp::detail(),
        rib: crate::bgp::pages(),
        mrt: Vec::new(),
        broken_off: None,
        cleared: Default::default(),
        explained: Default::default(),
        events: Default::default(),
        refusal: None,
    }
}

fn watched() -> BfdSession {
    BfdSession {
        name: "azure-gw1".to_owned(),
        address: "10.99.0.2".to_owned(),
        path: "tunnel".to_owned(),
        tunnel_peer: "azure-gw1".to_owned(),
        local_address: "10.99.0.1".to_owned(),
        state: "Up".to_owned(),
        state_reason: "heard within 900ms".to_owned(),
        state_since: THEN,
        diagnostic: "no diagnostic".to_owned(),
        interval_us: 300_000,
        multiplier: 3,
        transmit_interval_us: Some(300_000),
        detection_time_us: Some(900_000),
        failures: 2,
        neighbors: vec!["azure-gw1".to_owned()],
        ..BfdSession::default()
    }
}

/// Every request answered with nothing in it.
pub(crate) fn empty() -> Answers {
    Answers::default()
}

pub(crate) fn status() -> GetStatusResponse {
    GetStatusResponse {
        version: "0.1.0".to_owned(),
        node: "gw1".to_owned(),
        site: "aws-use1".to_owned(),
        spiffe_id: "spiffe://fabric.example/site/aws-use1/node/gw1".to_owned(),
        started_at: THEN,
        ready: true,
        waiting_for: Vec::new(),
        subsystems: vec![
            subsystem("tunnel", Health::Ok, "2 of 2 peers up"),
            subsystem("bgp", Health::Ok, "2 of 2 sessions Established"),
        ],
        config: Some(ConfigState {
            path: "/etc/isthmus/isthmusd.toml".to_owned(),
            loaded_at: THEN,
            generation: 3,
            last_error: String::new(),
        }),
        pid: 4242,
    }
}

pub(crate) fn subsystem(name: &str, health: Health, summary: &str) -> Subsystem {
    Subsystem { name: name.to_owned(), health: health.into(), summary: summary.to_owned() }
}

fn peer_up() -> Peer {
    Peer {
        name: "azure-gw1".to_owned(),
        public_key: "iVFBtOaiUrHdbtE4LiWTpy/r9kFPh1+XkdzkqL2eP3Y=".to_owned(),
        endpoint: "192.0.2.2:51820".to_owned(),
        allowed_ips: ["10.99.0.2/32", "fd7a::2/128", "10.20.0.0/16"].map(str::to_owned).to_vec(),
        state: PeerState::Up.into(),
        state_reason: "handshake completed".to_owned(),
        last_handshake_at: Some(from_now(-2 * DAY - 3 * HOUR)),
        rx_bytes: 1_536,
        tx_bytes: 10,
        rx_packets: 12,
        tx_packets: 1,
        drops: [("endpoint_refused".to_owned(), 9), ("no_session".to_owned(), 2), ("too_big".to_owned(), 5)]
            .into(),
        persistent_keepalive_ms: 25_000,
        has_preshared_key: true,
        mtu: 1_420,
    }
}

fn tunnel() -> GetTunnelResponse {
    GetTunnelResponse {
        interface: "isthmus0".to_owned(),
        listen_port: 51_820,
        public_key: "0Xu3BuqgEzUiBBaVIjCvpGBPpfNRcU8NuYWQT1EUTRM=".to_owned(),
        workers: 2,
        offloads: vec![
            Offload { wanted: true, active: true, ..offload("tun-tso", "default, or switched on") },
            Offload { wanted: true, ..offload("tun-uso", "this kernel refuses it") },
            switched_off(),
        ],
        batches: vec![
            // A thousand calls: 500 with one packet, 250 with up to eight, 200 with up to 64, 50 with more.
            batches("udp_send", 12_345, &[500, 600, 700, 750, 800, 900, 950, 990, 1_000, 1_000, 1_000]),
            batches("udp_receive", 0, &[0; 11]),
        ],
        drops: [("endpoint_refused".to_owned(), 3), ("no_route".to_owned(), 17)].into(),
    }
}

fn offload(name: &str, reason: &str) -> Offload {
    Offload {
        name: name.to_owned(),
        description: format!("what {name} does"),
        wanted: false,
        active: false,
        state_reason: reason.to_owned(),
    }
}

pub(crate) fn switched_off() -> Offload {
    offload("udp-gso", "switched off")
}

/// Buckets of 1, 2, 4, ... 512 packets and of any number.
fn batches(call: &str, packets: u64, calls: &[u64; 11]) -> BatchSizes {
    let bounds = (0..10).map(|power| Some(1 << power)).chain([None]);
    let bucket = |(at_most, calls): (Option<u64>, &u64)| BatchBucket { at_most, calls: *calls };
    BatchSizes { call: call.to_owned(), cumulative: bounds.zip(calls).map(bucket).collect(), packets }
}

fn peer_down() -> Peer {
    Peer {
        name: "onprem-gw1".to_owned(),
        public_key: "0Xu3BuqgEzUiBBaVIjCvpGBPpfNRcU8NuYWQT1EUTRM=".to_owned(),
        state: PeerState::Down.into(),
        state_reason: "no handshake reply for 12 s from 203.0.113.9:51820".to_owned(),
        ..Peer::default()
    }
}

fn learned_route() -> Route {
    let path = |peer: &str, next_hop: &str, selected: bool, reason: &str| Candidate {
        next_hop: next_hop.to_owned(),
        peer: peer.to_owned(),
        neighbor: peer.to_owned(),
        selected,
        usable: selected,
        reason: reason.to_owned(),
        as_path: "4200000002".to_owned(),
    };
    Route {
        prefix: "10.20.0.0/16".to_owned(),
        source: "bgp".to_owned(),
        candidates: vec![
            path("azure-gw1", "10.99.0.2", true, "the only live path"),
            path("azure-gw2", "10.99.0.3", false, "peer is down"),
        ],
        kernel: Some(KernelRoute {
            state: KernelRouteState::Installed.into(),
            reason: "preferred source 10.10.0.1".to_owned(),
        }),
    }
}

fn static_route() -> Route {
    Route {
        prefix: "fd00:30::/48".to_owned(),
        source: "static".to_owned(),
        candidates: Vec::new(),
        kernel: Some(KernelRoute {
            state: KernelRouteState::NotWanted.into(),
            reason: "covered by lan0's subnet fd00:30::/48".to_owned(),
        }),
    }
}

fn established() -> BgpNeighbor {
    BgpNeighbor {
        name: "azure-gw1".to_owned(),
        address: "10.99.0.2".to_owned(),
        local_address: "10.99.0.1".to_owned(),
        remote_asn: 4_200_000_002,
        remote_router_id: "10.99.0.2".to_owned(),
        state: "Established".to_owned(),
        state_reason: "KEEPALIVE received".to_owned(),
        state_since: from_now(-5 * DAY - 7 * HOUR),
        hold_time_ms: 9_000,
        keepalive_ms: 3_000,
        families: vec!["ipv4-unicast".to_owned(), "ipv6-unicast".to_owned()],
        prefixes_received: 12,
        prefixes_accepted: 10,
        prefixes_sent: 4,
        last_error: String::new(),
        established_count: 1,
        messages_received: 2_000,
        messages_sent: 2_001,
    }
}

fn idle() -> BgpNeighbor {
    BgpNeighbor {
        name: "onprem-gw1".to_owned(),
        address: "10.99.0.9".to_owned(),
        remote_asn: 64_512,
        state: "Active".to_owned(),
        last_error: "hold timer expired".to_owned(),
        ..BgpNeighbor::default()
    }
}

fn root() -> Certificate {
    Certificate {
        kind: "root".to_owned(),
        spiffe_id: "spiffe://fabric.example".to_owned(),
        subject: "CN=fabric.example root".to_owned(),
        issuer: "CN=fabric.example root".to_owned(),
        serial: "01".to_owned(),
        not_before: THEN,
        not_after: from_now(3_000 * DAY + 2 * HOUR),
        sha256: "ab".repeat(32),
        path: "/etc/isthmus/root.pem".to_owned(),
        renew_at: None,
    }
}

fn svid() -> Certificate {
    Certificate {
        kind: "node-svid".to_owned(),
        spiffe_id: String::new(),
        subject: "O=SPIRE".to_owned(),
        issuer: "CN=aws-use1".to_owned(),
        serial: "7f01".to_owned(),
        not_before: THEN,
        not_after: THEN + HOUR,
        sha256: "cd".repeat(32),
        path: String::new(),
        renew_at: Some(from_now(DAY + 3 * HOUR)),
    }
}
