//! Envoy as a process, its admin page, and traffic through it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use isthmus_lab::{netns::Netns, peers::ENVOY, wait};

const LIMIT: Duration = Duration::from_secs(30);

/// Killed when it is dropped. Its name is that of its file, whose ending says whether it is JSON or YAML.
pub(crate) struct Envoy {
    child: Child,
    netns: Netns,
    admin: u16,
    log: std::path::PathBuf,
}

impl Envoy {
    pub(crate) fn start(name: &str, netns: &Netns, dir: &Path, config: &str, admin: u16) -> Self {
        let (file, log) = (dir.join(name), dir.join(format!("{name}.log")));
        fs::write(&file, config).unwrap();
        let output = File::create(&log).unwrap();
        let mut command = netns.command(ENVOY).unwrap();
        command.arg("-c").arg(&file).args(["--concurrency", "1", "--disable-hot-restart", "-l", "info"]);
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        Self { child: command.spawn().unwrap(), netns: netns.clone(), admin, log }
    }

    fn ask(&self, path: &str) -> Result<String> {
        let admin = self.admin;
        self.netns.run(|| get(admin, path))?.map(|(_, body)| body)
    }

    /// The admin page `/certs`: what it holds at the moment.
    pub(crate) fn certificates(&self) -> Result<String> {
        self.ask("/certs")
    }

    /// One number of the admin page `/stats`.
    pub(crate) fn stat(&self, name: &str) -> Result<u64> {
        let stats = self.ask(&format!("/stats?filter={name}"))?;
        let values = stats.lines().filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok());
        Ok(values.sum())
    }

    /// Waits until what it holds is as `check` wants it.
    pub(crate) fn wait_for(&self, what: &str, check: impl Fn(&str) -> bool) {
        let held = wait::until(what, LIMIT, || {
            let certificates = self.certificates()?;
            ensure!(check(&certificates), "it holds {certificates}");
            Ok(())
        });
        held.with_context(|| fs::read_to_string(&self.log).unwrap_or_default()).unwrap();
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request over a connection of its own: status and body.
pub(crate) fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of headers")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((status, if chunked { unchunked(body)? } else { body.to_owned() }))
}

/// RFC 9112 section 7.1.
fn unchunked(mut body: &str) -> Result<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").context("no size of a chunk")?;
        let size = usize::from_str_radix(size, 16).context("the size of a chunk")?;
        if size == 0 {
            return Ok(whole);
        }
        whole += rest.get(..size).context("a chunk that ends early")?;
        body = rest.get(size..).and_then(|rest| rest.strip_prefix("\r\n")).context("no end of a chunk")?;
    }
}

/// Requests without a pause, each counted.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicU64>,
    thread: JoinHandle<Vec<String>>,
}

impl Traffic {
    pub(crate) fn start(netns: &Netns, port: u16) -> Self {
        let (stop, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (netns, ending, counter) = (netns.clone(), stop.clone(), good.clone());
        let thread = thread::spawn(move || netns.run(|| ask_on(port, &ending, &counter)).unwrap());
        Self { stop, good, thread }
    }

    /// Returns once this many more requests have been answered: the state of now has carried traffic.
    pub(crate) fn flows(&self, requests: u64) {
        let before = self.good.load(Ordering::Relaxed);
        let more = || self.good.load(Ordering::Relaxed) >= before + requests;
        wait::until_true("traffic flows", LIMIT, more).unwrap();
    }

    /// How many were answered, and what went wrong with the others.
    pub(crate) fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.thread.join().unwrap();
        (self.good.load(Ordering::Relaxed), failures)
    }
}

fn ask_on(port: u16, stop: &AtomicBool, good: &AtomicU64) -> Vec<String> {
    let mut failures = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match get(port, "/") {
            Ok((200, body)) if body == "served" => _ = good.fetch_add(1, Ordering::Relaxed),
            other => failures.push(format!("{other:?}")),
        }
    }
    failures
}
