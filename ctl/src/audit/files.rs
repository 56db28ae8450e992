//! The files of a log, read line by line: one never has to fit into memory.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use isthmus_pki::audit::{Head, MAX_LINE, Record, SignedHead, Verifier, names};

use crate::failure::Failure;

/// Longest head file that is looked at, in bytes.
const MAX_HEAD: u64 = 64 << 10;

/// The files that make up a log, the oldest first.
///
/// # Errors
/// A directory that cannot be read.
pub(super) fn all(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let file = entry.map_err(|error| unreadable(directory, &error))?.file_name();
        if let Some(first) = names::first_of_full_file(&name, &file.to_string_lossy()) {
            found.push((first, directory.join(file)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, file)| file).chain([path.to_owned()]).collect())
}

/// Reads every record, each checked; stops at the first that is wrong.
///
/// # Errors
/// File, line and reason of a break; a file that cannot be read.
pub(super) fn read(
    path: &Path,
    heads: impl IntoIterator<Item = Head>,
    mut each: impl FnMut(Record),
) -> Result<Verifier, Failure> {
    let mut verifier = Verifier::new(heads);
    for file in all(path)? {
        verifier.file();
        lines(&file, |line| {
            let record = verifier.line(line).map_err(|broken| broken_at(&file, &broken))?;
            each(record);
            Ok(())
        })?;
    }
    verifier.finish().map_err(|broken| broken_at(path, &broken))?;
    Ok(verifier)
}

/// A proof is computed over all records.
pub(super) fn beginning_is_missing(first: u64) -> Failure {
    Failure::failed(format!("the log here begins with record {first}; a proof needs all before it"))
        .with_help("put the archived files back beside the newest one")
}

fn broken_at(file: &Path, broken: &isthmus_pki::audit::Broken) -> Failure {
    Failure::failed(format!("{}: {broken}", file.display())).with_help(
        "nothing from this line on can be relied upon; docs/reference/audit.md says what a break means",
    )
}

/// A line that is too long is cut, and is then no record.
fn lines(file: &Path, mut each: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let opened = File::open(file).map_err(|error| unreadable(file, &error))?;
    let mut reader = BufReader::with_capacity(1 << 20, opened);
    let mut line = Vec::new();
    let most = u64::try_from(MAX_LINE + 2).expect("a length fits 64 bits");
    loop {
        line.clear();
        let read = reader.by_ref().take(most).read_until(b'\n', &mut line);
        if read.map_err(|error| unreadable(file, &error))? == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        each(&line)?;
    }
}

/// The signed head beside a log, with its text; nothing if there is none.
///
/// # Errors
/// A head whose signature does not hold.
pub(super) fn head(path: &Path) -> Result<Option<(SignedHead, String)>, Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".head");
    let file = PathBuf::from(name);
    let mut text = String::new();
    let read = File::open(&file).and_then(|opened| opened.take(MAX_HEAD).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&file, &error)),
        Ok(_) => {}
    }
    let text = text.trim_end().to_owned();
    let signed = SignedHead::parse(&text);
    let signed = signed.map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
    Ok(Some((signed, text)))
}

pub(super) fn unreadable(file: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read {}: {error}", file.display()))
}
