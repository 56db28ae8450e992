//! `inspect`.

use std::{path::PathBuf, process::ExitCode};

use clap::ValueEnum;
use isthmus_pki::inspect;
use serde::Serialize;

use crate::files;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// PEM or DER: certificates, requests, keys, bundles.
    file: PathBuf,
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    file: String,
    items: &'a [inspect::Item],
}

/// Exit code 1 if something in the file would be refused.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let items = inspect::inspect(&files::read(&args.file)?, crate::now());
    match args.output {
        Output::Text => crate::say(&items.iter().flat_map(inspect::lines).collect::<Vec<_>>())?,
        Output::Json => {
            let file = args.file.display().to_string();
            crate::say_json(&Report { schema: "isthmus.inspect/v1", file, items: &items })?;
        }
    }
    Ok(if inspect::is_sound(&items) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
