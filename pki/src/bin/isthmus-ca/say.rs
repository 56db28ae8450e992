//! What reaches the terminal: every line is cleaned here, since subjects, names and reasons come from files that anybody may have made.

use std::{
    error::Error,
    fmt,
    io::{self, Write as _},
};

use anyhow::Context as _;
use isthmus_pki::text::{clean, clean_json};

/// Lines for the person at the keyboard.
pub(crate) fn say(lines: &[String]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", clean(line)).context("standard output")?;
    }
    Ok(())
}

/// A JSON document.
pub(crate) fn say_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    say_exactly(&clean_json(&serde_json::to_string_pretty(document)?))
}

/// A document that the next program reads, as it is.
pub(crate) fn say_exactly(document: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{document}").context("standard output")
}

/// A line for the person at the keyboard that is no data.
pub(crate) fn note(line: &str) {
    // Standard error gone: there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{}", clean(line));
}

/// The last words of a command that failed.
pub(crate) fn say_error(error: &anyhow::Error) {
    // Standard error gone: there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: {}", words(error));
}

/// An error of several lines. In any other a line break is somebody else's, and is shown as what it is.
#[derive(Debug)]
pub(crate) struct Lines(pub(crate) Vec<String>);

impl Error for Lines {}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(|line| clean(line)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The error and its causes in one line.
fn words(error: &anyhow::Error) -> String {
    let word = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<Lines>() {
        Some(lines) => lines.to_string(),
        None => clean(&cause.to_string()).into_owned(),
    };
    error.chain().map(word).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_line_breaks_are_line_breaks() {
        let hostile = "CN=\u{1b}[2J\nok: all is well\u{9b}\u{202e}";
        let said = words(&anyhow::anyhow!("{hostile}").context("a.pem"));
        assert_eq!(said, "a.pem: CN=\\u{1b}[2J\\nok: all is well\\u{9b}\\u{202e}");
        let said = words(&anyhow::Error::new(Lines(vec!["one\n".into(), "two".into()])).context("b"));
        assert_eq!(said, "b: one\\n\ntwo");
    }
}
