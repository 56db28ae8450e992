//! The one rule for files that hold a secret: regular, owned by us or root, closed to everybody else, and of a sane size.

use std::{
    fs::Metadata,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use zeroize::Zeroizing;

use crate::config::open;

/// Larger than any key file, in bytes; a mistaken path to a disk image must not be read into memory.
const LIMIT: u64 = 64 * 1024;

/// Who else may look, by the mode's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nobody: 0600 or less.
    Private,
    /// As systemd lays down credentials (systemd.exec(5)): where it lets the service's user in by an access list, the list's mask
    /// shows as the group's permission to read.
    Credential,
}

impl Rule {
    fn forbidden(self) -> u32 {
        match self {
            Self::Private => 0o077,
            Self::Credential => 0o037,
        }
    }
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Missing, or not ours to read.
    #[error("{}", plain(.0))]
    Read(io::Error),
    /// A directory, a device, a FIFO.
    #[error("is not a file")]
    NotAFile,
    /// Others may read or change it.
    #[error("others can read it (mode {0:04o})")]
    Mode(u32),
    /// Somebody else's.
    #[error("user {0} owns it, and could read and replace it")]
    Owner(u32),
    /// Beyond reason.
    #[error("{0} bytes is too large for a key")]
    TooLong(u64),
}

impl Refusal {
    /// What to do about it.
    pub fn remedy(&self, path: &Path) -> String {
        match self {
            Self::Read(_) | Self::NotAFile => "put the file there, or correct the path".into(),
            Self::Mode(_) => format!("chmod 600 {}", path.display()),
            Self::Owner(_) => format!("chown {} {}", nix::unistd::geteuid(), path.display()),
            Self::TooLong(_) => "name the key file".into(),
        }
    }
}

/// An IO error without the "(os error 2)" that helps nobody.
pub(crate) fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Reads it whole if the rule holds. The metadata are those of the open file: what is checked is what is read.
pub(crate) fn read(path: &Path, rule: Rule) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let file = open(path).map_err(Refusal::Read)?;
    let meta = file.metadata().map_err(Refusal::Read)?;
    check(&meta, rule)?;
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1));
    file.take(LIMIT).read_to_end(&mut bytes).map_err(Refusal::Read)?;
    Ok(bytes)
}

fn check(meta: &Metadata, rule: Rule) -> Result<(), Refusal> {
    if !meta.is_file() {
        return Err(Refusal::NotAFile);
    }
    if meta.mode() & rule.forbidden() != 0 {
        return Err(Refusal::Mode(meta.mode() & 0o7777));
    }
    if ![0, nix::unistd::geteuid().as_raw()].contains(&meta.uid()) {
        return Err(Refusal::Owner(meta.uid()));
    }
    if meta.len() > LIMIT { Err(Refusal::TooLong(meta.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn the_mode_decides_and_a_credential_may_carry_an_access_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "secret").unwrap();
        for (mode, private, credential) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o440, false, true),
            (0o660, false, false),
            (0o604, false, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, Rule::Private).is_ok(), private, "{mode:o}");
            assert_eq!(read(&path, Rule::Credential).is_ok(), credential, "{mode:o}");
        }
        let error = read(&path, Rule::Private).unwrap_err();
        assert!(error.to_string().contains("0604") && error.remedy(&path).contains("chmod 600"));
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert!(matches!(read(&path, Rule::Private), Err(Refusal::Read(_))));
        assert!(matches!(read(dir.path(), Rule::Private), Err(Refusal::NotAFile)));
        fs::write(&path, vec![0; 70_000]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read(&path, Rule::Private), Err(Refusal::TooLong(70_000))));
        if nix::unistd::geteuid().is_root() {
            fs::write(&path, "secret").unwrap();
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(matches!(read(&path, Rule::Private), Err(Refusal::Owner(12345))));
        }
    }
}
