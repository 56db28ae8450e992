//! Load, by iperf3: one server and one client a run, and what both say of it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use isthmus_lab::{netns::Netns, wait};
use serde::Deserialize;

use crate::process;

const PORT: u16 = 5201;
/// How long an end may take beyond the time that it was to send.
const PATIENCE: Duration = Duration::from_secs(30);
/// The default of Linux, whatever this machine prefers: figures of other machines were made with it.
const CONGESTION_CONTROL: &str = "cubic";
/// Octets of a small datagram.
const SMALL: u32 = 64;

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Streams from the client to the server.
    Tcp(u32),
    /// One stream from the server to the client.
    TcpReverse,
    /// Datagrams of 64 octets, as many as the client can.
    Udp,
}

/// The two hosts and where to leave the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between<'a> {
    /// Where the client runs.
    pub(crate) client: &'a Netns,
    /// Where the server runs.
    pub(crate) server: &'a Netns,
    /// The server's address within the tunnel.
    pub(crate) address: &'a str,
    /// Directory for the output of both.
    pub(crate) dir: &'a Path,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Bits a second that the receiver's application got.
    pub(crate) bits_per_second: f64,
    /// Octets that it got.
    pub(crate) bytes: f64,
    /// Datagrams a second that it got; zero with TCP.
    pub(crate) datagrams_per_second: f64,
    /// Segments sent again; zero with UDP.
    pub(crate) retransmits: f64,
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Running {
    load: Load,
    limit: Duration,
    server: End,
    client: End,
}

/// Runs `load` for `seconds` and waits for its end.
///
/// # Errors
/// When iperf3 can't be run, fails or does not end: what it said.
pub(crate) fn run(path: Between<'_>, load: Load, seconds: u32) -> Result<Outcome> {
    start(path, load, seconds)?.finish()
}

/// Starts `load`; the server listens before the client is started.
///
/// # Errors
/// As [`run`].
pub(crate) fn start(path: Between<'_>, load: Load, seconds: u32) -> Result<Running> {
    let port = PORT.to_string();
    let server = ["-s", "-1", "-J", "-B", path.address, "-p", &port].map(str::to_owned).to_vec();
    let mut server = End::start(path.server, path.dir.join("iperf3-server"), server)?;
    server.wait_to_listen()?;
    let mut arguments = ["-c", path.address, "-J", "-p", &port].map(str::to_owned).to_vec();
    arguments.extend(["-t".to_owned(), seconds.to_string()]);
    arguments.extend(load.arguments());
    let client = End::start(path.client, path.dir.join("iperf3-client"), arguments)?;
    let limit = PATIENCE + Duration::from_secs(seconds.into());
    Ok(Running { load, limit, server, client })
}

impl Load {
    fn arguments(self) -> Vec<String> {
        let text = match self {
            Self::Tcp(streams) => format!("-C {CONGESTION_CONTROL} -P {streams}"),
            Self::TcpReverse => format!("-C {CONGESTION_CONTROL} -R"),
            Self::Udp => format!("-u -b 0 -l {SMALL}"),
        };
        text.split(' ').map(str::to_owned).collect()
    }

    /// Whether the receiver's own report must be used: the client's copy of it may have been lost in the flood.
    fn is_counted_by_server(self) -> bool {
        self == Self::Udp
    }
}

impl Running {
    /// Waits for the end.
    ///
    /// # Errors
    /// As [`run`].
    pub(crate) fn finish(mut self) -> Result<Outcome> {
        let client = self.client.finish("client", self.limit)?;
        let server = self.server.finish("server", PATIENCE)?;
        outcome(self.load, if self.load.is_counted_by_server() { &server } else { &client })
    }
}

/// One iperf3, killed when dropped.
#[derive(Debug)]
struct End {
    child: Child,
    output: PathBuf,
}

impl End {
    /// By way of a file: nobody need read along while it runs.
    fn start(netns: &Netns, output: PathBuf, arguments: Vec<String>) -> Result<Self> {
        let file = File::create(&output).with_context(|| format!("making {}", output.display()))?;
        let mut command: Command = netns.command("iperf3")?;
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
        command.stdout(file.try_clone()?).stderr(file);
        Ok(Self { child: command.spawn().context("starting iperf3")?, output })
    }

    /// A server that ends instead has said why.
    fn wait_to_listen(&mut self) -> Result<()> {
        let pid = self.child.id();
        let mut ended = false;
        wait::until("iperf3's server to listen", PATIENCE, || {
            ended = self.child.try_wait()?.is_some();
            ensure!(ended || process::is_listening(pid, PORT), "not yet");
            Ok(())
        })?;
        if ended {
            self.finish("server", PATIENCE)?;
            bail!("iperf3's server ended before anybody came");
        }
        Ok(())
    }

    fn finish(&mut self, who: &str, limit: Duration) -> Result<String> {
        let status: ExitStatus = wait::until(&format!("the end of iperf3's {who}"), limit, || {
            self.child.try_wait()?.context("it goes on")
        })?;
        let said = fs::read_to_string(&self.output)?;
        ensure!(status.success(), "iperf3's {who} failed: {}", complaint(&said));
        Ok(said)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What iperf3 says of a run, of which we need little.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    end: Ending,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
struct Ending {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sender_tcp_congestion: Option<String>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: f64,
    bits_per_second: f64,
    #[serde(default)]
    retransmits: f64,
}

fn outcome(load: Load, report: &str) -> Result<Outcome> {
    let report: Report = serde_json::from_str(report).context("iperf3's report")?;
    if let Some(error) = report.error {
        bail!("iperf3: {error}");
    }
    let received =
        report.end.sum_received.ok_or_else(|| anyhow!("iperf3's report has no end.sum_received"))?;
    let control = report.end.sender_tcp_congestion.as_deref();
    ensure!(
        load == Load::Udp || control == Some(CONGESTION_CONTROL),
        "the sender used congestion control {control:?}, not {CONGESTION_CONTROL}: modprobe tcp_{CONGESTION_CONTROL}"
    );
    ensure!(received.seconds > 0.0, "iperf3 measured for no time");
    let datagrams = if load == Load::Udp { received.bytes / f64::from(SMALL) } else { 0.0 };
    Ok(Outcome {
        bits_per_second: received.bits_per_second,
        bytes: received.bytes,
        datagrams_per_second: datagrams / received.seconds,
        retransmits: report.end.sum_sent.map_or(0.0, |sent| sent.retransmits),
    })
}

/// Why it failed, in its own words.
fn complaint(said: &str) -> String {
    let report = serde_json::from_str::<Report>(said).ok();
    report.and_then(|report| report.error).unwrap_or_else(|| said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Recorded with iperf 3.12, shortened.
    const TCP: &str = r#"{
        "start": {"version": "iperf 3.12"}, "intervals": [],
        "end": {
            "sum_sent": {"start": 0, "end": 1.000127, "seconds": 1.000127, "bytes": 2477260800,
                "bits_per_second": 19815569822.632526, "retransmits": 12, "sender": true},
            "sum_received": {"start": 0, "end": 1.002291, "seconds": 1.002291, "bytes": 2472017920,
                "bits_per_second": 19730939776.97096, "sender": true},
            "cpu_utilization_percent": {"host_total": 35.188905475797235},
            "sender_tcp_congestion": "cubic"
        }
    }"#;
    const UDP_SERVER: &str = r#"{
        "start": {"version": "iperf 3.12"}, "intervals": [],
        "end": {
            "sum": {"start": 0, "end": 1.000092, "seconds": 1.000092, "bytes": 0, "bits_per_second": 0,
                "jitter_ms": 0.0014601407024288449, "lost_packets": 100019, "packets": 174530, "lost_percent": 57.3, "sender": false},
            "sum_sent": {"start": 0, "end": 1.000092, "seconds": 1.000092, "bytes": 0, "bits_per_second": 0,
                "jitter_ms": 0, "lost_packets": 0, "packets": 0, "lost_percent": 0, "sender": true},
            "sum_received": {"start": 0, "end": 1.000092, "seconds": 1.000092, "bytes": 4768704,
                "bits_per_second": 38146122.55672478, "jitter_ms": 0.0014601407024288449, "lost_packets": 100019,
                "packets": 174530, "lost_percent": 57.3, "sender": false}
        }
    }"#;
    const REFUSED: &str = r#"{"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {},
        "error": "unable to connect to server: Connection refused"}"#;

    #[test]
    fn tcp_is_what_was_received() {
        let outcome = outcome(Load::Tcp(4), TCP).unwrap();
        assert_eq!(outcome.bits_per_second, 19730939776.97096);
        assert_eq!(
            (outcome.bytes, outcome.retransmits, outcome.datagrams_per_second),
            (2472017920.0, 12.0, 0.0)
        );
    }

    #[test]
    fn datagrams_are_those_that_arrived() {
        let outcome = outcome(Load::Udp, UDP_SERVER).unwrap();
        let arrived = f64::from(174_530 - 100_019) / 1.000092;
        assert!((outcome.datagrams_per_second - arrived).abs() < 1e-6, "{outcome:?}");
        assert_eq!(outcome.retransmits, 0.0);
    }

    #[test]
    fn a_failure_is_told_in_its_own_words() {
        assert!(outcome(Load::Tcp(1), REFUSED).unwrap_err().to_string().contains("Connection refused"));
        assert_eq!(complaint(REFUSED), "unable to connect to server: Connection refused");
        assert_eq!(complaint("iperf3: parameter error\n"), "iperf3: parameter error");
        for broken in [
            "",
            "{",
            r#"{"end": {}}"#,
            r#"{"end": {"sum_received": {"seconds": 0, "bytes": 0, "bits_per_second": 0}}}"#,
        ] {
            assert!(outcome(Load::Tcp(1), broken).is_err(), "{broken}");
        }
    }
}
