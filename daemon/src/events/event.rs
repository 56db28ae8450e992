//! One event, bounded in size however long what was said is.

use std::{
    fmt::{self, Write},
    time::SystemTime,
};

use tracing::field::{Field as Key, Visit};

/// Longest message or value, in bytes.
const MAX_TEXT: usize = 512;
/// Most fields of one event.
const MAX_FIELDS: usize = 16;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: SystemTime,
    /// How much it matters.
    pub level: Level,
    /// Which part of the daemon says so: "bgp", "tunnel", ...
    pub subsystem: &'static str,
    /// The sentence.
    pub message: String,
    /// What it is about, in the order of the log line.
    pub fields: Vec<Field>,
}

/// A named value of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// As the code calls it.
    pub name: &'static str,
    /// Ends in "…" where it was cut.
    pub value: String,
}

/// What the log's levels mean here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A change of state.
    Info,
    /// A person should look.
    Warning,
    /// Something failed.
    Error,
}

impl Event {
    pub(super) fn new(time: SystemTime, level: Level, subsystem: &'static str) -> Self {
        Self { time, level, subsystem, message: String::new(), fields: Vec::new() }
    }

    fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        if name != "message" && self.fields.len() == MAX_FIELDS {
            return;
        }
        let value = bounded(value);
        match name {
            "message" => self.message = value,
            name => self.fields.push(Field { name, value }),
        }
    }
}

impl Visit for Event {
    fn record_str(&mut self, field: &Key, value: &str) {
        self.set(field.name(), value);
    }

    fn record_debug(&mut self, field: &Key, value: &dyn fmt::Debug) {
        self.set(field.name(), format_args!("{value:?}"));
    }
}

/// The text, cut where it gets too long: no more of it is ever built.
fn bounded(value: impl fmt::Display) -> String {
    let mut text = Bounded(String::new());
    // The only error is its own: it is full.
    let full = write!(text, "{value}").is_err();
    let mut text = text.0;
    if full {
        text.push('…');
    }
    text
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = MAX_TEXT - self.0.len();
        let fits = part.floor_char_boundary(room);
        self.0.push_str(&part[..fits]);
        if fits == part.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_say_so() {
        assert_eq!(bounded("short"), "short");
        assert_eq!(bounded("x".repeat(MAX_TEXT)), "x".repeat(MAX_TEXT));
        let cut = bounded("é".repeat(MAX_TEXT));
        assert_eq!(cut, format!("{}…", "é".repeat(MAX_TEXT / 2)));
        // Also where it comes in parts that each fit.
        let parts = format_args!("{}{}", "a".repeat(MAX_TEXT - 1), "é").to_string();
        assert_eq!(bounded(parts), format!("{}…", "a".repeat(MAX_TEXT - 1)));
    }
}
