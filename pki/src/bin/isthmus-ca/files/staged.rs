//! Files that belong together and to a line in the transcript: first on the disk under names that nobody looks for, then all in place.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{exists, make_dir, refuse_certificates};

/// A file to be made.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    path: &'a Path,
    contents: &'a [u8],
    mode: u32,
    replace: bool,
}

impl<'a> New<'a> {
    /// For its owner's eyes only: 0600.
    pub(crate) fn secret(path: &'a Path, contents: &'a [u8]) -> Self {
        Self { path, contents, mode: 0o600, replace: false }
    }

    /// For everybody's: 0644.
    pub(crate) fn public(path: &'a Path, contents: &'a [u8]) -> Self {
        Self { path, contents, mode: 0o644, replace: false }
    }

    /// Certificates; with `replace` also over old ones, which are whole until these are.
    pub(crate) fn certificates(path: &'a Path, pem: &'a str, replace: bool) -> Self {
        Self { path, contents: pem.as_bytes(), mode: 0o644, replace }
    }
}

/// Files whose bytes are on the disk and whose names are not; dropped, they are gone, and the directories that were made for them.
pub(crate) struct Staged {
    files: Vec<Staging>,
    /// Directories that were not there before, the outermost first.
    made: Vec<PathBuf>,
}

struct Staging {
    temporary: PathBuf,
    path: PathBuf,
    replace: bool,
}

/// Writes files that belong together: all of them or, when one can't be written, none.
pub(crate) fn write_new_together(files: &[New<'_>]) -> anyhow::Result<()> {
    Staged::write(files)?.place()
}

impl Staged {
    /// Writes all of them, directories included.
    pub(crate) fn write(files: &[New<'_>]) -> anyhow::Result<Self> {
        let mut staged = Self { files: Vec::new(), made: Vec::new() };
        for new in files {
            staged.add(new).with_context(|| new.path.display().to_string())?;
        }
        Ok(staged)
    }

    fn add(&mut self, new: &New<'_>) -> anyhow::Result<()> {
        let name = new.path.file_name().context("not the name of a file")?;
        let directory = new.path.parent().unwrap_or(Path::new(""));
        self.made.extend(missing(directory));
        make_dir(directory)?;
        let temporary = new.path.with_file_name(format!(".{}.new", name.to_string_lossy()));
        if new.replace {
            // What a renewal left that was killed; no key is ever replaced.
            let _ = fs::remove_file(&temporary);
        }
        match create_and_sync(&temporary, new) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => bail!(
                "{}: is there, so another run is at work here, or one was killed; remove it if none is",
                temporary.display()
            ),
            other => other?,
        }
        self.files.push(Staging { temporary, path: new.path.to_owned(), replace: new.replace });
        Ok(())
    }

    /// Gives all of them their names, or none; a name that is taken is refused.
    pub(crate) fn place(mut self) -> anyhow::Result<()> {
        let mut placed = 0;
        let names = self.files.iter().try_for_each(|file| {
            file.place()?;
            placed += 1;
            Ok(())
        });
        let done = names.and_then(|()| self.sync());
        if done.is_err() {
            self.files[..placed].iter().for_each(Staging::withdraw);
            return done;
        }
        self.files.clear();
        self.made.clear();
        Ok(())
    }

    /// Puts the names on the disk too.
    fn sync(&self) -> anyhow::Result<()> {
        let names = self.files.iter().map(|file| &file.path).chain(&self.made);
        let directories: BTreeSet<_> = names.map(|path| directory_of(path)).collect();
        directories.iter().try_for_each(|dir| sync(dir).with_context(|| dir.display().to_string()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Whatever failed before is what to report, and what stays behind is named by the next run.
        for file in &self.files {
            let _ = fs::remove_file(&file.temporary);
        }
        for directory in self.made.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

impl Staging {
    fn place(&self) -> anyhow::Result<()> {
        // Two runs at once are told apart by the temporary name; this is for a file that somebody put there meanwhile.
        if self.replace {
            refuse_certificates(&self.path, true)?;
        } else if fs::symlink_metadata(&self.path).is_ok() {
            return Err(exists(&self.path));
        }
        fs::rename(&self.temporary, &self.path).with_context(|| self.path.display().to_string())
    }

    /// Takes a new file away again; an old one that was replaced can't come back, and what replaced it is as good.
    fn withdraw(&self) {
        if !self.replace {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The directories on the way that are not there.
fn missing(directory: &Path) -> Vec<PathBuf> {
    let absent = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let mut missing: Vec<_> = directory.ancestors().take_while(absent).map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// A file that was not there before, seen on the disk, or no file.
fn create_and_sync(path: &Path, new: &New<'_>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(new.mode).open(path)?;
    let written = file.write_all(new.contents).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is worse than none; the write's own error is the one to report.
        let _ = fs::remove_file(path);
    }
    written
}

fn directory_of(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new(".")).to_owned()
}

/// A new name survives a loss of power only when its directory is on the disk.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    sync(&directory_of(path))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn files_have_their_names_all_at_once_or_never() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("new/deep/a"), dir.path().join("b"));
        let files = [New::secret(&a, b"1"), New::public(&b, b"2")];
        let staged = Staged::write(&files).unwrap();
        assert!(!a.exists() && !b.exists());
        drop(staged);
        assert!(names(dir.path()).is_empty(), "neither files nor directories stay");
        write_new_together(&files).unwrap();
        assert_eq!(
            (fs::read(&a).unwrap(), names(dir.path())),
            (b"1".to_vec(), vec!["b".into(), "new".into()])
        );
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_withdraws_all() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("new/a"), dir.path().join("b"));
        let staged = Staged::write(&[New::secret(&a, b"1"), New::public(&b, b"2")]).unwrap();
        fs::write(&b, "another's").unwrap();
        assert!(staged.place().unwrap_err().to_string().contains("not overwritten"));
        assert_eq!((fs::read(&b).unwrap(), names(dir.path())), (b"another's".to_vec(), vec!["b".into()]));
    }

    #[test]
    fn what_a_killed_run_left_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let a = dir.path().join("a");
        fs::write(dir.path().join(".a.new"), "a key, perhaps").unwrap();
        let error = format!("{:#}", write_new_together(&[New::secret(&a, b"1")]).unwrap_err());
        assert!(error.contains(".a.new") && error.contains("remove it"), "{error}");
        assert_eq!(fs::read(dir.path().join(".a.new")).unwrap(), b"a key, perhaps");
    }
}
