//! `isthmus-lab`: the demo, and the commands to look around in a lab that it left up.

mod demo;

use std::{ffi::OsString, io::Write, process::ExitCode};

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

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
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
