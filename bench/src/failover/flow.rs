//! Flows at a steady rate, one at a time, and where and when each packet of theirs arrives.

use std::{
    io::IoSliceMut,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use isthmus_lab::{netns::Netns, wait};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns};

use crate::tunnel::LIMIT;

/// Nanoseconds between two packets: 50,000 a second.
const INTERVAL: u64 = 20_000;
/// Octets of a packet: when it was sent, its flow, and nothing.
const LENGTH: usize = 64;
/// Ports to try for a flow of each far end; that all of them lead to one end is as likely as as many equal throws of a coin.
const PORTS: std::ops::Range<u16> = 40_000..40_064;

/// The clock of the kernel's own time stamps, in nanoseconds.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Of which flow.
    pub(super) flow: usize,
    /// When its sender was about to send it.
    pub(super) sent: u64,
    /// When it came out of the tunnel.
    pub(super) at: u64,
}

/// What listens at a far end; stops when dropped.
pub(super) struct Receiver {
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    _thread: Thread,
}

/// A thread that ends when this is dropped.
struct Thread {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    fn spawn(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&stop);
        Self { stop, handle: Some(thread::spawn(move || work(&seen))) }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

impl Receiver {
    /// Listens at `address` in `netns`.
    ///
    /// # Errors
    /// When the address is not there.
    pub(super) fn start(netns: &Netns, address: SocketAddr) -> Result<Self> {
        let bound = netns.run(|| UdpSocket::bind(address))?;
        let socket = bound.with_context(|| format!("listening on {address} in {}", netns.name()))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        setsockopt(&socket, ReceiveTimestampns, &true).context("asking for time stamps")?;
        let arrivals = Arc::<Mutex<Vec<Arrival>>>::default();
        let thread = Thread::spawn({
            let arrivals = Arc::clone(&arrivals);
            move |stop| receive(&socket, &arrivals, stop)
        });
        Ok(Self { arrivals, _thread: thread })
    }

    /// Everything since the last call.
    pub(super) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *lock(&self.arrivals))
    }

    /// The first since the last [`Receiver::take`] of which `is_it` is true.
    pub(super) fn find(&self, is_it: impl Fn(&Arrival) -> bool) -> Option<Arrival> {
        lock(&self.arrivals).iter().find(|arrival| is_it(arrival)).copied()
    }
}

fn lock(arrivals: &Mutex<Vec<Arrival>>) -> MutexGuard<'_, Vec<Arrival>> {
    // Nothing panics while it is held.
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive(socket: &UdpSocket, arrivals: &Mutex<Vec<Arrival>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if let Some(arrival) = receive_one(socket) {
            lock(arrivals).push(arrival);
        }
    }
}

/// The kernel's stamp says when it came, not when this thread had time for it.
fn receive_one(socket: &UdpSocket) -> Option<Arrival> {
    let mut buffer = [0; LENGTH];
    let mut pieces = [IoSliceMut::new(&mut buffer)];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::empty()).ok()?;
    let stamp = message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    })?;
    let sent = u64::from_be_bytes(*buffer.first_chunk()?);
    Some(Arrival { flow: buffer[8].into(), sent, at: u64::try_from(stamp.as_nanos()).ok()? })
}

/// Two flows, of which one is sent at a time: number n is one that goes to far end n while both are up.
pub(super) struct Flows {
    selected: Arc<AtomicUsize>,
    _thread: Thread,
}

impl Flows {
    /// Finds a flow for each of the far ends and sends the first. Called in the namespace where they are to start.
    ///
    /// # Errors
    /// When nothing arrives, or everything at one end.
    pub(super) fn start(from: IpAddr, to: SocketAddr, receivers: &[Receiver; 2]) -> Result<Self> {
        let sockets = find(from, to, receivers)?;
        let selected = Arc::<AtomicUsize>::default();
        let thread = Thread::spawn({
            let selected = Arc::clone(&selected);
            move |stop| send(&sockets, &selected, stop)
        });
        Ok(Self { selected, _thread: thread })
    }

    /// Sends this flow from now on.
    pub(super) fn select(&self, flow: usize) {
        self.selected.store(flow, Ordering::Relaxed);
    }
}

/// Tries ports until each of the far ends was hit.
fn find(from: IpAddr, to: SocketAddr, receivers: &[Receiver; 2]) -> Result<[UdpSocket; 2]> {
    let mut found = [None, None];
    for port in PORTS {
        let socket = UdpSocket::bind(SocketAddr::new(from, port))?;
        socket.connect(to).context("no route to the prefixes")?;
        let end = wait::until("a packet at one of the far ends", LIMIT, || end_of(&socket, receivers))?;
        found[end].get_or_insert(socket);
        if let [Some(_), Some(_)] = found {
            break;
        }
    }
    match found {
        [Some(a), Some(b)] => Ok([a, b]),
        _ => bail!("all of {} flows go to one of the far ends", PORTS.len()),
    }
}

/// Where a packet of this socket arrives.
fn end_of(socket: &UdpSocket, receivers: &[Receiver; 2]) -> Result<usize> {
    let sent = now();
    socket.send(&packet(sent, 0)).context("sending into the tunnel")?;
    let arrived =
        || receivers.iter().position(|receiver| receiver.find(|arrival| arrival.sent == sent).is_some());
    let second = Duration::from_secs(1);
    wait::until("its arrival", second, || arrived().context("it has not arrived"))
}

fn packet(sent: u64, flow: usize) -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    packet[..8].copy_from_slice(&sent.to_be_bytes());
    packet[8] = u8::from(flow == 1);
    packet
}

/// Spins between packets, as no sleep is as short; but whoever else is ready to run goes first: cores may be few.
fn send(sockets: &[UdpSocket; 2], selected: &AtomicUsize, stop: &AtomicBool) {
    let mut due = now();
    while !stop.load(Ordering::Relaxed) {
        let time = now();
        if time < due {
            thread::yield_now();
            continue;
        }
        // What the sender was kept from is not made up for: a burst would be another load.
        due = time.max(due + INTERVAL);
        let flow = selected.load(Ordering::Relaxed);
        // A lost packet is one that does not arrive.
        let _ = sockets[flow.min(1)].send(&packet(time, flow));
    }
}
