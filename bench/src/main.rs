//! `isthmus-bench`: how fast the data path is, side by side with other WireGuard programs in one run, and whether it lasts; how fast
//! the BGP speaker is, side by side with others; how fast identities are issued.

mod contender;
mod converge;
mod failover;
mod figure;
mod goal;
mod iperf;
mod issue;
mod key;
mod measure;
mod path;
mod ping;
mod plan;
mod process;
mod report;
mod rig;
mod routes;
mod sandboxed;
mod soak;
mod streams;
mod subject;
mod summary;
mod tunnel;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// Figures of Isthmus and of its rivals, measured alternately on this machine, in network namespaces that vanish.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Throughput, latency, processor time and memory of a tunnel between two namespaces.
    Path(plan::Options),
    /// Many prefixes through one BGP speaker and out again, into the kernel too, side by side with BIRD, FRR and GoBGP.
    Routes(routes::Options),
    /// A path dies, a neighbor leaves, the speaker comes back: how long a flow is silent and kernel routes are wrong, side by side.
    Converge(converge::Options),
    /// Long-lived flows through a tunnel whose links, peers and settings change all the time: nothing may break or grow.
    Soak(soak::Options),
    /// The Workload API with many workloads: first answers, a change of bundles, memory.
    Streams(streams::Options),
    /// SVIDs that one core issues in a second, checked, signed and written to the audit log.
    Issue(issue::Options),
    /// The part that runs inside the sandbox.
    #[command(hide = true)]
    Inside {
        /// What to do, in JSON.
        job: String,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Path(options) => path::run(options),
        Command::Routes(options) => routes::run(options),
        Command::Converge(options) => converge::run(options),
        Command::Soak(options) => soak::run(options),
        Command::Streams(options) => streams::run(options),
        Command::Issue(options) => issue::run(&options),
        Command::Inside { job } => sandboxed::inside(&job),
    };
    result.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).is_ok();
        assert!(parse(
            "isthmus-bench path --programs isthmus,gotatun --rounds 1 --seconds 1 -o json --config mtu=1400"
        ));
        assert!(parse("isthmus-bench path --peers 1000"));
        assert!(parse("isthmus-bench path --failover --rounds 1 -o json"));
        assert!(parse(
            "isthmus-bench routes --programs isthmus,bird,frr,gobgp --sizes 10k,500k --rounds 1 -o json"
        ));
        assert!(parse("isthmus-bench routes --kernel"));
        assert!(parse("isthmus-bench converge --programs bird,frr --events silent-300,restart --times 3"));
        assert!(parse("isthmus-bench soak --minutes 1 --rate 50 -o json"));
        assert!(parse("isthmus-bench streams --streams 10 --connected 5 --probes 3 -o json"));
        assert!(parse("isthmus-bench issue --seconds 1 --directory /tmp -o json"));
        for wrong in [
            "isthmus-bench streams --streams 0",
            "isthmus-bench",
            "isthmus-bench issue --seconds 0",
            "isthmus-bench path --programs openvpn",
            "isthmus-bench path --rounds 0",
            "isthmus-bench path --seconds 0",
            "isthmus-bench path --peers 0",
            "isthmus-bench path --peers 10 --latency-under-load",
            "isthmus-bench path --config mtu",
            "isthmus-bench path --failover --peers 10",
            "isthmus-bench path --failover --programs gotatun",
            "isthmus-bench routes --sizes 11k",
            "isthmus-bench routes --kernel --sizes 10k",
            "isthmus-bench converge --events drought",
            "isthmus-bench converge --times 0",
            "isthmus-bench soak --minutes 0",
            "isthmus-bench soak --rate 0",
        ] {
            assert!(!parse(wrong), "{wrong}");
        }
    }
}
