//! `isthmusctl events`: what happened on the node, and with `--follow` what happens.

use std::str::FromStr;
use std::time::SystemTime;

use isthmus_proto::events as wire;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Response, Status};

use crate::client::Server;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{Document, Output};
use crate::page::{Cell, Page, Tone};
use crate::watch::{self, Client, Question};

/// Asks for what is kept.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) since: Option<Since>,
    pub(crate) subsystem: Option<String>,
}

/// From when on: a moment, or a span back from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(OffsetDateTime);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(moment) = OffsetDateTime::parse(text, &Rfc3339) {
            return Ok(Self(moment));
        }
        let back = humantime::parse_duration(text).ok();
        let moment = back.and_then(|back| SystemTime::now().checked_sub(back));
        moment
            .map(|moment| Self(moment.into()))
            .ok_or_else(|| "expected a span such as 10m, or a moment such as 2026-06-01T12:00:00Z".to_owned())
    }
}

impl Query {
    fn request(&self) -> wire::ListEventsRequest {
        let milliseconds = |since: Since| i64::try_from(since.0.unix_timestamp_nanos() / 1_000_000);
        wire::ListEventsRequest {
            since_ms: self.since.and_then(|since| milliseconds(since).ok()).unwrap_or(0),
            subsystem: self.subsystem.clone().unwrap_or_default(),
        }
    }

    /// Prints what is kept and then what happens, until interrupted or until the daemon ends.
    ///
    /// # Errors
    /// [`Failure::is_unreachable`] when the daemon ends.
    pub(crate) fn follow(&self, server: &Server, output: &Output) -> Result<(), Failure> {
        watch::run(async {
            let mut client = Client::new(server.connect().await?);
            let stream = client.events.follow(self.request()).await;
            let mut stream = stream.map_err(|status| server.failed(&status))?.into_inner();
            while let Some(batch) = stream.message().await.map_err(|status| server.failed(&status))? {
                Followed::each(batch).try_for_each(|happened| output.append(&happened))?;
            }
            Err(Failure::unreachable("isthmusd has stopped", "ask again when it runs: its events begin anew"))
        })
    }
}

impl Question for Query {
    type Answer = wire::EventBatch;
    type Document = EventsDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.events.list(self.request()).await
    }

    fn document(&self, answer: Self::Answer) -> Result<EventsDocument, Failure> {
        let events = answer.events.into_iter().map(Event::from).collect();
        Ok(EventsDocument { schema: "isthmus.v1/events", lost: answer.lost, events })
    }
}

/// Schema `isthmus.v1/events`.
#[derive(Debug, Serialize)]
pub(crate) struct EventsDocument {
    schema: &'static str,
    /// Older ones, of any subsystem, that may have been asked for and are not kept any more.
    lost: u64,
    events: Vec<Event>,
}

#[derive(Debug, Serialize)]
struct Event {
    sequence: u64,
    at: Option<Moment>,
    level: Level,
    subsystem: String,
    message: String,
    /// In the order of the log line; a name may come twice.
    fields: Vec<Field>,
}

#[derive(Debug, Serialize)]
struct Field {
    name: String,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Info,
    Warning,
    Error,
    /// A word of a daemon newer than this program, or none.
    Unknown,
}

/// Schema `isthmus.v1/event`: one line of `--follow`. Either some were missed, or one event happened.
#[derive(Debug, Serialize)]
struct Followed {
    schema: &'static str,
    lost: u64,
    event: Option<Event>,
}

impl From<wire::NodeEvent> for Event {
    fn from(event: wire::NodeEvent) -> Self {
        Self {
            sequence: event.sequence,
            at: Moment::from_unix_milliseconds(event.at_ms),
            level: event.level().into(),
            subsystem: event.subsystem,
            message: event.message,
            fields: event
                .fields
                .into_iter()
                .map(|field| Field { name: field.name, value: field.value })
                .collect(),
        }
    }
}

impl From<wire::EventLevel> for Level {
    fn from(level: wire::EventLevel) -> Self {
        match level {
            wire::EventLevel::Info => Self::Info,
            wire::EventLevel::Warning => Self::Warning,
            wire::EventLevel::Error => Self::Error,
            wire::EventLevel::Unspecified => Self::Unknown,
        }
    }
}

impl Document for EventsDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        if self.lost > 0 {
            page.line(lost(self.lost));
        }
        let rows = self.events.iter().map(|event| {
            [event.time().into(), event.level.cell(), event.subsystem.as_str().into(), event.words().into()]
        });
        page.table(["TIME", "LEVEL", "SUBSYSTEM", "WHAT"], rows, "no events");
    }
}

impl Followed {
    fn each(batch: wire::EventBatch) -> impl Iterator<Item = Self> {
        let schema = "isthmus.v1/event";
        let gap = (batch.lost > 0).then_some(Self { schema, lost: batch.lost, event: None });
        let happened = |event| Self { schema, lost: 0, event: Some(Event::from(event)) };
        gap.into_iter().chain(batch.events.into_iter().map(happened))
    }
}

impl Document for Followed {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        match &self.event {
            None => page.line(lost(self.lost)),
            Some(event) => page.line(format!(
                "{}  {:7}  {:9}  {}",
                event.time(),
                event.level.word(),
                event.subsystem,
                event.words()
            )),
        }
    }
}

fn lost(count: u64) -> String {
    let events = if count == 1 { "1 event".to_owned() } else { format!("{count} events") };
    format!("{events} before these, of any subsystem: not kept any more; the system's log may have them")
}

impl Event {
    fn time(&self) -> String {
        self.at.map_or_else(|| "-".to_owned(), Moment::to_millisecond)
    }

    /// The line of the log: the sentence, then what it is about.
    fn words(&self) -> String {
        let fields = self.fields.iter().map(|field| {
            match field.value.contains([' ', '"']) || field.value.is_empty() {
                true => format!("{}={:?}", field.name, field.value),
                false => format!("{}={}", field.name, field.value),
            }
        });
        std::iter::once(self.message.clone()).chain(fields).collect::<Vec<_>>().join(" ")
    }
}

impl Level {
    fn cell(self) -> Cell {
        let tone = match self {
            Self::Info | Self::Unknown => Tone::Plain,
            Self::Warning => Tone::Warning,
            Self::Error => Tone::Bad,
        };
        Cell::new(self.word(), tone)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_moment_or_a_span() {
        let moment: Since = "2026-06-01T12:00:00.5Z".parse().expect("valid");
        let request = Query { since: Some(moment), subsystem: None }.request();
        assert_eq!(request.since_ms, 1_780_315_200_500);
        let span: Since = "10m".parse().expect("valid");
        let back = (OffsetDateTime::now_utc() - span.0).whole_seconds();
        assert!((600..700).contains(&back), "{back}");
        for nonsense in ["", "yesterday", "-5m", "2026-06-01"] {
            assert!(nonsense.parse::<Since>().is_err(), "{nonsense}");
        }
    }
}
