//! Files with secrets in them.

use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::{Context, Result};

/// Writes a file that only its owner can read; one that is there is replaced.
///
/// # Errors
/// When it can't be written.
pub fn write_secret(path: &Path, content: &str) -> Result<()> {
    let _ = std::fs::remove_file(path);
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = open.and_then(|mut file| writeln!(file, "{}", content.trim_end()));
    written.with_context(|| format!("writing {}", path.display()))
}
