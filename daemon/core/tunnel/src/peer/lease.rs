//! The right to send some messages: taken under the peer's lock, used without it.

use std::{collections::VecDeque, sync::Arc};

use isthmus_aead::LANES;

use super::waiting::Staged;
use crate::{
    OVERHEAD,
    buffer::{Outbox, OuterPath},
    counters::{Counters, Drop, Tally},
    ecn::Ecn,
    noise::message::HEADER,
    session::Session,
};

/// Counters of a session, reserved in a row. They lie in sending order, so whoever takes its lease first should send first.
pub(super) struct Lease {
    session: Arc<Session>,
    next: u64,
    end: u64,
    /// Those below are used up; those from here to `next` belong to the drafts in the outbox.
    sealed: u64,
    path: OuterPath,
    /// Packets that waited for the session; they go first.
    staged: VecDeque<Staged>,
    /// What went, what will go with the drafts, and how many packets were given up.
    tally: Tally,
    drafted: Tally,
    lost: u64,
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
        let (tally, drafted) = Default::default();
        Some(Self { session, next, end: next + count, sealed: next, path, staged, tally, drafted, lost: 0 })
    }

    /// Takes the packets that waited, padded for an inner MTU of `mtu` bytes.
    pub(super) fn draft_staged(&mut self, mtu: usize, out: &mut Outbox) {
        while let Some(Staged { bytes, ecn }) = self.staged.pop_front() {
            self.draft(bytes.len(), mtu, ecn, out, |into| into.copy_from_slice(&bytes));
        }
    }

    /// Takes a packet of `length` bytes that `write` writes, a packet of no bytes as a keepalive; some are sealed at a time, and the last
    /// with [`Lease::finish`]. False: the lease is used up.
    pub(super) fn draft(
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
        if self.next == self.sealed {
            // Somebody's panic may have left some behind.
            out.forget_drafts();
        }
        out.draft(padded(length, mtu) + OVERHEAD, self.path, ecn, |slot| {
            let tag = slot.len() - (OVERHEAD - HEADER);
            let (packet, padding) = slot[HEADER..tag].split_at_mut(length);
            write(packet);
            padding.fill(0);
        });
        self.next += 1;
        if length > 0 {
            self.drafted.add(length);
        }
        if out.drafts() >= LANES {
            self.seal_drafts(out);
        }
        true
    }

    /// Seals what was taken last, and counts all that went.
    pub(super) fn finish(mut self, counters: &Counters, out: &mut Outbox) {
        self.seal_drafts(out);
        self.tally.flush(&counters.sent_packets, &counters.sent_bytes);
        counters.drops.add(Drop::NoSession, self.lost);
    }

    /// Seals what was taken last and counts nothing: for messages that are no packets.
    pub(super) fn finish_uncounted(mut self, out: &mut Outbox) {
        self.seal_drafts(out);
    }

    fn seal_drafts(&mut self, out: &mut Outbox) {
        let first = std::mem::replace(&mut self.sealed, self.next);
        let drafted = std::mem::take(&mut self.drafted);
        if out.finish(|slots| self.session.seal(first..self.next, slots)) {
            self.tally.merge(drafted);
        } else {
            self.lost += self.next - first;
        }
    }
}

impl std::ops::Drop for Lease {
    fn drop(&mut self) {
        debug_assert!(
            self.sealed == self.next || std::thread::panicking(),
            "drafts that nobody sealed are lost"
        );
    }
}

/// Length with zeros up to a multiple of 16 bytes, but not beyond the MTU (WireGuard paper, section 5.4.6), so that it tells less about
/// the packet.
fn padded(length: usize, mtu: usize) -> usize {
    length.next_multiple_of(16).min(mtu).max(length)
}
