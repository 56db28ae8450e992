//! Files that the user names.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Opens it for reading. A named pipe is refused, since nobody may ever write into it; what a shell has opened (`/dev/fd/63`,
/// `/dev/stdin`) has a writer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let opened = ["/dev/fd", "/dev/stdin", "/proc"].iter().any(|place| path.starts_with(place));
    if !opened && fs::metadata(path)?.file_type().is_fifo() {
        return Err(io::Error::other(
            "a named pipe, which is not read; write what comes out of it into a file",
        ));
    }
    File::open(path)
}
