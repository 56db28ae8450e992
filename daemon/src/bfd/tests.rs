//! Whole threads, joined by a wire in memory.

use std::{
    num::NonZeroU8,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;

use super::*;
use crate::config::Bfd;

/// Nothing here takes that long; it turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(30);

fn session(n: u8, interval: u64) -> SessionConfig {
    let address = |n: u8| std::net::Ipv4Addr::new(10, 99, 0, n).into();
    let timing = Bfd {
        interval: Duration::from_millis(interval),
        multiplier: NonZeroU8::new(3).unwrap(),
        multihop: false,
    };
    SessionConfig {
        name: "peer".into(),
        route: Route::Tunnel { peer: "peer".into(), remote: address(3 - n) },
        local: Some(address(n)),
        timing,
        neighbors: Vec::new(),
    }
}

/// Two ends; what one carries is delivered to the other while `whole`.
struct Wire {
    ends: [Handle; 2],
    tasks: Vec<JoinHandle<()>>,
    shutdowns: [CancellationToken; 2],
    whole: Arc<AtomicBool>,
    /// States that the hook of the first end saw.
    seen: Arc<Mutex<Vec<State>>>,
}

async fn wire() -> Wire {
    let places: [Arc<Mutex<Option<Handle>>>; 2] = Default::default();
    let (whole, seen) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<State>>>::default());
    let shutdowns = [CancellationToken::new(), CancellationToken::new()];
    let (mut ends, mut tasks) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let (other, intact) = (Arc::clone(&places[1 - n]), Arc::clone(&whole));
        let carry: Carry = Box::new(move |_, packet| {
            let other = other.lock().unwrap();
            intact.load(Ordering::Relaxed) && other.as_ref().is_some_and(|end| end.deliver("peer", packet))
        });
        let states = Arc::clone(&seen);
        let hook: Hook = Box::new(move |event| {
            if n == 0 {
                states.lock().unwrap().push(event.change.to);
            }
        });
        let sessions = vec![session(u8::try_from(n).unwrap() + 1, 50)];
        let (handle, task) = start(sessions, carry, hook, shutdowns[n].clone()).await.unwrap();
        *places[n].lock().unwrap() = Some(handle.clone());
        ends.push(handle);
        tasks.push(task);
    }
    Wire { ends: ends.try_into().ok().unwrap(), tasks, shutdowns, whole, seen }
}

impl Wire {
    async fn until(&self, end: usize, check: impl Fn(&SessionStatus) -> bool) -> SessionStatus {
        let found = timeout(PATIENCE, async {
            loop {
                let status = self.ends[end].sessions().await.remove(0);
                if check(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        found.await.expect("the session changes")
    }

    async fn up(&self) {
        for end in 0..2 {
            self.until(end, |session| session.status.state == State::Up).await;
        }
    }
}

#[tokio::test]
async fn two_ends_come_up_fail_and_come_back() {
    let wire = wire().await;
    wire.up().await;
    wire.whole.store(false, Ordering::Relaxed);
    let down = wire.until(0, |session| session.status.state == State::Down).await;
    assert_eq!((down.failures, down.status.diagnostic), (1, Diagnostic::TIME_EXPIRED));
    assert_eq!(wire.seen.lock().unwrap().last(), Some(&State::Down), "the hook was told");
    wire.whole.store(true, Ordering::Relaxed);
    wire.up().await;
}

#[tokio::test]
async fn a_stop_is_no_failure_and_ends_the_thread() {
    let mut wire = wire().await;
    wire.up().await;
    wire.shutdowns[1].cancel();
    timeout(PATIENCE, wire.tasks.remove(1)).await.expect("ends").unwrap();
    let down = wire.until(0, |session| session.status.state == State::Down).await;
    assert_eq!((down.failures, down.status.diagnostic), (0, Diagnostic::NEIGHBOR_DOWN));
    assert!(wire.ends[1].sessions().await.is_empty());
    assert!(matches!(wire.ends[1].apply(vec![]).await, Err(Error::Stopped)));
}

#[tokio::test]
async fn intervals_change_and_sessions_go_without_touching_others() {
    let wire = wire().await;
    wire.up().await;
    for (end, n) in [(0, 1), (1, 2)] {
        assert_eq!(wire.ends[end].apply(vec![session(n, 80)]).await.unwrap(), ["BFD session peer changed"]);
    }
    let agreed = Duration::from_millis(80);
    let changed = wire.until(0, |session| session.status.transmit_interval == Some(agreed)).await;
    assert_eq!((changed.failures, changed.status.state), (0, State::Up));
    assert_eq!(wire.ends[0].apply(vec![session(1, 80)]).await.unwrap(), Vec::<String>::new());
    assert_eq!(wire.ends[0].apply(vec![]).await.unwrap(), ["BFD session peer removed"]);
    assert!(wire.ends[0].sessions().await.is_empty());
    let down = wire.until(1, |session| session.status.state == State::Down).await;
    assert_eq!(down.failures, 0);
}

#[tokio::test]
async fn packets_of_nobody_are_left_to_the_device() {
    let wire = wire().await;
    let (one, two) = ("10.99.0.1".parse().unwrap(), "10.99.0.2".parse().unwrap());
    let packet = inner::build(two, one, 50_000, &[0; 24]).unwrap();
    assert!(wire.ends[0].deliver("peer", &packet));
    assert!(!wire.ends[0].deliver("another peer", &packet));
    let elsewhere = inner::build(two, "10.99.0.77".parse().unwrap(), 50_000, &[0; 24]).unwrap();
    assert!(!wire.ends[0].deliver("peer", &elsewhere));
    assert!(!wire.ends[0].deliver("peer", b"nonsense"));
}
