//! Packets that wait for a session, bounded in number and in bytes.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::ecn::Ecn;

/// As many as the kernel's implementation stages.
const PACKETS: usize = 128;
/// What one peer that does not answer may hold.
const BYTES: usize = 256 * 1024;
/// What all peers together may hold; whoever brings more gives up its own oldest.
const ALL_BYTES: usize = 16 * 1024 * 1024;

/// First in, first out; the oldest is given up for the newest.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Staged>,
    bytes: usize,
    /// Bytes that wait at all peers.
    all: Arc<AtomicUsize>,
}

/// A packet that waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) bytes: Vec<u8>,
    pub(super) ecn: Ecn,
}

impl Waiting {
    /// An empty queue that shares a budget with those of other peers.
    pub(super) fn new(all: &Arc<AtomicUsize>) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, all: Arc::clone(all) }
    }

    /// Adds a packet; returns how many had to go for it.
    pub(super) fn push(&mut self, packet: Staged) -> u64 {
        self.grow(packet.bytes.len());
        self.queue.push_back(packet);
        let mut dropped = 0;
        while self.is_too_much()
            && let Some(oldest) = self.queue.pop_front()
        {
            self.shrink(oldest.bytes.len());
            dropped += 1;
        }
        dropped
    }

    fn is_too_much(&self) -> bool {
        self.queue.len() > PACKETS || self.bytes > BYTES || self.all.load(Ordering::Relaxed) > ALL_BYTES
    }

    fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    fn shrink(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes all packets out, the oldest first, and frees the memory.
    pub(super) fn take(&mut self) -> VecDeque<Staged> {
        self.shrink(self.bytes);
        std::mem::take(&mut self.queue)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_go_first_and_memory_is_bounded() {
        let mut waiting = Waiting::default();
        let packet = |bytes| Staged { bytes, ecn: Ecn::NotEct };
        let dropped: u64 = (0..200_u8).map(|n| waiting.push(packet(vec![n; 16]))).sum();
        assert_eq!(dropped, 72);
        let taken = waiting.take();
        assert_eq!((taken.len(), taken.front()), (128, Some(&packet(vec![72; 16]))));
        assert_eq!(waiting.len(), 0);
        let dropped: u64 = (0..10).map(|_| waiting.push(packet(vec![0; 65_000]))).sum();
        assert_eq!(dropped, 6);
        assert!(waiting.bytes <= BYTES);
    }

    #[test]
    fn all_peers_together_are_bounded() {
        let all = Arc::<AtomicUsize>::default();
        let mut peers: Vec<Waiting> = (0..200).map(|_| Waiting::new(&all)).collect();
        let packet = || Staged { bytes: vec![0; 60_000], ecn: Ecn::NotEct };
        let dropped: u64 =
            peers.iter_mut().map(|peer| (0..4).map(|_| peer.push(packet())).sum::<u64>()).sum();
        let held: usize = peers.iter().map(|peer| peer.bytes).sum();
        assert!(held <= ALL_BYTES && held > ALL_BYTES - 60_000, "{held}");
        assert_eq!(
            (held, dropped),
            (all.load(Ordering::Relaxed), 800 - u64::try_from(held / 60_000).unwrap())
        );
        peers[0].take();
        assert_eq!(peers[199].push(packet()), 0);
        drop(peers);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
