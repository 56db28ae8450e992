//! `isthmusctl bgp dump`: what neighbors sent, as an MRT file. The daemon writes its bytes; here they get into a file, whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use isthmus_proto::bgp as wire;

use crate::client::{self, Server};
use crate::failure::Failure;
use crate::text;
use crate::watch::{self, Client};

/// The path that stands for stdout.
const STDOUT: &str = "-";

/// Writes the table to `path`, which must not be there unless `force` is given.
///
/// # Errors
/// The file is there or cannot be written, or the daemon does not answer. Then there is no file, or still the old one.
pub(crate) fn dump(server: &Server, path: &Path, force: bool) -> Result<(), Failure> {
    if path.as_os_str() == STDOUT {
        return to_stdout(server);
    }
    if !force && path.symlink_metadata().is_ok() {
        let what = format!("{} is there already", path.display());
        return Err(Failure::failed(what).with_help("--force replaces it"));
    }
    let failed = |error| not_written(path, &error);
    let mut partial = Partial::create(path).map_err(failed)?;
    copy(server, &mut partial.file, &failed)?;
    partial.finish(path).map_err(failed)
}

fn to_stdout(server: &Server) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    if stdout.is_terminal() {
        return Err(Failure::usage("an MRT file is not for a terminal: redirect stdout, or name a file"));
    }
    copy(server, &mut stdout, &Failure::from)
}

/// Copies the file from the daemon, and tells on stderr how far it is.
fn copy(server: &Server, to: &mut impl Write, failed: &dyn Fn(io::Error) -> Failure) -> Result<(), Failure> {
    watch::run(async {
        let answered = |status| server.failed(&status);
        let mut client = Client::new(server.connect().await?);
        let parts = client.bgp.dump_mrt(wire::DumpMrtRequest {}).await;
        let mut parts = parts.map_err(answered)?.into_inner();
        let mut progress = Progress::default();
        while let Some(part) = client::next(&mut parts).await.map_err(answered)? {
            to.write_all(&part.data).map_err(failed)?;
            progress.tell(&part);
        }
        to.flush().map_err(failed)?;
        progress.end();
        Ok(())
    })
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

/// A file beside the one that is wanted, until it is complete.
struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    fn create(wanted: &Path) -> io::Result<Self> {
        let mut name = wanted.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let path = PathBuf::from(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        Ok(Self { file, path })
    }

    fn finish(self, wanted: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, wanted)
    }
}

/// What did not get its name is of no use. After [`Partial::finish`] there is nothing of this name any more.
impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// How far it is, for a person who waits.
#[derive(Debug, Default)]
struct Progress {
    bytes: u64,
    /// Prefixes in all, as the first part has it.
    total: Option<u64>,
    told: u64,
}

impl Progress {
    /// Every so many prefixes.
    const STEP: u64 = 10_000;

    fn tell(&mut self, part: &wire::MrtPart) {
        self.bytes += u64::try_from(part.data.len()).unwrap_or(u64::MAX);
        let total = *self.total.get_or_insert(part.left);
        let done = total.saturating_sub(part.left);
        if done >= self.told + Self::STEP && io::stderr().is_terminal() {
            self.told = done;
            // With stderr gone there is nobody left to tell.
            let _ = write!(io::stderr().lock(), "\r{done} of {total} prefixes");
        }
    }

    fn end(&self) {
        let start = if self.told > 0 { "\r" } else { "" };
        let total = self.total.unwrap_or_default();
        let _ = writeln!(io::stderr().lock(), "{start}{total} prefixes, {} written", text::bytes(self.bytes));
    }
}
