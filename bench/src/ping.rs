//! Round trips, by `ping` of iputils.

use std::{process::Command, process::Stdio};

use anyhow::{Context, Result, ensure};
use isthmus_lab::netns::Netns;

/// Sends `count` echo requests, 10 ms apart, and returns the round trips in ms, one for each that was answered.
///
/// # Errors
/// When `ping` can't be run, or fewer than half were answered.
pub(crate) fn run(from: &Netns, to: &str, count: u32) -> Result<Vec<f64>> {
    let mut command: Command = from.command("ping")?;
    command.args(["-n", "-i", "0.01", "-W", "1", "-c", &count.to_string(), to]);
    // A decimal point whatever the locale.
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().context("running ping")?;
    let times = parse(&String::from_utf8_lossy(&output.stdout));
    let half = usize::try_from(count / 2)?;
    ensure!(
        times.len() >= half.max(1),
        "only {} of {count} pings to {to} were answered {}",
        times.len(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(times)
}

/// The times of all answers, in ms.
fn parse(output: &str) -> Vec<f64> {
    let times = output.lines().filter_map(|line| line.split_once(" time=")?.1.strip_suffix(" ms"));
    times.filter_map(|time| time.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded with iputils 20221126, shortened.
    const SAMPLE: &str = "\
PING 10.99.0.2 (10.99.0.2) 56(84) bytes of data.
64 bytes from 10.99.0.2: icmp_seq=1 ttl=64 time=0.107 ms
64 bytes from 10.99.0.2: icmp_seq=2 ttl=64 time=0.041 ms
64 bytes from 10.99.0.2: icmp_seq=4 ttl=64 time=12.3 ms
From 10.99.0.1 icmp_seq=5 Destination Host Unreachable

--- 10.99.0.2 ping statistics ---
5 packets transmitted, 3 received, 40% packet loss, time 61ms
rtt min/avg/max/mdev = 0.041/4.149/12.300/5.763 ms
";

    #[test]
    fn each_answer_is_a_time() {
        assert_eq!(parse(SAMPLE), [0.107, 0.041, 12.3]);
        assert!(parse("ping: connect: Network is unreachable\n").is_empty());
    }
}
