//! Reused memory for batches: one allocation that grows to the largest batch seen, then none.

use std::{net::SocketAddr, ops::Range};

/// Datagrams on their way out, packed one behind the other in sending order.
#[derive(Debug, Default)]
pub struct Outbox {
    arena: Arena,
    destinations: Vec<SocketAddr>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `write` put a datagram of up to `capacity` bytes; it returns the length used, or `None` for no datagram.
    pub(crate) fn write(
        &mut self,
        capacity: usize,
        to: SocketAddr,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) {
        if self.arena.write(capacity, write) {
            self.destinations.push(to);
        }
    }

    /// Appends a datagram.
    pub fn push(&mut self, datagram: &[u8], to: SocketAddr) {
        self.write(datagram.len(), to, |slot| {
            slot.copy_from_slice(datagram);
            Some(datagram.len())
        });
    }

    /// Datagrams and where they go, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], SocketAddr)> {
        self.arena.iter().zip(self.destinations.iter().copied())
    }

    /// Number of datagrams.
    pub fn len(&self) -> usize {
        self.destinations.len()
    }

    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.destinations.is_empty()
    }

    /// Forgets the datagrams, keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.destinations.clear();
    }
}

/// Inner packets as they came out of the tunnel, in order of arrival.
#[derive(Debug, Default)]
pub struct Inbox {
    arena: Arena,
}

impl Inbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `write` put a packet of up to `capacity` bytes; it returns the length used, or `None` for no packet.
    pub(crate) fn write(&mut self, capacity: usize, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
        self.arena.write(capacity, write);
    }

    /// The packets.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.arena.iter()
    }

    /// Forgets the packets, keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
    }
}

#[derive(Debug, Default)]
struct Arena {
    bytes: Vec<u8>,
    used: usize,
    items: Vec<Range<usize>>,
}

impl Arena {
    fn write(&mut self, capacity: usize, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let end = self.used + capacity;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let Some(length) = write(&mut self.bytes[self.used..end]) else { return false };
        self.items.push(self.used..self.used + length.min(capacity));
        self.used += length.min(capacity);
        true
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.items.iter().map(|range| &self.bytes[range.clone()])
    }

    fn clear(&mut self) {
        self.used = 0;
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_lie_back_to_back_and_memory_is_reused() {
        let to = "192.0.2.1:1".parse().unwrap();
        let mut outbox = Outbox::new();
        for round in 0..3 {
            outbox.write(100, to, |slot| {
                slot[..3].copy_from_slice(b"one");
                Some(3)
            });
            outbox.write(100, to, |_| None);
            outbox.write(100, to, |slot| {
                slot[0] = round;
                Some(1)
            });
            let sent: Vec<Vec<u8>> = outbox.iter().map(|(bytes, _)| bytes.to_vec()).collect();
            assert_eq!(sent, [b"one".to_vec(), vec![round]]);
            assert_eq!(outbox.arena.bytes.len(), 103);
            outbox.clear();
            assert!(outbox.is_empty());
        }
    }
}
