//! What `/proc/PID` says of a process. The directory is an argument, so that tests can bring their own.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// Longest `stat` and `status`, in bytes: the latter has up to 65,536 supplementary groups.
const MAX_LEN: u64 = 1 << 20;

/// What `status` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// Effective user.
    pub(super) uid: u32,
    /// Effective group.
    pub(super) gid: u32,
    /// Supplementary groups.
    pub(super) groups: Vec<u32>,
}

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no {what} in it"))
}

/// A file whole, or an error: half a file may say the opposite.
pub(super) fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(longest + 1).read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= longest);
    if fits {
        Ok(bytes)
    } else {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {longest} bytes")))
    }
}

/// Start time in clock ticks since boot: field 22 of `stat` (proc_pid_stat(5)).
pub(super) fn start_time(process: &Path) -> io::Result<u64> {
    parse_stat(&read(&process.join("stat"), MAX_LEN)?).ok_or_else(|| unreadable("start time"))
}

/// The command's name is field 2, in parentheses, and may hold spaces and parentheses: fields are counted from the last `)`.
fn parse_stat(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Effective user and group, and the supplementary groups, from `status`.
pub(super) fn status(process: &Path) -> io::Result<Status> {
    parse_status(&read(&process.join("status"), MAX_LEN)?).ok_or_else(|| unreadable("user and groups"))
}

/// The first line has the command's name; the kernel escapes line ends in it.
fn parse_status(status: &[u8]) -> Option<Status> {
    let status = String::from_utf8_lossy(status);
    let fields = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let effective = |name: &str| fields(name)?.get(1).copied();
    Some(Status { uid: effective("Uid:")?, gid: effective("Gid:")?, groups: fields("Groups:")? })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_may_try_to_look_like_fields() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        for name in ["cat", "a b", "a) S 1 (b", ")))", "((", ""] {
            assert_eq!(parse_stat(format!("17 ({name}) {tail}\n").as_bytes()), Some(4242), "{name}");
        }
        assert_eq!(parse_stat(b"17 (cat) S 1 2"), None);
        assert_eq!(parse_stat(b"17 cat"), None);
    }

    #[test]
    fn the_effective_owner_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join("status"), text).unwrap();
        write("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t9 10 \n");
        assert_eq!(status(dir.path()).unwrap(), Status { uid: 2, gid: 6, groups: vec![9, 10] });
        write("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t\n");
        assert_eq!(status(dir.path()).unwrap().groups, [0; 0]);
        for bad in [
            "Name:\tUid:\n",
            "Uid:\t1\t2\nGid:\t1\n",
            "Uid:\t1\t2\nGid:\t1\t2\n",
            "Uid:\t1\tx\nGid:\t1\t2\nGroups:\n",
        ] {
            write(bad);
            assert!(status(dir.path()).is_err(), "{bad}");
        }
    }

    #[test]
    fn half_a_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse_stat(&bytes), parse_status(&bytes));
        }
    }
}
