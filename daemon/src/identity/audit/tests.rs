//! The log on real files, on a disk that fails when it is told to, and on one that is full.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use isthmus_pki::audit::{Entry, Head, Kind, Record, Verifier};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use super::{Error, Log, disk::Disk, rotation::all_kept};
use crate::identity::config::{AuditConfig, Sync};

/// A disk with so much room, whose sync can fail.
pub(in crate::identity) struct Faulty {
    disk: Arc<dyn Disk>,
    room: AtomicU64,
    sync_fails: AtomicBool,
}

impl Faulty {
    /// Puts one under a log; it works as long as nobody says otherwise.
    pub(in crate::identity) fn under(log: &Log) -> Arc<Self> {
        let mut faulty = None;
        log.exchange_disk(|disk| {
            let new =
                Arc::new(Self { disk, room: AtomicU64::new(u64::MAX), sync_fails: AtomicBool::new(false) });
            faulty = Some(new.clone());
            new
        });
        faulty.unwrap()
    }

    /// So many bytes more, then "No space left on device".
    pub(in crate::identity) fn leave(&self, room: u64) {
        self.room.store(room, Ordering::SeqCst);
    }
}

impl Disk for Faulty {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let room = self.room.load(Ordering::SeqCst);
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.disk.write_at(&bytes[..fits], at)?;
        if room != u64::MAX {
            self.leave(room - fits as u64);
        }
        if fits < bytes.len() { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.disk.read_at(bytes, at)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.disk.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        if self.sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.disk.sync()
    }
}

fn config(dir: &Path) -> AuditConfig {
    AuditConfig::new(dir)
}

fn open(config: &AuditConfig) -> Result<Arc<Log>, Error> {
    Log::open(config, SystemTime::now())
}

fn entry(serial: &str) -> Entry<'_> {
    Entry {
        time: SystemTime::now().into(),
        kind: Kind::X509,
        id: "spiffe://td/w",
        serial,
        not_after: Some(1),
        requester: "workload uid=1 pid=2",
        reason: "",
    }
}

/// Every record of a log, all files in their order; panics where it does not verify.
pub(in crate::identity) fn records(path: &Path) -> Vec<Record> {
    let mut verifier = Verifier::default();
    let mut records = Vec::new();
    for file in all_kept(path).unwrap().into_iter().chain([path.to_owned()]) {
        verifier.file();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with('\n'), "{file:?}");
        records.extend(text.lines().map(|line| verifier.line(line.as_bytes()).unwrap()));
    }
    records
}

fn kinds(path: &Path) -> Vec<String> {
    records(path).into_iter().map(|record| record.kind).collect()
}

#[test]
fn the_chain_goes_on_over_restarts_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.rotate = 2000;
    for start in 0..4 {
        let log = open(&config).unwrap();
        (0..10).for_each(|number| log.record(&entry(&format!("{start}-{number}"))).unwrap());
    }
    let records = records(&config.file);
    let serials: Vec<&str> = records.iter().filter(|r| r.kind == "x509").map(|r| r.serial.as_str()).collect();
    let expected: Vec<String> = (0..40).map(|n| format!("{}-{}", n / 10, n % 10)).collect();
    assert_eq!(serials, expected);
    let kept = all_kept(&config.file).unwrap();
    assert!(kept.len() > 3, "{kept:?}");
    assert_eq!(records.iter().filter(|r| r.kind == "opened").count(), kept.len() + 1);
    assert_eq!(fs::metadata(&config.file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_log_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&config(dir.path())).unwrap();
    assert!(matches!(open(&config(dir.path())), Err(Error::InUse { .. })));
    drop(first);
    open(&config(dir.path())).unwrap();
}

/// A log of three records, closed.
fn three(dir: &Path) -> PathBuf {
    let config = config(dir);
    let log = open(&config).unwrap();
    (0..2).for_each(|number| log.record(&entry(&number.to_string())).unwrap());
    config.file
}

#[test]
fn an_unfinished_record_is_set_aside_and_told_of_and_no_whole_one_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = three(dir.path());
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last + 1..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        drop(open(&config(dir.path())).unwrap());
        let records = records(&path);
        if cut == whole.len() - 1 {
            assert_eq!(records.len(), 3, "only its end was missing");
            continue;
        }
        assert_eq!((records.len(), records[2].kind.as_str()), (3, "torn"));
        let kept = dir.path().join("audit.jsonl.torn-3");
        assert!(records[2].reason.contains(kept.to_str().unwrap()), "{}", records[2].reason);
        assert_eq!(fs::read(kept).unwrap(), &whole[last..cut]);
    }
}

#[test]
fn a_changed_log_is_not_continued_and_the_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = three(dir.path());
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("spiffe://td/w", "spiffe://td/x", 1)).unwrap();
    let error = open(&config(dir.path())).err().unwrap().to_string();
    assert!(error.contains("line 2") && error.contains("isthmusctl audit verify"), "{error}");
    assert!(fs::read_to_string(&path).unwrap().contains("spiffe://td/x"), "it is left as it was");
    fs::write(&path, "not a log\n").unwrap();
    assert!(matches!(open(&config(dir.path())), Err(Error::Broken { .. })));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = open(&config(dir.path())).err().unwrap().to_string();
    assert!(error.contains("0666") && error.contains("chmod 600"), "{error}");
}

#[test]
fn a_crash_between_the_steps_of_a_rotation_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.rotate = 1;
    let log = open(&config).unwrap();
    log.record(&entry("a")).unwrap();
    drop(log);
    // The new file did not get its name.
    fs::rename(&config.file, dir.path().join("audit.jsonl.new")).unwrap();
    drop(open(&config).unwrap());
    assert_eq!(kinds(&config.file), ["opened", "opened", "x509"]);
    // A draft beside the log was never part of it.
    fs::write(dir.path().join("audit.jsonl.new"), "half a li").unwrap();
    drop(open(&config).unwrap());
    assert_eq!(kinds(&config.file).len(), 3);
    // The newest file is gone: the log goes on after the one before, and says so.
    fs::remove_file(&config.file).unwrap();
    drop(open(&config).unwrap());
    assert_eq!(records(&config.file).last().unwrap().reason, "the newest file was missing");
}

#[test]
fn a_full_disk_stops_it_and_room_starts_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let log = open(&config).unwrap();
    let disk = Faulty::under(&log);
    log.record(&entry("before")).unwrap();
    let length = || fs::metadata(&config.file).unwrap().len();
    for room in [0, 1, 100] {
        let before = length();
        disk.leave(room);
        let error = log.record(&entry("lost")).unwrap_err().to_string();
        assert!(error.contains("audit.jsonl") && error.contains("No space left on device"), "{error}");
        assert_eq!(length(), before, "no part of a record stays");
        assert!(log.trouble().unwrap().contains("nothing is issued"));
        disk.leave(0);
        log.record(&entry("lost")).unwrap_err();
        disk.leave(u64::MAX);
        log.record(&entry("after")).unwrap();
        assert_eq!(log.trouble(), None);
    }
    let records = records(&config.file);
    assert!(records.iter().all(|record| record.serial != "lost"));
    let resumed: Vec<_> = records.iter().filter(|record| record.kind == "resumed").collect();
    assert_eq!(resumed.len(), 3);
    assert!(resumed[0].reason.contains("No space left") && resumed[0].reason.contains("2 requests failed"));
}

#[test]
fn it_starts_again_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&config(dir.path())).unwrap();
    let disk = Faulty::under(&log);
    disk.leave(0);
    log.record(&entry("lost")).unwrap_err();
    log.keep();
    assert!(log.trouble().is_some());
    disk.leave(u64::MAX);
    log.keep();
    assert_eq!(log.trouble(), None);
    assert_eq!(kinds(log.path()), ["opened", "resumed"]);
}

#[test]
fn with_sync_always_a_record_counts_once_the_disk_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = AuditConfig { sync: Sync::Always, ..config(dir.path()) };
    let log = open(&config).unwrap();
    let disk = Faulty::under(&log);
    disk.sync_fails.store(true, Ordering::SeqCst);
    let error = log.record(&entry("unsure")).unwrap_err().to_string();
    assert!(error.contains("Input/output error"), "{error}");
    assert!(log.record(&entry("lost")).is_err() && log.trouble().is_some());
    disk.sync_fails.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let log = &log;
            scope.spawn(move || (0..20).for_each(|n| log.record(&entry(&format!("{thread}-{n}"))).unwrap()));
        }
    });
    assert_eq!(records(&config.file).iter().filter(|r| r.serial.contains('-')).count(), 160);
}

#[test]
fn refusals_cannot_fill_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&config(dir.path())).unwrap();
    (0..1000).for_each(|_| log.refuse(&Entry { kind: Kind::Refused, reason: "no", ..entry("") }));
    log.keep();
    let records = records(log.path());
    assert_eq!(records.iter().filter(|r| r.kind == "refused").count(), 100);
    assert!(records.iter().any(|r| r.kind == "suppressed" && r.reason == "900 more refusals"));
}

#[test]
fn the_signed_head_lies_beside_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&config(dir.path())).unwrap();
    log.set_signer(Arc::new(|head: &Head| Some(format!("signed {} {}", head.size, head.root))));
    log.record(&entry("1")).unwrap();
    log.keep();
    let mut verifier = Verifier::default();
    fs::read_to_string(log.path())
        .unwrap()
        .lines()
        .for_each(|line| drop(verifier.line(line.as_bytes()).unwrap()));
    let expected = format!("signed 2 {}\n", verifier.chain().unwrap().tree().root());
    assert_eq!(fs::read_to_string(dir.path().join("audit.jsonl.head")).unwrap(), expected);
}

/// Aloud; where nothing may be missing it is a failure.
fn skipped(what: &str, why: &str) {
    assert!(std::env::var("ISTHMUS_PEERS").as_deref() != Ok("required"), "{what}: {why}");
    // Not by the macro, whose output is kept of a test that passes.
    io::Write::write_all(&mut io::stderr(), format!("SKIPPED {what}: {why}\n").as_bytes()).unwrap();
}

/// A real full disk: a tiny tmpfs in a mount namespace of this thread's own, which takes the mount away when it ends.
#[test]
fn a_really_full_disk() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("a_really_full_disk", "mounting a tiny tmpfs needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = move || -> Result<(), nix::Error> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
        let log = open(&config(dir)).unwrap();
        let filler = dir.join("filler");
        // One page at a time until there is none.
        let mut length = 0;
        while fs::write(&filler, vec![1; length + 4096]).is_ok() {
            length += 4096;
        }
        let written = (0..100).take_while(|n| log.record(&entry(&n.to_string())).is_ok()).count();
        assert!(written < 20, "{written} records went into one page");
        assert!(log.trouble().unwrap().contains("No space left on device"));
        assert_eq!(records(log.path()).len(), written + 1, "what was refused left nothing behind");
        fs::remove_file(&filler).unwrap();
        log.record(&entry("after")).unwrap();
        assert_eq!(log.trouble(), None);
        let kinds = kinds(log.path());
        assert_eq!(kinds[written + 1..], ["resumed", "x509"]);
        Ok(())
    };
    std::thread::scope(|scope| {
        if let Err(errno) = scope.spawn(run).join().unwrap() {
            skipped("a_really_full_disk", &format!("no mounts here: {errno}"));
        }
    });
}
