//! The command as its user calls it. Loads of a second each are still loads: only with `ISTHMUS_BENCH_SMOKE=1`.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    env,
    io::{self, Write},
    process::{Command, Stdio},
    time::Duration,
};

use isthmus_lab::{
    bins::Bins,
    sandbox::{
        Support,
        processes::{Process, children_of, listing_below},
        support,
    },
    wait,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

/// Figures of our own daemon.
const PATH: [&str; 5] = ["path", "--programs", "isthmus", "--rounds", "1"];

/// The command with our own daemon; `None`, and a line that says why, where it can't be.
fn bench(test: &str, command: &[&str], arguments: &[&str]) -> Option<Command> {
    let why = match support() {
        _ if env::var("ISTHMUS_BENCH_SMOKE").as_deref() != Ok("1") => {
            "ISTHMUS_BENCH_SMOKE=1 is not set".to_owned()
        }
        Support::None(why) => why,
        _ if Command::new("iperf3").arg("--version").output().is_err() => "iperf3 is not on PATH".to_owned(),
        _ => {
            let bins = Bins::build().unwrap();
            let mut bench = Command::new(env!("CARGO_BIN_EXE_isthmus-bench"));
            bench.args(command).args(["--allow-debug", "--isthmusd"]).arg(bins.isthmusd);
            bench.args(arguments).stdin(Stdio::null());
            return Some(bench);
        }
    };
    // Not by the macro: the line shows although the test passes.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {why}");
    None
}

#[test]
fn a_round_measures_everything() {
    let arguments = ["--seconds", "1", "--latency-under-load", "-o", "json"];
    let Some(mut command) = bench("a_round_measures_everything", &PATH, &arguments) else { return };
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = report["programs"][0]["figures"].as_object().unwrap();
    for (name, figure) in figures {
        assert!(name == "tcp4_retransmits" || figure["median"].as_f64().unwrap() > 0.0, "{name}: {figure}");
    }
    assert_eq!(figures.len(), 10, "{figures:?}");
    assert_eq!(report["verdicts"][0]["figure"], "peak_rss");
}

#[test]
fn a_flow_of_a_peer_that_is_marked_down_goes_elsewhere() {
    let test = "a_flow_of_a_peer_that_is_marked_down_goes_elsewhere";
    let Some(mut command) = bench(test, &["path", "--failover", "--rounds", "1"], &["-o", "json"]) else {
        return;
    };
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = &report["programs"][0]["figures"];
    assert!(figures["failover"]["median"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(figures["failover_strays"]["median"], 0.0, "{report}");
}

#[test]
fn a_minute_of_everything_is_survived() {
    let arguments = ["--rate", "20", "-o", "json"];
    let Some(mut command) =
        bench("a_minute_of_everything_is_survived", &["soak", "--minutes", "1"], &arguments)
    else {
        return;
    };
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{}: {}", output.status, report["failures"]);
    assert_eq!(report["events"].as_object().unwrap().len(), 5, "{}", report["events"]);
    assert_eq!(report["flows"].as_array().unwrap().len(), 10);
}

#[test]
fn nothing_is_left_of_an_interrupted_run() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let test = "nothing_is_left_of_an_interrupted_run";
        let Some(mut command) = bench(test, &PATH, &["--seconds", "60"]) else { return };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait::until_true("the load", LIMIT, || listing_below(child.id()).contains("iperf3 -c")).unwrap();
        let below = descendants(child.id());
        assert!(below.len() >= 6, "the sandbox's two, the inner command, two daemons and iperf3: {below:?}");
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        let gone = || !below.iter().any(Process::is_there);
        wait::until_true("the end of everything in the sandbox", LIMIT, gone).unwrap();
    }
}

fn descendants(root: u32) -> Vec<Process> {
    let children = children_of(root).into_iter();
    children.flat_map(|child| Process::now(child).into_iter().chain(descendants(child))).collect()
}
