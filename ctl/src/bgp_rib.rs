//! `isthmusctl bgp rib`: what neighbors sent, what they were told, and what is used.

use ipnet::IpNet;
use isthmus_proto::bgp as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::cli::RibTable;
use crate::client;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Asks for a table, which comes in parts.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) table: RibTable,
    pub(crate) prefix: Option<IpNet>,
    pub(crate) longer: bool,
    pub(crate) neighbor: Option<String>,
}

impl Query {
    fn request(&self) -> wire::ListRibRequest {
        let table = match self.table {
            RibTable::In => wire::RibTable::In,
            RibTable::Out => wire::RibTable::Out,
            RibTable::Best => wire::RibTable::Best,
        };
        wire::ListRibRequest {
            table: table.into(),
            prefix: self.prefix.map(|prefix| prefix.to_string()).unwrap_or_default(),
            longer: self.longer,
            neighbor: self.neighbor.clone().unwrap_or_default(),
        }
    }
}

impl Question for Query {
    type Answer = Vec<wire::RibEntry>;
    type Document = RibDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        let mut parts = client.bgp.list_rib(self.request()).await?.into_inner();
        let mut all = Vec::new();
        while let Some(page) = client::next(&mut parts).await? {
            all.extend(page.entries);
        }
        Ok(Response::new(all))
    }

    fn document(&self, answer: Self::Answer) -> Result<RibDocument, Failure> {
        let entries = answer.into_iter().map(Entry::from).collect();
        Ok(RibDocument { schema: "isthmus.v1/bgp-rib", table: self.table.word(), entries })
    }
}

/// Schema `isthmus.v1/bgp-rib`.
#[derive(Debug, Serialize)]
pub(crate) struct RibDocument {
    schema: &'static str,
    /// "in", "out", "best".
    table: &'static str,
    entries: Vec<Entry>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) prefix: String,
    pub(crate) paths: Vec<Path>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Path {
    /// Nothing: it starts here.
    neighbor: Option<String>,
    state: State,
    reason: Option<String>,
    decided_by: Option<Step>,
    /// What the import policy says about it.
    policy: Option<String>,
    /// Kept although its session is gone.
    stale: bool,
    path_id: u32,
    attributes: Attributes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Best,
    Equal,
    Lost,
    Unusable,
    Advertised,
    /// A word of a daemon newer than this program, or none.
    Unknown,
}

/// The step of the decision process that took a path out, with its value and the winner's.
#[derive(Debug, Serialize)]
struct Step {
    name: String,
    own: String,
    best: String,
}

#[derive(Debug, Serialize)]
struct Attributes {
    origin: String,
    as_path: Vec<u32>,
    next_hop: String,
    med: Option<u32>,
    local_pref: Option<u32>,
    communities: Vec<String>,
    large_communities: Vec<String>,
    only_to_customer: Option<u32>,
    originator_id: Option<String>,
    cluster_list: Vec<String>,
    atomic_aggregate: bool,
    aggregator: Option<String>,
    unknown: Vec<Unknown>,
}

/// An attribute that is only passed on.
#[derive(Debug, Serialize)]
struct Unknown {
    code: u32,
    flags: u32,
    /// Lower-case hex.
    value: String,
}

impl From<wire::RibEntry> for Entry {
    fn from(entry: wire::RibEntry) -> Self {
        Self { prefix: entry.prefix, paths: entry.paths.into_iter().map(Path::from).collect() }
    }
}

impl From<wire::RibPath> for Path {
    fn from(path: wire::RibPath) -> Self {
        let state = match path.state() {
            wire::RibPathState::Best => State::Best,
            wire::RibPathState::Equal => State::Equal,
            wire::RibPathState::Lost => State::Lost,
            wire::RibPathState::Unusable => State::Unusable,
            wire::RibPathState::Advertised => State::Advertised,
            wire::RibPathState::Unspecified => State::Unknown,
        };
        let step = |step: wire::DecidingStep| Step { name: step.name, own: step.own, best: step.best };
        Self {
            neighbor: text::known(path.neighbor),
            state,
            reason: text::known(path.reason),
            decided_by: path.decided_by.map(step),
            policy: text::known(path.policy),
            stale: path.stale,
            path_id: path.path_id,
            attributes: path.attributes.unwrap_or_default().into(),
        }
    }
}

impl From<wire::RouteAttributes> for Attributes {
    fn from(attributes: wire::RouteAttributes) -> Self {
        Self {
            origin: attributes.origin,
            as_path: attributes.as_path,
            next_hop: attributes.next_hop,
            med: attributes.med,
            local_pref: attributes.local_pref,
            communities: attributes.communities,
            large_communities: attributes.large_communities,
            only_to_customer: attributes.only_to_customer,
            originator_id: text::known(attributes.originator_id),
            cluster_list: attributes.cluster_list,
            atomic_aggregate: attributes.atomic_aggregate,
            aggregator: text::known(attributes.aggregator),
            unknown: attributes.unknown.into_iter().map(Unknown::from).collect(),
        }
    }
}

impl From<wire::UnknownAttribute> for Unknown {
    fn from(unknown: wire::UnknownAttribute) -> Self {
        Self { code: unknown.code, flags: unknown.flags, value: text::hex(&unknown.value) }
    }
}

impl Document for RibDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        lay_out_paths(&self.entries, page);
    }
}

/// One row for each path; the prefix is repeated so that each row stands alone under `grep`.
pub(crate) fn lay_out_paths(entries: &[Entry], page: &mut Page) {
    let header =
        ["PREFIX", "NEXT HOP", "NEIGHBOR", "STATE", "PREF", "MED", "AS PATH", "ORIGIN", "COMMUNITIES", "WHY"];
    let rows = entries.iter().flat_map(|entry| entry.paths.iter().map(|path| path.row(&entry.prefix)));
    page.table(header, rows, "no routes");
}

impl Path {
    fn row(&self, prefix: &str) -> [Cell; 10] {
        let attributes = &self.attributes;
        let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        [
            prefix.into(),
            attributes.next_hop.as_str().into(),
            self.neighbor.as_deref().unwrap_or("here").into(),
            self.state.cell(),
            number(attributes.local_pref).into(),
            number(attributes.med).into(),
            words(&attributes.as_path).into(),
            attributes.origin.as_str().into(),
            [attributes.communities.as_slice(), &attributes.large_communities].concat().join(" ").into(),
            self.why().into(),
        ]
    }

    /// The reason, the values that decided, and what the policy said where it is why the path is not used.
    fn why(&self) -> String {
        let reason = self.reason.clone().unwrap_or_default();
        let policy = self.policy.as_deref().filter(|_| self.state == State::Unusable);
        match (&self.decided_by, policy) {
            (Some(step), _) => format!("{reason}: {} against {}", step.own, step.best),
            (None, Some(policy)) => format!("{reason} ({policy})"),
            (None, None) => reason,
        }
    }
}

fn words(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

impl State {
    fn cell(self) -> Cell {
        match self {
            Self::Best => Cell::new("best", Tone::Good),
            Self::Equal => Cell::new("equal", Tone::Good),
            Self::Lost => Cell::new("lost", Tone::Plain),
            Self::Unusable => Cell::new("unusable", Tone::Warning),
            Self::Advertised => Cell::new("advertised", Tone::Plain),
            Self::Unknown => Cell::new("unknown", Tone::Warning),
        }
    }
}
