//! The file under the log, as few operations as it takes: a test has one whose disk fills up when it likes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Where the bytes of a log go.
pub(in crate::identity) trait Disk: Send + Sync {
    /// Writes all bytes at this place, over what is there.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Reads exactly so many bytes from this place.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Takes away what is behind this place.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns once all of it would survive a power failure.
    fn sync(&self) -> io::Result<()>;
}

impl Disk for File {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens for reading and writing; makes it, for us alone, if it is not there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Makes the names in a file's directory survive a power failure.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
}
