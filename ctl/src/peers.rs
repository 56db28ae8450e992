//! `isthmusctl peers`: tunnel peers with their liveness and counters.

use std::collections::BTreeMap;

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::tunnel::CARRIED;
use crate::watch::{Client, Question};

/// Asks for the peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query;

impl Question for Query {
    type Answer = wire::ListPeersResponse;
    type Document = PeersDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.list_peers(wire::ListPeersRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<PeersDocument, Failure> {
        let peers = answer.peers.into_iter().map(Peer::from).collect();
        Ok(PeersDocument { schema: "isthmus.v1/peers", peers })
    }
}

/// Schema `isthmus.v1/peers`.
#[derive(Debug, Serialize)]
pub(crate) struct PeersDocument {
    schema: &'static str,
    peers: Vec<Peer>,
}

#[derive(Debug, Serialize)]
struct Peer {
    name: String,
    state: PeerState,
    state_reason: String,
    public_key: String,
    endpoint: Option<String>,
    allowed_ips: Vec<String>,
    last_handshake_at: Option<Moment>,
    persistent_keepalive_ms: u64,
    has_preshared_key: bool,
    rx_bytes: u64,
    tx_bytes: u64,
    rx_packets: u64,
    tx_packets: u64,
    /// Longest inner packet that is sent to the peer in one piece, in bytes; nothing: the daemon does not tell.
    mtu: Option<u32>,
    /// Reason -> packets. All but those under [`CARRIED`] were dropped.
    drops: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum PeerState {
    Up,
    Idle,
    Down,
    /// A word of a daemon newer than this program, or none.
    Unknown,
}

impl From<wire::PeerState> for PeerState {
    fn from(state: wire::PeerState) -> Self {
        match state {
            wire::PeerState::Up => Self::Up,
            wire::PeerState::Idle => Self::Idle,
            wire::PeerState::Down => Self::Down,
            wire::PeerState::Unspecified => Self::Unknown,
        }
    }
}

impl PeerState {
    fn cell(self) -> Cell {
        match self {
            Self::Up => Cell::new("up", Tone::Good),
            Self::Idle => Cell::new("idle", Tone::Plain),
            Self::Down => Cell::new("down", Tone::Bad),
            Self::Unknown => Cell::new("unknown", Tone::Warning),
        }
    }
}

impl From<wire::Peer> for Peer {
    fn from(peer: wire::Peer) -> Self {
        Self {
            state: PeerState::from(peer.state()),
            name: peer.name,
            state_reason: peer.state_reason,
            public_key: peer.public_key,
            endpoint: text::known(peer.endpoint),
            allowed_ips: peer.allowed_ips,
            last_handshake_at: peer.last_handshake_at.and_then(Moment::from_unix),
            persistent_keepalive_ms: peer.persistent_keepalive_ms,
            has_preshared_key: peer.has_preshared_key,
            rx_bytes: peer.rx_bytes,
            tx_bytes: peer.tx_bytes,
            rx_packets: peer.rx_packets,
            tx_packets: peer.tx_packets,
            mtu: (peer.mtu != 0).then_some(peer.mtu),
            drops: peer.drops.into_iter().collect(),
        }
    }
}

impl Document for PeersDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let header =
            ["NAME", "STATE", "ENDPOINT", "HANDSHAKE", "RX", "TX", "DROPS", "MTU", "ALLOWED IPS", "REASON"];
        let rows = self.peers.iter().map(|peer| peer.row(now));
        page.table(header, rows, "no tunnel peers");
    }
}

impl Peer {
    fn row(&self, now: Moment) -> [Cell; 10] {
        [
            self.name.as_str().into(),
            self.state.cell(),
            self.endpoint.as_deref().unwrap_or("").into(),
            age(self.last_handshake_at, now).into(),
            text::bytes(self.rx_bytes).into(),
            text::bytes(self.tx_bytes).into(),
            self.dropped().into(),
            self.mtu.map_or_else(|| "".into(), |mtu| u64::from(mtu).into()),
            text::some_of(&self.allowed_ips).into(),
            self.state_reason.as_str().into(),
        ]
    }

    /// Packets that were lost, whatever the reason.
    fn dropped(&self) -> u64 {
        let lost = self.drops.iter().filter(|(reason, _)| *reason != CARRIED);
        lost.fold(0_u64, |sum, (_, packets)| sum.saturating_add(*packets))
    }
}
