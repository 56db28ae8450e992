//! From an answer to bytes on stdout: a table, JSON or YAML.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::cli::Format;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::page::Page;
use crate::text;

/// An answer: serialised as a stable document with a `schema` field, or laid out for a person.
pub(crate) trait Document: Serialize {
    /// Lays the answer out as seen at `now`.
    fn lay_out(&self, now: Moment, page: &mut Page);
}

/// Where and how answers are printed.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    /// Columns of the terminal; nothing if stdout is none.
    width: Option<u16>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let width = if io::stdout().is_terminal() { comfy_table::Table::new().width() } else { None };
        Self { format, width }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Prints one answer.
    ///
    /// # Errors
    /// [`Failure::StdoutClosed`] when the reader has gone; a message for any other failed write.
    pub(crate) fn print(&self, document: &impl Document) -> Result<(), Failure> {
        write_out(&self.render(document, PrettyFormatter::new()))
    }

    /// Prints an answer that follows others: on a terminal in their place, elsewhere after them, one JSON document a line.
    ///
    /// # Errors
    /// As [`Output::print`].
    pub(crate) fn print_again(&self, document: &impl Document, first: bool) -> Result<(), Failure> {
        let text = self.render(document, CompactFormatter);
        match (self.format, self.width) {
            (Format::Json, _) => write_out(&text),
            (Format::Yaml, _) => write_out(&format!("---\n{text}")),
            (Format::Table, Some(_)) => {
                // Home and clear, past the stripper: the screen is to be cleared even where colour is unwanted.
                io::stdout().lock().write_all(b"\x1b[H\x1b[2J")?;
                write_out(&text)
            }
            (Format::Table, None) if first => write_out(&text),
            (Format::Table, None) => write_out(&format!("\n{text}")),
        }
    }

    /// Prints one part of an answer that has no end, after the others: one JSON document a line.
    ///
    /// # Errors
    /// As [`Output::print`].
    pub(crate) fn append(&self, document: &impl Document) -> Result<(), Failure> {
        let text = self.render(document, CompactFormatter);
        match self.format {
            Format::Yaml => write_out(&format!("---\n{text}")),
            Format::Json | Format::Table => write_out(&text),
        }
    }

    fn render(&self, document: &impl Document, json: impl Formatter) -> String {
        match self.format {
            Format::Table => {
                let mut page = Page::new(self.width);
                document.lay_out(Moment::now(), &mut page);
                page.into_text()
            }
            Format::Json => to_json(document, json),
            Format::Yaml => {
                serde_norway::to_string(document).expect("documents have string keys and no failing parts")
            }
        }
    }
}

fn write_out(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

fn to_json(document: &impl Serialize, formatter: impl Formatter) -> String {
    let mut buffer = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut buffer, TerminalSafe(formatter));
    document.serialize(&mut serializer).expect("documents have string keys and no failing parts");
    buffer.push(b'\n');
    String::from_utf8(buffer).expect("JSON is UTF-8")
}

/// Writes characters that JSON allows but a terminal obeys (DEL, C1 controls, direction marks) as `\u` escapes.
struct TerminalSafe<F>(F);

impl<F: Formatter> Formatter for TerminalSafe<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(text::is_hostile) {
            let (plain, hostile) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut characters = hostile.chars();
            for unit in
                characters.next().into_iter().flat_map(|found| found.encode_utf16(&mut [0; 2]).to_vec())
            {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_safe_on_a_terminal_and_reads_back_the_same() {
        let hostile = "a\u{1b}[31m\u{9b}31m\u{7f}\u{202e}\"\\ü\u{1f600}";
        for json in [to_json(&hostile, CompactFormatter), to_json(&[hostile], PrettyFormatter::new())] {
            assert!(!json.trim_end().replace('\n', "").contains(text::is_hostile), "{json:?}");
            assert!(json.contains("\\u009b") && json.contains("\\u202e") && json.contains("ü"), "{json}");
        }
        assert_eq!(
            serde_json::from_str::<String>(&to_json(&hostile, CompactFormatter)).expect("valid"),
            hostile
        );
    }

    #[test]
    fn yaml_escapes_controls() {
        let yaml = serde_norway::to_string("a\u{1b}[31m\u{9b}\u{7f}").expect("plain");
        assert!(!yaml.trim_end().contains(char::is_control), "{yaml:?}");
    }
}
