//! What a run is to do, as the outer process tells it to the one inside the sandbox.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::contender::{self, Contender, Name, Wanted};

/// Arguments of `isthmus-bench path`.
#[derive(Args)]
pub(crate) struct Options {
    /// Programs to compare, none of which may be missing [default: all that are on PATH].
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    programs: Vec<Name>,
    /// How often each program is measured; a figure is the median of its rounds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each load lasts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The daemon to measure [default: the isthmusd beside this program].
    #[arg(long, value_name = "PATH")]
    isthmusd: Option<PathBuf>,
    /// Measure a debug build of isthmusd, which says nothing about speed.
    #[arg(long)]
    allow_debug: bool,
    /// A line for the section [tunnel] of isthmusd's configuration; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = config_line)]
    config: Vec<String>,
    /// Measure round trips while one TCP stream runs, too.
    #[arg(long)]
    latency_under_load: bool,
    /// Measure only what N more configured peers cost that never answer, every other one kept alive.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50_000), conflicts_with = "latency_under_load")]
    peers: Option<u32>,
    /// Measure only how long a flow's way to another peer takes when its own is marked down, with 100,000 prefixes that both can reach.
    #[arg(long, conflicts_with_all = ["latency_under_load", "peers", "programs", "seconds"])]
    failover: bool,
    /// Form of the result on standard output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// After a failure, leave everything up until interrupted.
    #[arg(long)]
    keep: bool,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Who takes part.
    pub(crate) contenders: Vec<Contender>,
    /// How often each is measured.
    pub(crate) rounds: u32,
    /// How long each load lasts.
    pub(crate) seconds: u32,
    /// Lines for our own daemon's section `[tunnel]`.
    pub(crate) config: Vec<String>,
    /// Also round trips under load.
    pub(crate) latency_under_load: bool,
    /// Only what so many more peers cost.
    pub(crate) peers: Option<u32>,
    /// Only how long a flow's way to another peer takes.
    pub(crate) failover: bool,
    /// Form of the result.
    pub(crate) output: Output,
    /// Leave everything up after a failure.
    pub(crate) keep: bool,
}

impl Plan {
    /// What `options` come to on this machine; `skip` hears of each program that is left out.
    ///
    /// # Errors
    /// When a program or tool is missing: which, and how to get it.
    pub(crate) fn new(options: Options, skip: impl FnMut(String)) -> Result<Self> {
        let Options { programs, rounds, seconds, isthmusd, allow_debug, config, .. } = options;
        let names = if options.failover { &[Name::Isthmus][..] } else { &programs };
        let wanted = Wanted { of: &Name::TUNNELS, names, isthmusd: isthmusd.as_deref(), allow_debug };
        let contenders = contender::select(wanted, skip)?;
        if options.failover {
            contender::check_self(allow_debug)?;
        } else {
            contender::check_tools(&contenders)?;
        }
        Ok(Self {
            contenders,
            rounds,
            seconds,
            config,
            latency_under_load: options.latency_under_load,
            peers: options.peers,
            failover: options.failover,
            output: options.output,
            keep: options.keep,
        })
    }
}

/// One line, so that it can't open a section of its own by accident.
fn config_line(text: &str) -> Result<String> {
    let (key, value) = text.split_once('=').context("it must be KEY=VALUE")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    ensure!(!key.trim().is_empty() && key.trim().chars().all(plain), "{key:?} is not a key");
    ensure!(!value.contains(['\n', '\r']), "the value has more than one line");
    Ok(format!("{} = {}", key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_configuration_is_one_line() {
        assert_eq!(config_line("mtu=1400").unwrap(), "mtu = 1400");
        assert_eq!(config_line("offload.udp_gso = false").unwrap(), "offload.udp_gso = false");
        assert_eq!(config_line("name=\"a=b\"").unwrap(), "name = \"a=b\"");
        for wrong in ["mtu", "=1", "[api]\nx=1", "x=1\n[api]", "a b=1"] {
            assert!(config_line(wrong).is_err(), "{wrong}");
        }
    }
}
