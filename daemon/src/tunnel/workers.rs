//! The packet threads: how many, and their start.

use std::{io, sync::Arc};

use isthmus_tunnel::Identity;
use tokio::sync::Notify;

use super::{
    Error,
    control::Thread,
    engine::Engine,
    receive,
    transmit::{self, Duty},
};

/// Pairs at most, if the configuration does not say.
const MOST: usize = 8;

/// Pairs of threads: one for each two CPUs that this process may use, by its affinity and its cgroup's quota. On up to three CPUs it
/// is one pair: threads that compete for a core only wake each other up.
pub(super) fn number(configured: Option<u8>) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    configured.map_or_else(|| (cpus() / 2).clamp(1, MOST), usize::from)
}

/// Starts a pair for each queue of the device; `ended` is told when a thread ends.
pub(super) fn start(
    engine: &Arc<Engine>,
    identity: &Arc<Identity>,
    ended: &Arc<Notify>,
) -> Result<Vec<Thread>, Error> {
    let mut threads = Vec::new();
    for worker in 0..engine.sockets.len() {
        let pair = start_pair(engine, identity, ended, worker);
        match pair {
            Ok(pair) => threads.extend(pair),
            Err(reason) => {
                engine.stop();
                return Err(Error::System { what: "start a packet thread", reason });
            }
        }
    }
    Ok(threads)
}

fn start_pair(
    engine: &Arc<Engine>,
    identity: &Arc<Identity>,
    ended: &Arc<Notify>,
    worker: usize,
) -> io::Result<[Thread; 2]> {
    let duty = Arc::new(Duty::new(&engine.tun.queues()[worker])?);
    let transmit = {
        let (engine, duty) = (Arc::clone(engine), Arc::clone(&duty));
        let body =
            move || transmit::run(&engine, &engine.tun.queues()[worker], &engine.sockets[worker], &duty);
        spawn(format!("isthmus-tx{worker}"), ended, body)?
    };
    let receive = {
        let (engine, identity) = (Arc::clone(engine), Arc::clone(identity));
        let body = move || {
            let (queue, sockets) = (&engine.tun.queues()[worker], &engine.sockets[worker]);
            receive::run(&engine, queue, sockets, identity, &duty)
        };
        spawn(format!("isthmus-rx{worker}"), ended, body)?
    };
    Ok([transmit, receive])
}

/// Tells when the thread ends, also if it panics.
struct Tell(Arc<Notify>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn spawn(
    name: String,
    ended: &Arc<Notify>,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<Thread> {
    let tell = Tell(Arc::clone(ended));
    std::thread::Builder::new().name(name).spawn(move || {
        let _tell = tell;
        body()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_last_word() {
        assert_eq!(number(Some(5)), 5);
        assert!((1..=MOST).contains(&number(None)));
    }
}
