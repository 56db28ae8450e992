//! `isthmusctl bfd`: watched paths with their state and the reason for it.

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Asks for all sessions, or for the one of this name or address.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) name: Option<String>,
}

impl Question for Query {
    type Answer = wire::ListBfdSessionsResponse;
    type Document = SessionsDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.list_bfd_sessions(wire::ListBfdSessionsRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<SessionsDocument, Failure> {
        let sessions = answer.sessions.into_iter().map(Session::from).collect();
        let mut document =
            SessionsDocument { schema: "isthmus.v1/bfd", sessions, in_detail: self.name.is_some() };
        if let Some(name) = &self.name {
            document.keep(name)?;
        }
        Ok(document)
    }
}

/// Schema `isthmus.v1/bfd`.
#[derive(Debug, Serialize)]
pub(crate) struct SessionsDocument {
    schema: &'static str,
    sessions: Vec<Session>,
    #[serde(skip)]
    in_detail: bool,
}

#[derive(Debug, Serialize)]
struct Session {
    name: String,
    address: String,
    path: String,
    tunnel_peer: Option<String>,
    local_address: Option<String>,
    state: String,
    state_reason: String,
    state_since: Option<Moment>,
    diagnostic: String,
    interval_us: u64,
    multiplier: u32,
    transmit_interval_us: Option<u64>,
    detection_time_us: Option<u64>,
    local_discriminator: u32,
    remote: Option<Remote>,
    packets_sent: u64,
    packets_received: u64,
    failures: u64,
    neighbors: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Remote {
    discriminator: u32,
    state: String,
    diagnostic: String,
    multiplier: u32,
    desired_min_tx_us: u64,
    required_min_rx_us: u64,
}

impl From<wire::BfdSession> for Session {
    fn from(session: wire::BfdSession) -> Self {
        Self {
            name: session.name,
            address: session.address,
            path: session.path,
            tunnel_peer: text::known(session.tunnel_peer),
            local_address: text::known(session.local_address),
            state: session.state,
            state_reason: session.state_reason,
            state_since: Moment::from_unix(session.state_since),
            diagnostic: session.diagnostic,
            interval_us: session.interval_us,
            multiplier: session.multiplier,
            transmit_interval_us: session.transmit_interval_us,
            detection_time_us: session.detection_time_us,
            local_discriminator: session.local_discriminator,
            remote: session.remote.map(Remote::from),
            packets_sent: session.packets_sent,
            packets_received: session.packets_received,
            failures: session.failures,
            neighbors: session.neighbors,
        }
    }
}

impl From<wire::BfdRemote> for Remote {
    fn from(remote: wire::BfdRemote) -> Self {
        Self {
            discriminator: remote.discriminator,
            state: remote.state,
            diagnostic: remote.diagnostic,
            multiplier: remote.multiplier,
            desired_min_tx_us: remote.desired_min_tx_us,
            required_min_rx_us: remote.required_min_rx_us,
        }
    }
}

impl SessionsDocument {
    fn keep(&mut self, name: &str) -> Result<(), Failure> {
        let known = self.sessions.iter().map(|session| session.name.clone()).collect::<Vec<_>>();
        self.sessions.retain(|session| session.name == name || session.address == name);
        if self.sessions.is_empty() {
            return Err(Failure::failed(format!("no BFD session has the name or address {name}"))
                .with_help(format!("the sessions are: {}", text::or_dash(&known.join(", ")))));
        }
        Ok(())
    }
}

impl Document for SessionsDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        if self.in_detail {
            self.sessions.iter().for_each(|session| session.lay_out(now, page));
            return;
        }
        let header =
            ["NAME", "ADDRESS", "PATH", "STATE", "SINCE", "SENDS EVERY", "DETECTS IN", "FAILURES", "REASON"];
        page.table(header, self.sessions.iter().map(|session| session.row(now)), "no BFD sessions");
    }
}

impl Session {
    fn row(&self, now: Moment) -> [Cell; 9] {
        [
            self.name.as_str().into(),
            self.address.as_str().into(),
            self.path().into(),
            self.state_cell(),
            age(self.state_since, now).into(),
            time(self.transmit_interval_us).into(),
            time(self.detection_time_us).into(),
            self.failures.into(),
            self.state_reason.as_str().into(),
        ]
    }

    fn lay_out(&self, now: Moment, page: &mut Page) {
        let configured = format!("{} x {}", time(Some(self.interval_us)), self.multiplier);
        let remote = self.remote.as_ref();
        let said = remote.map(|remote| format!("{} ({})", remote.state, remote.diagnostic));
        let wants = remote.map(|remote| {
            let (sends, takes) =
                (time(Some(remote.desired_min_tx_us)), time(Some(remote.required_min_rx_us)));
            format!("sends every {sends}, takes every {takes}, x {}", remote.multiplier)
        });
        page.facts([
            ("Name", self.name.as_str().into()),
            ("Address", self.address.as_str().into()),
            ("Local address", self.local_address.as_deref().unwrap_or("").into()),
            ("Path", self.path().into()),
            ("BGP neighbors", self.neighbors.join(", ").into()),
            ("State", self.state_cell()),
            ("Reason", self.state_reason.as_str().into()),
            ("Since", age(self.state_since, now).into()),
            ("Diagnostic", self.diagnostic.as_str().into()),
            ("Configured", configured.into()),
            ("Sends every", time(self.transmit_interval_us).into()),
            ("Detects in", time(self.detection_time_us).into()),
            ("Peer says", said.unwrap_or_default().into()),
            ("Peer wants", wants.unwrap_or_default().into()),
            ("Packets", format!("{} received, {} sent", self.packets_received, self.packets_sent).into()),
            ("Failures", self.failures.into()),
        ]);
    }

    fn path(&self) -> String {
        self.tunnel_peer.as_ref().map_or_else(|| self.path.clone(), |peer| format!("tunnel {peer}"))
    }

    fn state_cell(&self) -> Cell {
        let tone = if self.state == "Up" { Tone::Good } else { Tone::Bad };
        Cell::new(&self.state, tone)
    }
}

/// Microseconds in words; nothing where there is none.
fn time(microseconds: Option<u64>) -> String {
    microseconds.map(|count| format!("{:?}", std::time::Duration::from_micros(count))).unwrap_or_default()
}
