//! The program that a process runs, through `/proc/PID/exe`: the file itself, whatever lies at its path by now.

use std::{
    collections::HashMap,
    ffi::CString,
    fs::{File, read_link},
    io::{self, Read as _},
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use aws_lc_rs::digest::{Context, SHA256};

/// Largest executable that is hashed, in bytes.
const MAX_LEN: u64 = 512 << 20;
/// Most hashes that are remembered.
const MAX_KNOWN: usize = 256;

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// Which file a path leads to, from what the kernel knows already: a file system in somebody's hands (FUSE, NFS) is not asked, so it
/// can't make us wait.
pub(super) fn file_id(path: &Path) -> io::Result<FileId> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut result = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: `path` is a string that ends in zero, `result` has room for what the kernel writes, and both live during the call.
    let failed = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_STATX_DONT_SYNC,
            libc::STATX_INO,
            result.as_mut_ptr(),
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: integers alone, valid as zeroes already, and written by the kernel since.
    let found = unsafe { result.assume_init() };
    Ok(FileId { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
}

/// Where the executable lies in *our* mount namespace. The kernel shows the path of the caller's, where users can mount what they
/// like over any path; so it counts only if the same file is there for us.
pub(super) fn path(exe: &Path) -> Option<PathBuf> {
    let path = read_link(exe).ok()?;
    let is_same = file_id(&path).ok()? == file_id(exe).ok()?;
    is_same.then_some(path)
}

/// All that changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(file: &File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self {
            device: data.dev(),
            inode: data.ino(),
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// Hashes of executables, remembered by what changes when a file does.
#[derive(Default)]
pub(super) struct Hashes(Mutex<HashMap<Version, [u8; 32]>>);

impl Hashes {
    /// SHA-256 of the file. Reads all of it the first time: not for threads that others wait for.
    pub(super) fn of(&self, exe: &Path) -> io::Result<[u8; 32]> {
        let file = File::open(exe)?;
        let version = Version::of(&file)?;
        if let Some(known) = self.lock().get(&version) {
            return Ok(*known);
        }
        if version.length > MAX_LEN {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("more than {MAX_LEN} bytes are not hashed"),
            ));
        }
        let digest = read(&file)?;
        if Version::of(&file)? != version {
            return Err(io::Error::other("it changed while it was read"));
        }
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(version, digest);
        Ok(digest)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Version, [u8; 32]>> {
        // A map is whole whenever the lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &File) -> io::Result<[u8; 32]> {
    let (mut context, mut chunk) = (Context::new(&SHA256), vec![0; 256 << 10]);
    let mut file = file.take(MAX_LEN);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => context.update(&chunk[..length]),
        }
    }
    Ok(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn hex(bytes: [u8; 32]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_hash_is_of_the_file_as_it_is_now() {
        let (dir, hashes) = (tempfile::tempdir().unwrap(), Hashes::default());
        let path = dir.path().join("x");
        fs::write(&path, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            hex(hashes.of(&path).unwrap()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(hashes.lock().len(), 1);
        hashes.of(&path).unwrap();
        assert_eq!(hashes.lock().len(), 1);
        // Same length, same inode.
        fs::write(&path, "abd").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(modified - std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(
            hex(hashes.of(&path).unwrap()),
            "a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9"
        );
        // It costs nothing to refuse what is too large.
        file.set_len(MAX_LEN + 1).unwrap();
        assert_eq!(hashes.of(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(hashes.of(&dir.path().join("none")).is_err());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (dir, hashes) = (tempfile::tempdir().unwrap(), Hashes::default());
        for n in 0..MAX_KNOWN + 10 {
            let path = dir.path().join(n.to_string());
            fs::write(&path, n.to_string()).unwrap();
            hashes.of(&path).unwrap();
        }
        assert!(hashes.lock().len() <= MAX_KNOWN);
    }

    #[test]
    fn a_path_counts_only_while_the_same_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (program, other) = (dir.path().join("program"), dir.path().join("other"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let exe = PathBuf::from(format!("/proc/{}/exe", child.id()));
        let place = fs::canonicalize(&program).unwrap();
        assert_eq!(path(&exe), Some(place.clone()));
        assert_eq!(file_id(&exe).unwrap(), file_id(&program).unwrap());
        // Another file in its place, then none.
        fs::copy("/bin/sleep", &other).unwrap();
        fs::rename(&other, &program).unwrap();
        assert_eq!(path(&exe), None);
        fs::remove_file(&program).unwrap();
        assert_eq!(path(&exe), None);
        let hashes = Hashes::default();
        assert_eq!(hashes.of(&exe).unwrap(), hashes.of(Path::new("/bin/sleep")).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(file_id(&exe).is_err() && path(&exe).is_none());
    }
}
