//! The log's end: which bytes are good, and what the next record says. Knows nothing of threads.

use std::{io, path::PathBuf, sync::Arc};

use isthmus_pki::audit::{Chain, Entry, Kind};
use time::OffsetDateTime;

use super::{Error, disk::Disk, rotation};

/// Most bytes that are written again after a failed sync.
const MAX_REWRITE: u64 = 64 << 20;

/// Owns the file. Its bytes up to `length` are whole records; what a failed write left behind them is never built upon.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) length: u64,
    /// Up to here the disk said it has them.
    pub(super) synced: u64,
    pub(super) chain: Chain,
    /// Sequence number of the file's first record.
    pub(super) first: u64,
    /// Length at which a new file is begun.
    pub(super) rotate: u64,
    pub(super) trouble: Option<Trouble>,
    pub(super) buffer: Vec<u8>,
}

/// Since when and why nothing can be written.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) since: OffsetDateTime,
    pub(super) reason: String,
    /// How many records were not written, and what they were for not issued.
    pub(super) lost: u64,
}

impl Writer {
    /// The record is in the file when this returns `Ok`; its sequence number.
    pub(super) fn append(&mut self, entry: &Entry<'_>) -> Result<u64, Error> {
        if self.trouble.is_some() {
            self.heal(entry.time).map_err(|reason| self.lose(entry.time, &reason))?;
        }
        if self.length >= self.rotate {
            rotation::rotate(self, entry.time);
        }
        self.write(entry).map_err(|reason| self.lose(entry.time, &reason))
    }

    fn write(&mut self, entry: &Entry<'_>) -> io::Result<u64> {
        let mut next = self.chain.clone();
        self.buffer.clear();
        next.append(entry, &mut self.buffer);
        self.put(next)?;
        Ok(self.chain.size())
    }

    /// Writes the buffer; `next` is the chain behind it.
    pub(super) fn put(&mut self, next: Chain) -> io::Result<()> {
        self.disk.write_at(&self.buffer, self.length)?;
        self.length += self.buffer.len() as u64;
        self.chain = next;
        Ok(())
    }

    /// Takes away what a failed write left, and says in the log that and for how long nothing was written.
    pub(super) fn heal(&mut self, now: OffsetDateTime) -> io::Result<()> {
        let Some(trouble) = self.trouble.clone() else { return Ok(()) };
        self.disk.truncate(self.length)?;
        self.write_again()?;
        let since = isthmus_pki::facts::utc(trouble.since.unix_timestamp());
        let reason =
            format!("not writable since {since}: {}; {} requests failed", trouble.reason, trouble.lost);
        self.write(&note(now, Kind::Resumed, &reason))?;
        self.disk.sync()?;
        self.synced = self.length;
        self.trouble = None;
        tracing::info!(file = %self.path.display(), since, lost = trouble.lost, "the audit log is written again; issuing goes on");
        Ok(())
    }

    /// After a failed sync the kernel takes the pages for clean though the disk lacks them: they are written once more.
    fn write_again(&mut self) -> io::Result<()> {
        let length = self.length.saturating_sub(self.synced).min(MAX_REWRITE);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.disk.read_at(&mut bytes, self.length - length)?;
        self.disk.write_at(&bytes, self.length - length)
    }

    fn lose(&mut self, now: OffsetDateTime, reason: &io::Error) -> Error {
        self.fail(now, reason);
        if let Some(trouble) = &mut self.trouble {
            trouble.lost += 1;
        }
        Error::Write { path: self.path.clone(), reason: reason.to_string() }
    }

    /// From now on nothing is written until [`Writer::heal`] succeeds. Told once.
    pub(super) fn fail(&mut self, now: OffsetDateTime, reason: &io::Error) {
        // At once if it can be: a crash would leave part of a record otherwise.
        let _ = self.disk.truncate(self.length);
        metrics::counter!("isthmus_audit_write_errors_total").increment(1);
        if self.trouble.is_none() {
            tracing::warn!(file = %self.path.display(), %reason, "the audit log can't be written: nothing is issued until it can; make room, or move it with [audit] file");
            self.trouble = Some(Trouble { since: now, reason: reason.to_string(), lost: 0 });
        }
    }

    /// Asks the disk to have everything.
    pub(super) fn synced(&mut self, length: u64) {
        self.synced = self.synced.max(length);
    }
}

/// A record about the log itself.
pub(super) fn note(time: OffsetDateTime, kind: Kind, reason: &str) -> Entry<'_> {
    Entry { time, kind, id: "", serial: "", not_after: None, requester: "isthmusd", reason }
}
