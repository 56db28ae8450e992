//! `isthmusctl status`: the node in one view.

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Asks for the status; with `exit_code`, anything degraded is a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) exit_code: bool,
}

impl Question for Query {
    type Answer = wire::GetStatusResponse;
    type Document = StatusDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.get_status(wire::GetStatusRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<StatusDocument, Failure> {
        Ok(StatusDocument::from(answer))
    }

    fn verdict(&self, document: &StatusDocument) -> Result<(), Failure> {
        if self.exit_code && !document.degraded_reasons.is_empty() {
            return Err(Failure::degraded(document.degraded_reasons.join("; ")));
        }
        Ok(())
    }
}

/// Schema `isthmus.v1/status`.
#[derive(Debug, Serialize)]
pub(crate) struct StatusDocument {
    schema: &'static str,
    node: String,
    site: Option<String>,
    spiffe_id: Option<String>,
    version: String,
    pid: u32,
    started_at: Option<Moment>,
    ready: bool,
    waiting_for: Vec<String>,
    /// Why the node is not in full health; empty when it is.
    degraded_reasons: Vec<String>,
    subsystems: Vec<Subsystem>,
    config: Option<Config>,
}

#[derive(Debug, Serialize)]
struct Subsystem {
    name: String,
    health: Health,
    summary: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    Degraded,
    Failed,
    /// A word of a daemon newer than this program, or none.
    Unknown,
}

#[derive(Debug, Serialize)]
struct Config {
    path: String,
    loaded_at: Option<Moment>,
    generation: u64,
    last_error: String,
}

impl From<wire::GetStatusResponse> for StatusDocument {
    fn from(answer: wire::GetStatusResponse) -> Self {
        let subsystems = answer.subsystems.into_iter().map(Subsystem::from).collect::<Vec<_>>();
        let config = answer.config.map(Config::from);
        let mut document = Self {
            schema: "isthmus.v1/status",
            node: answer.node,
            site: text::known(answer.site),
            spiffe_id: text::known(answer.spiffe_id),
            version: answer.version,
            pid: answer.pid,
            started_at: Moment::from_unix(answer.started_at),
            ready: answer.ready,
            waiting_for: answer.waiting_for,
            degraded_reasons: Vec::new(),
            subsystems,
            config,
        };
        document.degraded_reasons = document.find_degraded();
        document
    }
}

impl From<wire::Subsystem> for Subsystem {
    fn from(subsystem: wire::Subsystem) -> Self {
        let health = Health::from(subsystem.health());
        Self { name: subsystem.name, health, summary: subsystem.summary }
    }
}

impl From<wire::Health> for Health {
    fn from(health: wire::Health) -> Self {
        match health {
            wire::Health::Ok => Self::Ok,
            wire::Health::Degraded => Self::Degraded,
            wire::Health::Failed => Self::Failed,
            wire::Health::Unspecified => Self::Unknown,
        }
    }
}

impl From<wire::ConfigState> for Config {
    fn from(config: wire::ConfigState) -> Self {
        Self {
            path: config.path,
            loaded_at: Moment::from_unix(config.loaded_at),
            generation: config.generation,
            last_error: config.last_error,
        }
    }
}

impl StatusDocument {
    fn find_degraded(&self) -> Vec<String> {
        let unready = (!self.ready).then(|| self.readiness());
        let unhealthy =
            self.subsystems.iter().filter(|subsystem| subsystem.health != Health::Ok).map(|subsystem| {
                format!("{} {}: {}", subsystem.name, subsystem.health.word(), subsystem.summary)
            });
        let reload = self.config.iter().filter(|config| !config.last_error.is_empty());
        let refused = reload.map(|config| format!("the last reload was refused: {}", config.last_error));
        unready.into_iter().chain(unhealthy).chain(refused).collect()
    }

    fn readiness(&self) -> String {
        match (self.ready, self.waiting_for.is_empty()) {
            (true, _) => "yes".to_owned(),
            (false, true) => "not ready".to_owned(),
            (false, false) => format!("not ready, waiting for {}", self.waiting_for.join(", ")),
        }
    }
}

impl Document for StatusDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let ready = if self.ready { Tone::Good } else { Tone::Warning };
        page.facts([
            ("Node", self.node.as_str().into()),
            ("Site", self.site.as_deref().unwrap_or("none").into()),
            ("SPIFFE ID", self.spiffe_id.as_deref().unwrap_or("").into()),
            ("Version", self.version.as_str().into()),
            ("Running for", format!("{} (pid {})", age(self.started_at, now), self.pid).into()),
            ("Ready", Cell::new(self.readiness(), ready)),
            ("Configuration", self.config.as_ref().map_or_else(|| "".into(), |config| config.cell(now))),
        ]);
        page.line("");
        let rows = self.subsystems.iter().map(Subsystem::row);
        page.table(["SUBSYSTEM", "HEALTH", "SUMMARY"], rows, "no subsystem is configured");
    }
}

impl Subsystem {
    fn row(&self) -> [Cell; 3] {
        [
            self.name.as_str().into(),
            Cell::new(self.health.word(), self.health.tone()),
            self.summary.as_str().into(),
        ]
    }
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::Degraded | Self::Unknown => Tone::Warning,
            Self::Failed => Tone::Bad,
        }
    }
}

impl Config {
    fn cell(&self, now: Moment) -> Cell {
        let loaded =
            format!("{}, generation {}, loaded {} ago", self.path, self.generation, age(self.loaded_at, now));
        if self.last_error.is_empty() {
            return loaded.into();
        }
        Cell::new(format!("{loaded}; the last reload was refused: {}", self.last_error), Tone::Warning)
    }
}
