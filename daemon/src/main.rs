//! `isthmusd`: arguments, logging, the runtime; the rest is in `app`.

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::Parser;
use isthmusd::{app, config, events};
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// The Isthmus daemon: tunnels, BGP, kernel routes, SPIFFE identities.
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    /// Check the configuration and exit, touching nothing.
    #[arg(long)]
    check: bool,
    /// Form of the log on stderr; what is logged is set by ISTHMUS_LOG, such as "debug".
    #[arg(long, value_enum, default_value = "text")]
    log: LogFormat,
}

const EXIT_CODES: &str = "Signals: HUP reloads the configuration, TERM and INT stop.\n\
    Exit codes: 0 ok, 1 failed, 2 usage, 3 invalid configuration.";

/// What is logged unless ISTHMUS_LOG says otherwise.
const DEFAULT_FILTER: &str = "info";

/// Exit code for a configuration that was refused.
const INVALID_CONFIG: u8 = 3;

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn main() -> ExitCode {
    app::hold_hangup();
    let arguments = Arguments::parse();
    let config = match config::load(&arguments.config) {
        Ok(config) => config,
        Err(error) => return refuse(error),
    };
    if arguments.check {
        if let Err(error) = app::check(&config) {
            let _ = writeln!(std::io::stderr(), "{}: {error}", arguments.config.display());
            return ExitCode::from(INVALID_CONFIG);
        }
        for warning in &config.warnings {
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
        // A closed stdout is the reader's choice; the exit code still tells.
        let _ = writeln!(std::io::stdout(), "{}: ok", arguments.config.display());
        return ExitCode::SUCCESS;
    }
    let journal = events::Journal::new();
    start_logging(arguments.log, journal.clone());
    match run(config, journal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(error: config::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{:?}", miette::Report::new(error));
    ExitCode::from(INVALID_CONFIG)
}

fn start_logging(format: LogFormat, journal: events::Journal) {
    let filter = std::env::var("ISTHMUS_LOG").unwrap_or_else(|_| DEFAULT_FILTER.into());
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(filter);
    let to_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let colour = to_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
    let log = match format {
        LogFormat::Text => log.with_filter(filter).boxed(),
        LogFormat::Json => log.json().with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(log).with(events::layer(journal)).init();
}

/// Control work is light and the packet path has threads of its own, so two workers do.
fn run(config: config::Config, journal: events::Journal) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(app::run(config, journal))
}
