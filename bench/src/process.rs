//! What a process cost, as `/proc` tells it; see proc(5).

use std::{fs, process};

use anyhow::{Context, Result, ensure};
use nix::unistd::{SysconfVar, sysconf};

/// Makes sure that `/proc` numbers processes as we do: in a container it may show those of the outside.
///
/// # Errors
/// When it does not.
pub(crate) fn check_proc() -> Result<()> {
    let seen = fs::read_link("/proc/self").context("reading /proc/self")?;
    ensure!(
        seen.as_os_str() == process::id().to_string().as_str(),
        "/proc cannot be mounted in a sandbox here, so that no daemon can be watched: run outside of the container"
    );
    Ok(())
}

/// Processor seconds, user and system, of all threads so far, those that ended too.
///
/// # Errors
/// When there is no such process.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let ticks = ticks(&stat).with_context(|| format!("{path} is not as proc(5) says"))?;
    let hertz = sysconf(SysconfVar::CLK_TCK)?.context("the kernel does not tell its clock tick")?;
    Ok(ticks as f64 / hertz as f64)
}

/// Fields 14 and 15, counted from behind the name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

/// Which resident set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resident {
    /// The one of this moment.
    Now,
    /// The largest so far.
    Peak,
}

/// The resident set in MiB.
///
/// # Errors
/// When there is no such process.
pub(crate) fn resident(pid: u32, which: Resident) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let key = if which == Resident::Now { "VmRSS:" } else { "VmHWM:" };
    let kibibytes = kibibytes(&status, key).with_context(|| format!("{path} has no {key}"))?;
    Ok(kibibytes as f64 / 1024.0)
}

fn kibibytes(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Does the process's network namespace have a TCP socket that listens on `port`?
pub(crate) fn is_listening(pid: u32, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")));
    tables.iter().flatten().any(|table| listens(table, port))
}

fn listens(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&port)) && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_behind_any_name() {
        let rest = "S 1 2 3 0 -1 4194560 158 0 0 0 1234 66 0 0 20 0 5 0 777 12345 890";
        for name in ["isthmusd", "a b", "odd) S 1 2", "x (y)"] {
            assert_eq!(ticks(&format!("42 ({name}) {rest}")), Some(1300), "{name}");
        }
        for broken in ["", "42 (x", "42 (x) S 1 2", "42 (x) S 1 2 3 0 -1 4194560 158 0 0 0 12x 66"] {
            assert_eq!(ticks(broken), None, "{broken}");
        }
    }

    #[test]
    fn resident_sets_are_read_by_their_key() {
        let status = "Name:\tisthmusd\nVmPeak:\t  999 kB\nVmHWM:\t   62288 kB\nVmRSS:\t   20480 kB\n";
        assert_eq!(kibibytes(status, "VmHWM:"), Some(62288));
        assert_eq!(kibibytes(status, "VmRSS:"), Some(20480));
        assert_eq!(kibibytes("Name:\tkthreadd\n", "VmRSS:"), None);
    }

    #[test]
    fn this_process_has_a_cost() {
        let me = process::id();
        assert!(cpu_seconds(me).unwrap() >= 0.0);
        assert!(resident(me, Resident::Peak).unwrap() >= resident(me, Resident::Now).unwrap() / 2.0);
        assert!(cpu_seconds(u32::MAX).is_err());
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n   \
                     0: 0200630A:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n   \
                     1: 0200630A:1452 0100630A:9999 01 00000000:00000000 00:00000000 00000000\n";
        assert!(listens(table, 5201));
        assert!(!listens(table, 5202) && !listens(table, 5203));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listening(process::id(), socket.local_addr().unwrap().port()));
    }
}
