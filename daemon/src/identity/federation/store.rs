//! The last good bundle of each trust domain, on disk, so that a node that starts without a network knows its partners.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use isthmus_pki::{bundle::MAX_DOCUMENT_LEN, key::sha256_hex};

use super::config::{DomainConfig, Profile};

/// The file of a domain's bundle. Its name follows from all that the domain was configured with, the bootstrap bundle's content
/// included: who brings another one begins anew, and an old file is never taken for the new domain's.
pub(super) fn file(directory: &Path, domain: &DomainConfig, bootstrap: &[u8]) -> PathBuf {
    let profile = match &domain.profile {
        Profile::Web { .. } => "https_web".to_owned(),
        Profile::Spiffe { endpoint_id, .. } => format!("https_spiffe {endpoint_id}"),
    };
    let settings = format!("{} {} {profile} {}", domain.trust_domain, domain.url, sha256_hex(bootstrap));
    directory.join(format!("{}.json", sha256_hex(settings.as_bytes())))
}

/// `None`: there is none.
pub(super) fn load(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match crate::config::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_DOCUMENT_LEN).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Whole or not at all, and on the disk when it returns.
pub(super) fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(directory)?.sync_all()
}

/// Takes away what no configured domain stands for.
pub(super) fn prune(directory: &Path, keep: &[PathBuf]) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|end| end == "json" || end == "new") && !keep.contains(&path) {
            // What stays behind is looked at by nobody.
            fs::remove_file(path).ok();
        }
    }
}
