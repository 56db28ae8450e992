//! The log as issuing sees it: a record is written when the call returns.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
    time::{Instant, SystemTime},
};

use isthmus_pki::audit::{Entry, Head, Kind};
use time::OffsetDateTime;

#[cfg(test)]
use super::disk::Disk;
use super::{
    Error, head, keeper,
    open::{self, Lock},
    refusals::Cap,
    writer::{Writer, note},
};
use crate::identity::config::{AuditConfig, Sync};

/// Signs a head as the site CA: a compact JWS; `None` if it can't now.
pub type HeadSigner = Arc<dyn Fn(&Head) -> Option<String> + Send + std::marker::Sync>;

/// The one writer of a log. It is closed when this is dropped: the rest is on the disk then.
pub struct Log {
    shared: Arc<Shared>,
    // Dropped before the keeper is waited for: that is how it learns of the end.
    wake: Option<SyncSender<()>>,
    keeper: Option<JoinHandle<()>>,
}

/// What the keeper shares with those who record.
pub(super) struct Shared {
    path: PathBuf,
    /// `sync = "always"`
    always: AtomicBool,
    writer: Mutex<Writer>,
    /// Held while the disk is asked, so that all who wait meanwhile need one more question only: up to which record it has them.
    synced: Mutex<u64>,
    refusals: Mutex<Cap>,
    signer: Mutex<Option<HeadSigner>>,
    /// How many records the head file covers.
    head: Mutex<u64>,
    /// The keeper knows that there is something to do.
    pub(super) dirty: AtomicBool,
    _lock: Lock,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing behind these panics half-way through a change that matters: the writer's state follows the file.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Takes up the log, or begins one.
    pub fn open(config: &AuditConfig, now: SystemTime) -> Result<Arc<Self>, Error> {
        let (writer, lock) = open::open(&config.file, config.rotate, now.into())?;
        let synced = Mutex::new(writer.chain.size());
        let shared = Arc::new(Shared {
            path: config.file.clone(),
            always: AtomicBool::new(config.sync == Sync::Always),
            writer: Mutex::new(writer),
            synced,
            refusals: Mutex::default(),
            signer: Mutex::default(),
            head: Mutex::default(),
            dirty: AtomicBool::new(false),
            _lock: lock,
        });
        let (wake, woken) = mpsc::sync_channel(1);
        Self::start(shared, wake, woken, &config.file)
    }

    fn start(
        shared: Arc<Shared>,
        wake: SyncSender<()>,
        woken: Receiver<()>,
        path: &Path,
    ) -> Result<Arc<Self>, Error> {
        let kept = shared.clone();
        let keeper =
            std::thread::Builder::new().name("audit".into()).spawn(move || keeper::run(&kept, &woken));
        let keeper = keeper.map_err(|reason| Error::Open { path: path.to_owned(), reason })?;
        metrics::gauge!("isthmus_audit_writable").set(1);
        Ok(Arc::new(Self { shared, wake: Some(wake), keeper: Some(keeper) }))
    }

    /// The file that it writes.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Takes over changed settings; those of another file need another log.
    pub fn adjust(&self, config: &AuditConfig) {
        self.shared.always.store(config.sync == Sync::Always, Ordering::Relaxed);
        held(&self.shared.writer).rotate = config.rotate;
    }

    /// Sets who signs heads from now on.
    pub fn set_signer(&self, signer: HeadSigner) {
        *held(&self.shared.signer) = Some(signer);
        self.notify();
    }

    /// Writes a record; with `sync = "always"` it is on the disk as well when this returns. On an error it must be as if what it
    /// is about had not happened.
    pub fn record(&self, entry: &Entry<'_>) -> Result<(), Error> {
        let result = self.shared.record(entry);
        self.notify();
        result
    }

    /// Writes a refusal, or counts it if there are too many. A log that can't be written keeps nobody from being refused.
    pub fn refuse(&self, entry: &Entry<'_>) {
        if held(&self.shared.refusals).pass(Instant::now()) {
            // The writer has told of it, and counts it.
            let _ = self.shared.record(entry);
        }
        self.notify();
    }

    /// Why nothing is issued now; `None` if all is well.
    pub fn trouble(&self) -> Option<String> {
        let writer = held(&self.shared.writer);
        writer.trouble.as_ref().map(|trouble| {
            format!("{} can't be written: {}; nothing is issued", writer.path.display(), trouble.reason)
        })
    }

    fn notify(&self) {
        if !self.shared.dirty.swap(true, Ordering::AcqRel)
            && let Some(wake) = &self.wake
        {
            // Full: it is awake already.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Shared {
    fn record(&self, entry: &Entry<'_>) -> Result<(), Error> {
        let seq = held(&self.writer).append(entry)?;
        metrics::counter!("isthmus_audit_records_total").increment(1);
        if self.always.load(Ordering::Relaxed) { waiting(|| self.sync(seq)) } else { Ok(()) }
    }

    /// Returns once record `seq` is on the disk. Who comes while the disk works shares the next turn with all others who came.
    fn sync(&self, seq: u64) -> Result<(), Error> {
        let mut synced = held(&self.synced);
        if *synced >= seq {
            return Ok(());
        }
        let (disk, length, size) = {
            let writer = held(&self.writer);
            (writer.disk.clone(), writer.length, writer.chain.size())
        };
        match disk.sync() {
            Ok(()) => {
                let mut writer = held(&self.writer);
                // A new file began meanwhile: the old one was synced by that.
                if Arc::ptr_eq(&writer.disk, &disk) {
                    writer.synced(length);
                }
                *synced = size;
                Ok(())
            }
            Err(reason) => {
                let mut writer = held(&self.writer);
                writer.fail(SystemTime::now().into(), &reason);
                Err(Error::Write { path: writer.path.clone(), reason: reason.to_string() })
            }
        }
    }

    /// What the keeper does a second after a record: all that need not be done before a result leaves. True: it must be tried again.
    pub(super) fn upkeep(&self) -> bool {
        let now = OffsetDateTime::from(SystemTime::now());
        let healed = {
            let mut writer = held(&self.writer);
            let result = writer.heal(now);
            result.map_err(|reason| writer.fail(now, &reason)).is_ok()
        };
        if healed {
            self.tell_suppressed(now);
        }
        let size = held(&self.writer).chain.size();
        let well = healed && self.sync(size).is_ok() && held(&self.writer).trouble.is_none();
        metrics::gauge!("isthmus_audit_writable").set(if well { 1 } else { 0 });
        if well {
            self.write_head(now);
        }
        !well
    }

    fn tell_suppressed(&self, now: OffsetDateTime) {
        let count = held(&self.refusals).take_suppressed();
        if count == 0 {
            return;
        }
        let reason = format!("{count} more refusals");
        if held(&self.writer).append(&note(now, Kind::Suppressed, &reason)).is_err() {
            held(&self.refusals).put_back(count);
        }
    }

    fn write_head(&self, now: OffsetDateTime) {
        let Some(signer) = held(&self.signer).clone() else { return };
        let (made, path) = {
            let writer = held(&self.writer);
            (Head::of(writer.chain.tree(), now), writer.path.clone())
        };
        let mut covered = held(&self.head);
        if *covered == made.size {
            return;
        }
        let Some(signed) = signer(&made) else { return };
        match head::write(&path, &signed) {
            Ok(()) => *covered = made.size,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "the signed head of the audit log can't be written")
            }
        }
    }
}

/// Lets the runtime move its other tasks to another thread while this one waits for the disk.
fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(wait)
        }
        _ => wait(),
    }
}

#[cfg(test)]
impl Log {
    /// Puts another disk under an open log.
    pub(in crate::identity) fn exchange_disk(&self, exchange: impl FnOnce(Arc<dyn Disk>) -> Arc<dyn Disk>) {
        let mut writer = held(&self.shared.writer);
        writer.disk = exchange(writer.disk.clone());
    }

    /// Does now what the keeper does within a second.
    pub(in crate::identity) fn keep(&self) {
        self.shared.upkeep();
    }
}
