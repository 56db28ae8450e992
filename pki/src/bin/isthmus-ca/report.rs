//! What a command tells: lines for a person, or JSON with a schema for a program.

use clap::ValueEnum;
use serde_json::{Map, Value};

/// How a command reports.
#[derive(clap::Args)]
pub(crate) struct Form {
    /// How to report.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

/// How a command that makes something works.
#[derive(clap::Args)]
pub(crate) struct How {
    /// Check everything and say what would be done; make nothing, touch nothing, ask for no secret.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A headline, facts below it, warnings, and reports on parts.
pub(crate) struct Report {
    name: &'static str,
    headline: String,
    facts: Vec<(&'static str, Value, String)>,
    warnings: Vec<String>,
    parts: Vec<Report>,
}

impl Report {
    /// `name` becomes the schema: "isthmus.site-sign/v1".
    pub(crate) fn new(name: &'static str, headline: impl Into<String>) -> Self {
        let headline = headline.into();
        Self { name, headline, facts: Vec::new(), warnings: Vec::new(), parts: Vec::new() }
    }

    /// A fact; its name is the JSON member, and with spaces the label. The note is for people only.
    pub(crate) fn fact(mut self, name: &'static str, value: impl ToString, note: &str) -> Self {
        self.facts.push((name, value.to_string().into(), note.to_owned()));
        self
    }

    /// A fact of several lines.
    pub(crate) fn lines(mut self, name: &'static str, lines: Vec<String>) -> Self {
        self.facts.push((name, lines.into(), String::new()));
        self
    }

    /// A number.
    pub(crate) fn number(mut self, name: &'static str, value: u64) -> Self {
        self.facts.push((name, value.into(), String::new()));
        self
    }

    pub(crate) fn warn(mut self, warning: Option<String>) -> Self {
        self.warnings.extend(warning);
        self
    }

    pub(crate) fn parts(mut self, parts: Vec<Self>) -> Self {
        self.parts.extend(parts);
        self
    }

    fn text(&self, indent: usize) -> Vec<String> {
        let margin = " ".repeat(indent);
        let mut lines = vec![format!("{margin}{}", self.headline)];
        for (name, value, note) in &self.facts {
            let label = name.replace("sha256", "SHA-256").replace('_', " ");
            lines.extend(fact_lines(&label, value, note).into_iter().map(|line| format!("{margin}  {line}")));
        }
        lines.extend(self.warnings.iter().map(|warning| format!("{margin}  note: {warning}")));
        lines.extend(self.parts.iter().flat_map(|part| part.text(indent + 2)));
        lines
    }

    fn json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("summary".into(), self.headline.clone().into());
        object.extend(self.facts.iter().map(|(name, value, _)| ((*name).to_owned(), value.clone())));
        object.insert("warnings".into(), self.warnings.clone().into());
        if !self.parts.is_empty() {
            object.insert("parts".into(), self.parts.iter().map(|part| Value::Object(part.json())).collect());
        }
        object
    }
}

fn fact_lines(label: &str, value: &Value, note: &str) -> Vec<String> {
    let texts: Vec<String> = match value {
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    };
    let line = |(at, text): (usize, &String)| {
        format!("{:<12} {text} {note}", if at == 0 { label } else { "" }).trim_end().to_owned()
    };
    texts.iter().enumerate().map(line).collect()
}

impl Form {
    /// Prints the report.
    pub(crate) fn say(&self, report: &Report) -> anyhow::Result<()> {
        self.print(report, None)
    }

    fn print(&self, report: &Report, dry_run: Option<bool>) -> anyhow::Result<()> {
        if matches!(self.output, Output::Text) {
            return crate::say(&report.text(0));
        }
        let mut object = report.json();
        object.insert("schema".into(), format!("isthmus.{}/v1", report.name).into());
        object.extend(dry_run.map(|dry| ("dry_run".to_owned(), dry.into())));
        crate::say_json(&object)
    }
}

impl How {
    /// Prints the report; that of a dry run says that it is one.
    pub(crate) fn say(&self, mut report: Report) -> anyhow::Result<()> {
        if self.dry_run {
            report.headline = format!("dry run, nothing was made; it would be: {}", report.headline);
        }
        self.form.print(&report, Some(self.dry_run))
    }
}
