//! What a person sees: lines, labelled facts and borderless columns. Every string is cleaned on its way in.

use std::fmt::Write as _;

use comfy_table::{
    Cell as ComfyCell, Color, ColumnConstraint, ContentArrangement, Table as ComfyTable, presets,
};

use crate::text;

/// Narrowest that a column is wrapped to, in characters: prose in a narrower one is harder to read than a line that runs on.
const MIN_WRAPPED: u16 = 20;

/// One table cell.
#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// What a cell says about the health of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

impl Cell {
    pub(crate) fn new(content: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: text::clean(text::or_dash(content.as_ref())).into_owned(), tone }
    }

    fn styled(&self) -> ComfyCell {
        let cell = ComfyCell::new(&self.text);
        match self.tone {
            Tone::Plain => cell,
            Tone::Good => cell.fg(Color::Green),
            Tone::Warning => cell.fg(Color::Yellow),
            Tone::Bad => cell.fg(Color::Red),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::new(number.to_string(), Tone::Plain)
    }
}

/// Text under construction, styled with ANSI sequences that the writer strips where they are not wanted.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    /// Columns of the terminal; nothing when it does not tell or stdout is none, and then no line is ever wrapped.
    width: Option<u16>,
}

impl Page {
    /// An empty page for a terminal of so many columns (0 where it does not tell), or for a pipe or file.
    pub(crate) fn new(width: Option<u16>) -> Self {
        Self { text: String::new(), width: width.filter(|columns| *columns > 0) }
    }

    /// A line of its own; an empty one separates blocks.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(&text::clean(line.as_ref()));
        self.text.push('\n');
    }

    /// Labels and values in two columns without a header.
    pub(crate) fn facts<const N: usize>(&mut self, facts: [(&str, Cell); N]) {
        let rows = facts.into_iter().map(|(label, cell)| [Cell::from(label), cell]);
        self.columns(None, rows);
    }

    /// A table with a header; with no rows, a line that says so.
    pub(crate) fn table<const N: usize>(
        &mut self,
        header: [&str; N],
        rows: impl IntoIterator<Item = [Cell; N]>,
        empty: &str,
    ) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return self.line(empty);
        }
        self.columns(Some(header), rows);
    }

    fn columns<const N: usize>(&mut self, header: Option<[&str; N]>, rows: impl Iterator<Item = [Cell; N]>) {
        let mut table = ComfyTable::new();
        table.load_style(presets::NOTHING).enforce_styling();
        // Without this the padding is coloured too, and a line ends in blanks that cannot be trimmed.
        table.style_text_only();
        if let Some(header) = header {
            table.set_header(header);
        }
        for row in rows {
            table.add_row(row.iter().map(Cell::styled));
        }
        self.arrange(&mut table, N);
        for line in table.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }

    /// Two blanks between columns; on a terminal only the last column, the prose, may wrap, and only where it has room enough.
    fn arrange(&self, table: &mut ComfyTable, columns: usize) {
        for (index, column) in table.column_iter_mut().enumerate() {
            let last = index + 1 == columns;
            column.set_padding((0, if last { 0 } else { 2 }));
            if !last {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        match self.width.filter(|width| room_for_last(table, *width) >= MIN_WRAPPED) {
            Some(width) => table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
    }

    /// The finished text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// What the other columns leave to the last one.
fn room_for_last(table: &ComfyTable, width: u16) -> u16 {
    let content = table.column_max_content_widths();
    let others = content.iter().zip(table.column_iter()).take(content.len().saturating_sub(1));
    others.fold(width, |room, (content, column)| {
        room.saturating_sub(content.saturating_add(column.padding_width()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: Option<u16>) -> String {
        let mut page = Page::new(width);
        page.table(
            ["NAME", "STATE", "REASON"],
            [
                ["gw1".into(), Cell::new("up", Tone::Good), "".into()],
                ["a-long-name".into(), "down".into(), "no handshake reply for 12 s".into()],
            ],
            "none",
        );
        anstream::adapter::strip_str(&page.into_text()).to_string()
    }

    #[test]
    fn columns_are_plain_and_never_wrapped_without_a_terminal() {
        let expected = "\
NAME         STATE  REASON
gw1          up     -
a-long-name  down   no handshake reply for 12 s
";
        assert_eq!(page(None), expected);
    }

    #[test]
    fn on_a_narrow_terminal_only_the_last_column_wraps() {
        let expected = "\
NAME         STATE  REASON
gw1          up     -
a-long-name  down   no handshake reply
                    for 12 s
";
        assert_eq!(page(Some(40)), expected);
    }

    #[test]
    fn lines_run_long_where_the_last_column_would_get_less_than_20_characters() {
        assert!(page(Some(40)).lines().all(|line| line.len() <= 40));
        for width in 0..40 {
            assert_eq!(page(Some(width)), page(None), "{width}");
        }
    }

    #[test]
    fn a_terminal_that_does_not_tell_its_size_is_taken_for_unlimited() {
        let facts = |width| {
            let mut page = Page::new(width);
            page.facts([("Ready", "yes".into()), ("Configuration", "/etc/isthmus/isthmusd.toml".into())]);
            page.into_text()
        };
        assert_eq!(facts(Some(0)), "Ready          yes\nConfiguration  /etc/isthmus/isthmusd.toml\n");
        assert_eq!(facts(Some(0)), facts(None));
    }

    #[test]
    fn an_empty_table_says_so() {
        let mut page = Page::new(None);
        page.table(["A"], [], "no peers are configured");
        assert_eq!(page.into_text(), "no peers are configured\n");
    }

    #[test]
    fn text_from_elsewhere_cannot_drive_the_terminal() {
        let mut page = Page::new(None);
        page.table(["A"], [["\u{1b}]0;owned\u{7}\r\nfake".into()]], "none");
        page.line("x\u{1b}[2Jy");
        assert_eq!(page.into_text(), "A\n\\u{1b}]0;owned\\u{7}\\r\\nfake\nx\\u{1b}[2Jy\n");
    }
}
