//! Packets that wait for a session, bounded in number and in bytes.

use std::collections::VecDeque;

use crate::ecn::Ecn;

/// As many as the kernel's implementation stages.
const PACKETS: usize = 128;
/// A thousand peers that do not answer must not cost more than this each.
const BYTES: usize = 256 * 1024;

/// First in, first out; the oldest is given up for the newest.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Staged>,
    bytes: usize,
}

/// A packet that waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) bytes: Vec<u8>,
    pub(super) ecn: Ecn,
}

impl Waiting {
    /// Adds a packet; returns how many had to go for it.
    pub(super) fn push(&mut self, packet: Staged) -> u64 {
        self.bytes += packet.bytes.len();
        self.queue.push_back(packet);
        let mut dropped = 0;
        while self.queue.len() > PACKETS || self.bytes > BYTES {
            self.bytes -= self.queue.pop_front().map_or(0, |oldest| oldest.bytes.len());
            dropped += 1;
        }
        dropped
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes all packets out, the oldest first, and frees the memory.
    pub(super) fn take(&mut self) -> VecDeque<Staged> {
        self.bytes = 0;
        std::mem::take(&mut self.queue)
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
}
