//! `isthmusctl routes`: where traffic goes.

use ipnet::IpNet;
use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Asks for all routes, or for a prefix and what it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) prefix: Option<IpNet>,
}

impl Question for Query {
    type Answer = wire::ListRoutesResponse;
    type Document = RoutesDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        let prefix = self.prefix.map(|prefix| prefix.to_string()).unwrap_or_default();
        client.list_routes(wire::ListRoutesRequest { prefix }).await
    }

    fn document(&self, answer: Self::Answer) -> Result<RoutesDocument, Failure> {
        let routes = answer.routes.into_iter().map(Route::from).collect();
        Ok(RoutesDocument { schema: "isthmus.v1/routes", routes })
    }
}

/// Schema `isthmus.v1/routes`.
#[derive(Debug, Serialize)]
pub(crate) struct RoutesDocument {
    schema: &'static str,
    routes: Vec<Route>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Route {
    prefix: String,
    source: String,
    candidates: Vec<Candidate>,
    kernel: Kernel,
}

#[derive(Debug, Serialize)]
struct Candidate {
    next_hop: Option<String>,
    peer: Option<String>,
    neighbor: Option<String>,
    as_path: Option<String>,
    selected: bool,
    usable: bool,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Kernel {
    state: KernelState,
    reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum KernelState {
    Installed,
    NotWanted,
    Failed,
    Stale,
    Shadowed,
    /// A word of a daemon newer than this program, or none.
    Unknown,
}

impl From<wire::Route> for Route {
    fn from(route: wire::Route) -> Self {
        Self {
            prefix: route.prefix,
            source: route.source,
            candidates: route.candidates.into_iter().map(Candidate::from).collect(),
            kernel: Kernel::from(route.kernel.unwrap_or_default()),
        }
    }
}

impl From<wire::Candidate> for Candidate {
    fn from(candidate: wire::Candidate) -> Self {
        Self {
            next_hop: text::known(candidate.next_hop),
            peer: text::known(candidate.peer),
            neighbor: text::known(candidate.neighbor),
            as_path: text::known(candidate.as_path),
            selected: candidate.selected,
            usable: candidate.usable,
            reason: candidate.reason,
        }
    }
}

impl From<wire::KernelRoute> for Kernel {
    fn from(kernel: wire::KernelRoute) -> Self {
        let state = match kernel.state() {
            wire::KernelRouteState::Installed => KernelState::Installed,
            wire::KernelRouteState::NotWanted => KernelState::NotWanted,
            wire::KernelRouteState::Failed => KernelState::Failed,
            wire::KernelRouteState::Stale => KernelState::Stale,
            wire::KernelRouteState::Shadowed => KernelState::Shadowed,
            wire::KernelRouteState::Unspecified => KernelState::Unknown,
        };
        Self { state, reason: kernel.reason }
    }
}

impl Document for RoutesDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        lay_out_routes(&self.routes, page);
    }
}

/// One row for each path; the prefix is repeated so that each row stands alone under `grep`.
pub(crate) fn lay_out_routes(routes: &[Route], page: &mut Page) {
    let header = ["PREFIX", "SOURCE", "PEER", "NEXT HOP", "NEIGHBOR", "AS PATH", "STATE", "WHY", "KERNEL"];
    page.table(header, routes.iter().flat_map(Route::rows), "no routes");
}

impl Route {
    fn rows(&self) -> impl Iterator<Item = [Cell; 9]> {
        let lone = self.candidates.is_empty().then(|| self.row(None));
        lone.into_iter().chain(self.candidates.iter().map(|candidate| self.row(Some(candidate))))
    }

    fn row(&self, candidate: Option<&Candidate>) -> [Cell; 9] {
        let part = |of: fn(&Candidate) -> Option<&str>| Cell::from(candidate.and_then(of).unwrap_or(""));
        [
            self.prefix.as_str().into(),
            self.source.as_str().into(),
            part(|candidate| candidate.peer.as_deref()),
            part(|candidate| candidate.next_hop.as_deref()),
            part(|candidate| candidate.neighbor.as_deref()),
            part(|candidate| candidate.as_path.as_deref()),
            candidate.map_or_else(|| Cell::new("no path", Tone::Bad), Candidate::state),
            part(|candidate| Some(&candidate.reason)),
            self.kernel.cell(),
        ]
    }
}

impl Candidate {
    fn state(&self) -> Cell {
        match (self.selected, self.usable) {
            (true, true) => Cell::new("selected", Tone::Good),
            (true, false) => Cell::new("selected, down", Tone::Bad),
            (false, true) => Cell::new("usable", Tone::Plain),
            (false, false) => Cell::new("unusable", Tone::Warning),
        }
    }
}

impl Route {
    /// What the table does not say: the reason for a kernel route that is there.
    pub(crate) fn remark(&self) -> Option<String> {
        let Kernel { state, reason } = &self.kernel;
        // Any other state's reason is in the table already.
        let said = *state == KernelState::Installed && !reason.is_empty();
        said.then(|| format!("kernel route {}: {reason}", state.word()))
    }
}

impl Kernel {
    fn cell(&self) -> Cell {
        let tone = match self.state {
            KernelState::Installed => Tone::Good,
            KernelState::NotWanted => Tone::Plain,
            KernelState::Stale | KernelState::Shadowed | KernelState::Unknown => Tone::Warning,
            KernelState::Failed => Tone::Bad,
        };
        Cell::new(self.words(), tone)
    }

    /// The state, and what is behind it where the route is not simply there.
    fn words(&self) -> String {
        match (self.state, self.reason.as_str()) {
            (KernelState::Installed, _) | (_, "") => self.state.word().to_owned(),
            (state, reason) => format!("{}: {reason}", state.word()),
        }
    }
}

impl KernelState {
    fn word(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::NotWanted => "not wanted",
            Self::Failed => "failed",
            Self::Stale => "stale",
            Self::Shadowed => "shadowed",
            Self::Unknown => "unknown",
        }
    }
}
