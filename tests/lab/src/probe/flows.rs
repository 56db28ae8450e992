//! Many UDP flows to echo servers, each with a fixed source port, and what each of them lost.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};

use super::any;
use crate::netns::Netns;

/// Sends every datagram back; stops when dropped.
#[derive(Debug)]
pub struct UdpEcho {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl UdpEcho {
    /// Serves `address` in `netns`.
    ///
    /// # Errors
    /// When the address is not there or the port is taken.
    pub fn start(netns: &Netns, address: SocketAddr) -> Result<Self> {
        let bound = netns.run(|| UdpSocket::bind(address))?;
        let socket = bound.with_context(|| format!("echo server on {address} in {}", netns.name()))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let address = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = stop.clone();
            move || echo(&socket, &stop)
        });
        Ok(Self { stop, thread: Some(thread), address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // A lost answer is for the prober to see.
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// One flow to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address; the unspecified one leaves the choice to the kernel.
    pub from: IpAddr,
    /// Source port, fixed so that the flow hashes the same throughout.
    pub port: u16,
    /// The echo server.
    pub to: SocketAddr,
}

impl Flow {
    /// `count` flows to `to` from consecutive ports, source address chosen by the kernel.
    pub fn several(to: SocketAddr, first_port: u16, count: u16) -> Vec<Self> {
        (0..count).map(|n| Self { from: any(to.ip()), port: first_port.saturating_add(n), to }).collect()
    }
}

/// What happened to one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Which one.
    pub flow: Flow,
    /// Probes sent, or refused by the kernel for want of a route.
    pub sent: u64,
    /// Distinct probes that came back.
    pub received: u64,
    /// Longest time without an answer, the time before the first and after the last included.
    pub longest_gap: Duration,
}

/// Probes flows until it is told to stop.
#[derive(Debug)]
pub struct Prober {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<FlowReport>>>,
    flows: Arc<Vec<FlowWatch>>,
}

/// What can be seen of a flow while it is being probed.
#[derive(Debug, Default)]
struct FlowWatch {
    received: std::sync::atomic::AtomicU64,
}

struct State {
    report: FlowReport,
    socket: UdpSocket,
    last: Instant,
    /// Highest probe number that came back, so that a duplicate counts once.
    highest: Option<u64>,
}

impl Prober {
    /// Starts a probe of each flow every `interval`, from `netns`.
    ///
    /// # Errors
    /// When a source port is taken.
    pub fn start(netns: &Netns, flows: &[Flow], interval: Duration) -> Result<Self> {
        let states: Result<Vec<State>> = netns.run(|| flows.iter().map(State::open).collect())?;
        let mut states = states?;
        let stop = Arc::new(AtomicBool::new(false));
        let watch: Arc<Vec<FlowWatch>> = Arc::new(flows.iter().map(|_| FlowWatch::default()).collect());
        let thread = thread::spawn({
            let (stop, watch) = (stop.clone(), watch.clone());
            move || probe(&mut states, &watch, interval, &stop)
        });
        Ok(Self { stop, thread: Some(thread), flows: watch })
    }

    /// Answers so far, by flow in the order given: two looks tell which flows are alive in between.
    pub fn received(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.received.load(Ordering::Relaxed)).collect()
    }

    /// Ends the probing.
    ///
    /// # Errors
    /// When the prober itself failed.
    pub fn stop(mut self) -> Result<Vec<FlowReport>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("stopped twice")?;
        thread.join().map_err(|_| anyhow!("the prober panicked"))
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn probe(
    states: &mut [State],
    watch: &[FlowWatch],
    interval: Duration,
    stop: &AtomicBool,
) -> Vec<FlowReport> {
    let mut due = Instant::now();
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for state in &mut *states {
            state.send(number);
        }
        due += interval;
        receive_until(states, watch, due);
    }
    states.iter_mut().map(State::finish).collect()
}

fn receive_until(states: &mut [State], watch: &[FlowWatch], due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let ready = readable(states, left);
        for (index, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            states[index].receive();
            watch[index].received.store(states[index].report.received, Ordering::Relaxed);
        }
        if left.is_zero() {
            return;
        }
    }
}

fn readable(states: &[State], wait: Duration) -> Vec<bool> {
    let fds: Vec<BorrowedFd<'_>> = states.iter().map(|state| state.socket.as_fd()).collect();
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    // Rounded up, or the last millisecond would be spent spinning.
    let wait = wait.as_micros().div_ceil(1000);
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::from(100u8));
    let _ = poll(&mut polled, timeout);
    polled.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect()
}

/// A socket for one family only, so that a v4 and a v6 flow can have the same source port.
fn source(from: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(from), Type::DGRAM, None)?;
    if from.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&from.into())?;
    Ok(socket.into())
}

impl State {
    fn open(flow: &Flow) -> Result<Self> {
        let from = SocketAddr::new(flow.from, flow.port);
        let socket = source(from).with_context(|| format!("source {from}"))?;
        let report = FlowReport { flow: *flow, sent: 0, received: 0, longest_gap: Duration::ZERO };
        Ok(Self { report, socket, last: Instant::now(), highest: None })
    }

    fn send(&mut self, number: u64) {
        self.report.sent += 1;
        // Unconnected: no route now is a lost probe, not the end of the flow.
        let _ = self.socket.send_to(&number.to_be_bytes(), self.report.flow.to);
    }

    fn receive(&mut self) {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
            let number = buffer[..length].try_into().map(u64::from_be_bytes);
            if let Ok(number) = number
                && from == self.report.flow.to
                && self.highest.is_none_or(|highest| number > highest)
            {
                self.highest = Some(number);
                self.report.received += 1;
                self.mark();
            }
        }
    }

    fn mark(&mut self) {
        let now = Instant::now();
        self.report.longest_gap = self.report.longest_gap.max(now - self.last);
        self.last = now;
    }

    fn finish(&mut self) -> FlowReport {
        self.mark();
        self.report
    }
}
