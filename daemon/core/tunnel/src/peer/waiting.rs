//! Packets that wait for a session, bounded in number and in bytes.

use std::collections::VecDeque;

/// As many as the kernel's implementation stages.
const PACKETS: usize = 128;
/// A thousand peers that do not answer must not cost more than this each.
const BYTES: usize = 256 * 1024;

/// First in, first out; the oldest is given up for the newest.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Padded packets with their length before padding.
    queue: VecDeque<(Vec<u8>, usize)>,
    bytes: usize,
}

impl Waiting {
    /// Adds a packet; returns how many had to go for it.
    pub(super) fn push(&mut self, padded: &[u8], length: usize) -> u64 {
        self.bytes += padded.len();
        self.queue.push_back((padded.to_vec(), length));
        let mut dropped = 0;
        while self.queue.len() > PACKETS || self.bytes > BYTES {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    pub(super) fn pop(&mut self) -> Option<(Vec<u8>, usize)> {
        let next = self.queue.pop_front()?;
        self.bytes -= next.0.len();
        Some(next)
    }

    /// Gives up all packets; returns how many.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.queue.len();
        (self.queue, self.bytes) = (VecDeque::new(), 0);
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_go_first_and_memory_is_bounded() {
        let mut waiting = Waiting::default();
        let dropped: u64 = (0..200_u8).map(|n| waiting.push(&[n; 16], 10)).sum();
        assert_eq!(dropped, 72);
        assert_eq!(waiting.pop(), Some((vec![72; 16], 10)));
        assert_eq!(waiting.clear(), 127);
        let dropped: u64 = (0..10).map(|_| waiting.push(&[0; 65_000], 65_000)).sum();
        assert_eq!(dropped, 6);
        assert!(waiting.bytes <= BYTES);
    }
}
