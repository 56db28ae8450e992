//! `isthmusctl` shows and explains a running Isthmus node: data on stdout, messages on stderr, and an exit code that scripts can use.
//!
//! One file for each noun; `client` reaches the daemon, `watch` asks once or each second, `output` turns an answer into a table, JSON or
//! YAML. Answers are this program's own types, so that the documents stay as they are when the wire format moves.

mod audit;
mod bfd;
mod bgp;
mod bgp_clear;
mod bgp_dump;
mod bgp_neighbor;
mod bgp_rib;
mod certs;
mod certs_doctor;
mod certs_inspect;
mod cli;
mod client;
mod config;
mod drain;
mod events;
mod fabric;
mod failure;
mod generate;
mod input;
mod moment;
mod offloads;
mod output;
mod page;
mod peers;
mod rotate;
mod rotate_status;
mod routes;
mod routes_why;
mod status;
mod svid;
mod svid_files;
mod text;
mod token;
mod tunnel;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{
    Arguments, BgpVerb, CertsVerb, ConfigVerb, FabricVerb, Noun, RotateVerb, RoutesVerb, SvidVerb, TunnelVerb,
};
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    anstream::ColorChoice::from(arguments.color).write_global();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints what the argument parser says: help and version on stdout with 0, a mistake on stderr with 2.
fn refuse(error: &clap::Error) -> ExitCode {
    // When nobody reads the message there is nobody left to tell.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(failure::USAGE) } else { ExitCode::SUCCESS }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.validate()?;
    let output = Output::new(arguments.output);
    let ask = watch::Ask { socket: &arguments.socket, output: &output, watch: arguments.watch };
    match arguments.noun {
        Noun::Status { exit_code } => ask.show(&status::Query { exit_code }),
        Noun::Peers => ask.show(&peers::Query),
        Noun::Tunnel { verb: None } => ask.show(&tunnel::Query),
        Noun::Tunnel { verb: Some(TunnelVerb::Offload { name: Some(name), to: Some(to) }) } => {
            ask.show(&offloads::Turn { name, to })
        }
        Noun::Tunnel { verb: Some(TunnelVerb::Offload { .. }) } => ask.show(&offloads::Query),
        Noun::Routes { prefix, verb: None } => ask.show(&routes::Query { prefix }),
        Noun::Routes { verb: Some(RoutesVerb::Why { address }), .. } => {
            ask.show(&routes_why::Query { address })
        }
        Noun::Bgp { verb: BgpVerb::Neighbors { name: None } } => ask.show(&bgp::Query),
        Noun::Bgp { verb: BgpVerb::Neighbors { name: Some(name) } } => {
            ask.show(&bgp_neighbor::Query { name })
        }
        Noun::Bgp { verb: BgpVerb::Rib { table, prefix, longer, neighbor } } => {
            ask.show(&bgp_rib::Query { table, prefix, longer, neighbor })
        }
        Noun::Bgp { verb: BgpVerb::Dump { file, force } } => {
            bgp_dump::dump(&client::Server::control(&arguments.socket), &file, force)
        }
        Noun::Bgp { verb: BgpVerb::Clear { neighbor, soft } } => {
            ask.show(&bgp_clear::Order { neighbor, soft })
        }
        Noun::Events { since, subsystem, follow } => {
            let query = events::Query { since, subsystem };
            match follow {
                true => query.follow(&client::Server::control(&arguments.socket), &output),
                false => ask.show(&query),
            }
        }
        Noun::Drain { wait, undo } => ask.show(&drain::Order { wait, undo }),
        Noun::Bfd { name } => ask.show(&bfd::Query { name }),
        Noun::Certs { verb: None } => ask.show(&certs::Query),
        Noun::Certs { verb: Some(CertsVerb::Inspect { file }) } => certs_inspect::inspect(&output, &file),
        Noun::Certs { verb: Some(CertsVerb::Doctor(doctor)) } => certs_doctor::doctor(&output, &doctor),
        Noun::Fabric { verb: FabricVerb::Keys } => ask.show(&fabric::KeysQuery),
        Noun::Fabric { verb: FabricVerb::Peers } => ask.show(&fabric::PeersQuery),
        Noun::Token { verb } => token::run(&client::Server::control(&arguments.socket), &output, &verb),
        Noun::Svid { verb: SvidVerb::Fetch(fetch) } => svid::fetch(&output, &fetch),
        Noun::Rotate { verb: RotateVerb::Status } => ask.show(&rotate_status::Query),
        Noun::Rotate { verb } => rotate::run(&client::Server::control(&arguments.socket), &output, verb),
        Noun::Config { verb: ConfigVerb::Check { file } } => config::check(&output, &file),
        Noun::Audit { verb } => audit::run(&output, verb),
        Noun::Generate { what } => generate::generate(what),
    }
}
