//! A thousand datagrams a second, and the longest silence among those that arrive.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use isthmus_lab::netns::Netns;

use super::rig::DESTINATION;

const PORT: u16 = 7000;
const INTERVAL: Duration = Duration::from_millis(1);
/// What is under way is there by then.
const SETTLING: Duration = Duration::from_millis(200);

/// What arrived since somebody asked.
struct Heard {
    last: Instant,
    longest: Duration,
    count: u64,
    /// The highest number; they begin with 1.
    highest: u64,
}

/// A flow; it stops with the value.
pub(super) struct Flow {
    heard: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    /// Starts one from `source` to the destination; datagrams that find no route are lost like others.
    ///
    /// # Errors
    /// When no socket can be made.
    pub(super) fn start(source: &Netns, destination: &Netns) -> Result<Self> {
        let at = SocketAddr::from((DESTINATION, PORT));
        let receiver = destination.run(|| UdpSocket::bind(at))??;
        receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
        let sender = source.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        let heard = Arc::new(Mutex::new(Heard {
            last: Instant::now(),
            longest: Duration::ZERO,
            count: 0,
            highest: 0,
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = vec![
            thread::spawn({
                let stop = stop.clone();
                move || send(&sender, at, &stop)
            }),
            thread::spawn({
                let (heard, stop) = (heard.clone(), stop.clone());
                move || hear(&receiver, &heard, &stop)
            }),
        ];
        Ok(Self { heard, stop, threads })
    }

    /// The longest silence while `work` was done and until the flow is heard again, or the end of `limit`.
    ///
    /// # Errors
    /// Those of `work`, and when the flow is not heard again in time.
    pub(super) fn silence(&self, limit: Duration, work: impl FnOnce() -> Result<()>) -> Result<Duration> {
        self.wait_until_heard(limit)?;
        self.with(|heard| heard.longest = Duration::ZERO);
        work()?;
        let began = Instant::now();
        // Until there was a silence that is no hiccup of the machine, and its end.
        while self.with(|heard| heard.longest) < Duration::from_millis(30) {
            ensure!(began.elapsed() < limit, "the flow was not silent, or is for more than {limit:?}");
            thread::sleep(INTERVAL);
        }
        thread::sleep(SETTLING);
        Ok(self.with(|heard| heard.longest))
    }

    /// How many datagrams were lost that were sent while `work` was done.
    ///
    /// # Errors
    /// Those of `work`, and when the flow is not heard before it.
    pub(super) fn lost(&self, limit: Duration, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        self.wait_until_heard(limit)?;
        let before = self.missing();
        work()?;
        self.wait_until_heard(limit)?;
        thread::sleep(SETTLING);
        Ok(self.missing().saturating_sub(before))
    }

    /// Numbers that are below one that was heard, and were not heard themselves.
    fn missing(&self) -> u64 {
        self.with(|heard| heard.highest.saturating_sub(heard.count))
    }

    fn wait_until_heard(&self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        while self.with(|heard| heard.last.elapsed()) > Duration::from_millis(20) {
            ensure!(began.elapsed() < limit, "nothing of the flow arrives");
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// On time in the mean: what a late wake-up missed is sent at once.
fn send(socket: &UdpSocket, to: SocketAddr, stop: &AtomicBool) {
    let began = Instant::now();
    for number in 1_u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep((INTERVAL * number).saturating_sub(began.elapsed()));
        // Without a route it is lost, and counts as that.
        let _ = socket.send_to(&number.to_be_bytes(), to);
    }
}

fn hear(socket: &UdpSocket, heard: &Mutex<Heard>, stop: &AtomicBool) {
    let mut buffer = [0; 4];
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut buffer).is_ok() {
            let now = Instant::now();
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.longest = heard.longest.max(now.saturating_duration_since(heard.last));
            heard.last = now;
            heard.count += 1;
            heard.highest = heard.highest.max(u32::from_be_bytes(buffer).into());
        }
    }
}
