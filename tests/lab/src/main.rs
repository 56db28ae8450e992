//! `isthmus-lab`: the demo, and the commands to look around in a lab that it left up.

mod demo;

use std::{env, ffi::OsString, io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

/// Isthmus on one machine: three sites in network namespaces, real daemons, a real PKI, real traffic.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the demo from the first link to the last certificate, and cleans up; exits 0 only if every step held.
    Demo {
        /// Leave everything up at the end, and print how to look around.
        #[arg(long)]
        keep: bool,
        #[command(subcommand)]
        action: Option<Action>,
    },
    /// Runs a command in a network namespace of the lab that `demo --keep` left up.
    Exec {
        /// Namespace: a gateway, a host, or `internet`.
        namespace: String,
        /// The command and its arguments, after `--`.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// The part of the demo that runs inside the sandbox.
    #[command(hide = true)]
    DemoInside {
        #[arg(long)]
        keep: bool,
    },
    /// A workload that serves mutual TLS.
    #[command(hide = true)]
    WorkloadServer(demo::workload::Server),
    /// A workload that dials one.
    #[command(hide = true)]
    WorkloadClient(demo::workload::Client),
}

#[derive(Subcommand)]
enum Action {
    /// Removes the lab that `demo --keep` left up.
    Down,
}

/// `cargo demo -- --keep` is an alias for `cargo run ... -- demo`, so that a second `--` arrives here; it is no more than a habit.
fn without_second_separator(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|word| word == "demo")
        && arguments.get(2).is_some_and(|word| word == "--")
    {
        arguments.remove(2);
    }
    arguments
}

fn main() -> ExitCode {
    let result = match Arguments::parse_from(without_second_separator(env::args_os())).command {
        Command::Demo { action: Some(Action::Down), .. } => demo::kept::down(),
        Command::Demo { keep, action: None } => demo::run(keep),
        Command::Exec { namespace, command } => demo::kept::exec(&namespace, &command),
        Command::DemoInside { keep } => demo::inside::run(keep),
        Command::WorkloadServer(server) => demo::workload::serve(&server),
        Command::WorkloadClient(client) => demo::workload::dial(&client),
    };
    result.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `cargo demo ARGUMENTS` passes on, by the alias in `.cargo/config.toml`.
    fn cargo_demo(arguments: &str) -> Vec<OsString> {
        let config = include_str!("../../../.cargo/config.toml");
        let alias = config.lines().find_map(|line| line.strip_prefix("demo = ")).unwrap();
        let (_, ours) = alias.trim_matches('"').split_once(" -- ").unwrap();
        let words = ["isthmus-lab"].into_iter().chain(ours.split(' ')).chain(arguments.split_whitespace());
        words.map(OsString::from).collect()
    }

    fn parse(arguments: Vec<OsString>) -> Result<(bool, bool), clap::Error> {
        match Arguments::try_parse_from(without_second_separator(arguments))?.command {
            Command::Demo { keep, action } => Ok((keep, matches!(action, Some(Action::Down)))),
            _ => panic!("not the demo"),
        }
    }

    #[test]
    fn the_demo_is_started_and_ended_with_and_without_a_separator() {
        for (arguments, expected) in [
            ("", (false, false)),
            ("--", (false, false)),
            ("-- --keep", (true, false)),
            ("--keep", (true, false)),
            ("-- down", (false, true)),
            ("down", (false, true)),
        ] {
            assert_eq!(parse(cargo_demo(arguments)).unwrap(), expected, "cargo demo {arguments}");
        }
        for arguments in ["-- -- --keep", "-- up", "up"] {
            assert!(parse(cargo_demo(arguments)).is_err(), "cargo demo {arguments}");
        }
    }

    #[test]
    fn a_command_to_execute_keeps_its_separator() {
        let words = ["isthmus-lab", "exec", "aws-host", "--", "demo", "--", "x"].map(OsString::from);
        assert_eq!(without_second_separator(words.clone()), words);
        let Command::Exec { command, .. } = Arguments::try_parse_from(words).unwrap().command else {
            panic!("not exec")
        };
        assert_eq!(command, ["demo", "--", "x"]);
    }
}
