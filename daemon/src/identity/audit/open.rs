//! Taking up a log where it ended: every line of the newest file is checked, a torn last one is set aside and told of.

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufRead as _, BufReader, Seek as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use isthmus_pki::audit::{Chain, Kind, MAX_LINE, Verifier};
use time::OffsetDateTime;

use super::{
    Error, disk,
    rotation::{all_kept, beside, draft},
    writer::{Writer, note},
};

/// What was read of a file.
struct Read {
    chain: Chain,
    first: u64,
    /// Up to here it is whole records.
    length: u64,
    /// What follows them: part of a record.
    torn: Vec<u8>,
}

/// Holds the log for this process until it is dropped.
pub(super) struct Lock(#[expect(dead_code, reason = "the lock goes with the file")] File);

/// Takes the log and brings it into a state to append to.
pub(super) fn open(path: &Path, rotate: u64, now: OffsetDateTime) -> Result<(Writer, Lock), Error> {
    let fail = |reason| Error::Open { path: path.to_owned(), reason };
    make_directory(path).map_err(fail)?;
    let lock = lock(path)?;
    adopt_draft(path).map_err(fail)?;
    let file = disk::open(path).map_err(fail)?;
    check_mode(&file).map_err(fail)?;
    let mut writer = if file.metadata().map_err(fail)?.len() == 0 {
        begin(path, file, now)?
    } else {
        go_on(path, file, now)?
    };
    writer.rotate = rotate;
    writer.disk.sync().and_then(|()| disk::sync_directory(path)).map_err(fail)?;
    writer.synced = writer.length;
    Ok((writer, lock))
}

fn make_directory(path: &Path) -> io::Result<()> {
    match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        Some(dir) => fs::DirBuilder::new().recursive(true).mode(0o700).create(dir),
        None => Ok(()),
    }
}

fn lock(path: &Path) -> Result<Lock, Error> {
    let fail = |reason| Error::Open { path: path.to_owned(), reason };
    let file = disk::open(&beside(path, "lock")).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(fail(error)),
    }
}

/// A crash between the two renames of a rotation left no file of the log's name. Any other draft was never part of the log.
fn adopt_draft(path: &Path) -> io::Result<()> {
    let draft = draft(path);
    if draft.exists() && !path.exists() {
        return fs::rename(draft, path);
    }
    super::rotation::remove(&draft)
}

fn check_mode(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("others may read or change it (mode {mode:04o}): `chmod 600` it")))
}

fn writer(path: &Path, file: File, chain: Chain, first: u64, length: u64) -> Writer {
    Writer {
        path: path.to_owned(),
        disk: Arc::new(file),
        length,
        synced: 0,
        chain,
        first,
        rotate: u64::MAX,
        trouble: None,
        buffer: Vec::new(),
    }
}

/// The first file, or the one after the newest that was kept.
fn begin(path: &Path, file: File, now: OffsetDateTime) -> Result<Writer, Error> {
    let fail = |reason| Error::Open { path: path.to_owned(), reason };
    let (chain, reason) = match all_kept(path).map_err(fail)?.pop() {
        None => (Chain::default(), "the log begins"),
        Some(last) => (read(&last, &File::open(&last).map_err(fail)?)?.chain, "the newest file was missing"),
    };
    let mut writer = writer(path, file, chain.clone(), chain.size() + 1, 0);
    let mut next = chain;
    next.open(&note(now, Kind::Opened, reason), &mut writer.buffer);
    writer.put(next).map_err(fail)?;
    Ok(writer)
}

fn go_on(path: &Path, file: File, now: OffsetDateTime) -> Result<Writer, Error> {
    let fail = |reason| Error::Open { path: path.to_owned(), reason };
    let Read { chain, first, length, torn } = read(path, &file)?;
    let mut writer = writer(path, file, chain, first, length);
    if !torn.is_empty() {
        set_aside(&mut writer, &torn, now).map_err(fail)?;
    }
    Ok(writer)
}

/// The bytes are kept, the log says so, and goes on behind its last whole record.
fn set_aside(writer: &mut Writer, torn: &[u8], now: OffsetDateTime) -> io::Result<()> {
    let kept = beside(&writer.path, &format!("torn-{}", writer.chain.size() + 1));
    fs::write(&kept, torn)?;
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o600))?;
    writer.disk.truncate(writer.length)?;
    let reason = format!("{} bytes of an unfinished record are kept in {}", torn.len(), kept.display());
    tracing::warn!(file = %writer.path.display(), reason, "the audit log ended in the middle of a record; what it was for was never handed out");
    let mut next = writer.chain.clone();
    next.append(&note(now, Kind::Torn, &reason), &mut writer.buffer);
    writer.put(next)
}

/// Checks every line. Only what is behind the last line's end may be unfinished; a wrong line before that is nobody's crash.
fn read(path: &Path, file: &File) -> Result<Read, Error> {
    let fail = |reason| Error::Open { path: path.to_owned(), reason };
    let mut lines = BufReader::with_capacity(1 << 20, file);
    lines.rewind().map_err(fail)?;
    let (mut verifier, mut length, mut line) = (Verifier::default(), 0, Vec::new());
    let torn = loop {
        line.clear();
        let most = MAX_LINE as u64 + 2;
        io::Read::take(&mut lines, most).read_until(b'\n', &mut line).map_err(fail)?;
        let whole = line.last() == Some(&b'\n');
        let bytes = line.len() as u64;
        if whole {
            line.pop();
        }
        match verifier.line(&line) {
            _ if bytes == 0 => break Vec::new(),
            Ok(_) if whole => length += bytes,
            // The record is whole, its end alone is missing: it stays, with an end.
            Ok(_) => {
                disk::Disk::write_at(file, b"\n", length + bytes).map_err(fail)?;
                length += bytes + 1;
                break Vec::new();
            }
            Err(_) if !whole && bytes < most && verifier.chain().is_some() => {
                break std::mem::take(&mut line);
            }
            Err(reason) => return Err(Error::Broken { path: path.to_owned(), reason }),
        }
    };
    let Some(chain) = verifier.chain().cloned() else {
        return Err(fail(io::Error::other("there is no whole record in it")));
    };
    Ok(Read { chain, first: verifier.first(), length, torn })
}
