//! The right to send some messages: taken under the peer's lock, used without it.

use std::{collections::VecDeque, sync::Arc};

use super::waiting::Staged;
use crate::{
    OVERHEAD,
    buffer::{Outbox, OuterPath},
    counters::Tally,
    ecn::Ecn,
    noise::message::HEADER,
    session::Session,
};

/// Counters of a session, reserved in a row. They lie in sending order, so whoever takes its lease first should send first.
pub(super) struct Lease {
    session: Arc<Session>,
    next: u64,
    end: u64,
    path: OuterPath,
    /// Packets that waited for the session; they go first.
    staged: VecDeque<Staged>,
    /// What went.
    pub(super) tally: Tally,
}

impl Lease {
    /// Reserves `count` messages and those for the staged packets; gives the packets back if the session has no more.
    pub(super) fn take(
        session: &Arc<Session>,
        path: OuterPath,
        count: u64,
        staged: &mut super::waiting::Waiting,
    ) -> Option<Self> {
        let count = count.checked_add(u64::try_from(staged.len()).ok()?)?;
        let next = session.reserve(count)?;
        let (session, staged) = (Arc::clone(session), staged.take());
        Some(Self { session, next, end: next + count, path, staged, tally: Tally::default() })
    }

    /// Sends the packets that waited, padded for an inner MTU of `mtu` bytes.
    pub(super) fn seal_staged(&mut self, mtu: usize, out: &mut Outbox) {
        while let Some(Staged { bytes, ecn }) = self.staged.pop_front() {
            self.seal(bytes.len(), mtu, ecn, out, |into| into.copy_from_slice(&bytes));
        }
    }

    /// Sends a packet of `length` bytes that `write` writes, a packet of no bytes as a keepalive. False: the lease is used up.
    pub(super) fn seal(
        &mut self,
        length: usize,
        mtu: usize,
        ecn: Ecn,
        out: &mut Outbox,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        if self.next >= self.end {
            return false;
        }
        let counter = self.next;
        self.next += 1;
        let sealed = out.write(padded(length, mtu) + OVERHEAD, self.path, ecn, |slot| {
            let tag = slot.len() - (OVERHEAD - HEADER);
            let (packet, padding) = slot[HEADER..tag].split_at_mut(length);
            write(packet);
            padding.fill(0);
            self.session.seal(counter, slot).then_some(slot.len())
        });
        if sealed && length > 0 {
            self.tally.add(length);
        }
        sealed
    }
}

/// Length with zeros up to a multiple of 16 bytes, but not beyond the MTU (WireGuard paper, section 5.4.6), so that it tells less about
/// the packet.
fn padded(length: usize, mtu: usize) -> usize {
    length.next_multiple_of(16).min(mtu).max(length)
}
