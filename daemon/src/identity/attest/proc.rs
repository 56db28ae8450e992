//! What `/proc/PID` says of a process. The directory is an argument, so that tests can bring their own.

use std::{fs, io, path::Path};

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no {what} in it"))
}

/// Start time in clock ticks since boot: field 22 of `stat` (proc_pid_stat(5)).
pub(super) fn start_time(proc: &Path, pid: u32) -> io::Result<u64> {
    parse_stat(&fs::read(proc.join(pid.to_string()).join("stat"))?).ok_or_else(|| unreadable("start time"))
}

/// The command's name is field 2, in parentheses, and may hold spaces and parentheses: fields are counted from the last `)`.
fn parse_stat(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Effective user and group, from `status`.
pub(super) fn owner(proc: &Path, pid: u32) -> io::Result<(u32, u32)> {
    let status = fs::read(proc.join(pid.to_string()).join("status"))?;
    let status = String::from_utf8_lossy(&status);
    let effective = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    effective("Uid:").zip(effective("Gid:")).ok_or_else(|| unreadable("user and group"))
}

#[cfg(test)]
mod tests {
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
        fs::create_dir(dir.path().join("7")).unwrap();
        let write = |text: &str| fs::write(dir.path().join("7/status"), text).unwrap();
        write("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n");
        assert_eq!(owner(dir.path(), 7).unwrap(), (2, 6));
        write("Name:\tUid:\n");
        assert!(owner(dir.path(), 7).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_stat(&bytes);
        }
    }
}
