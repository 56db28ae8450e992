//! Who runs, as `/proc` tells it.

use std::{fs, time::Duration};

/// A process that can't be mistaken for another that got its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn now(pid: u32) -> Option<Self> {
        Some(Self { pid, started: field(pid, 22)? })
    }

    /// Is it still that process, and not dead? A dead one keeps its number until its parent takes note.
    pub fn is_there(&self) -> bool {
        Self::now(self.pid) == Some(*self) && !matches!(state_of(self.pid).as_deref(), None | Some("Z" | "X"))
    }
}

/// The state of a process as proc(5) letters it: `S` sleeps, `T` is stopped.
pub fn state_of(pid: u32) -> Option<String> {
    text_field(pid, 3)
}

/// Memory of a process that is in RAM now, in KiB; `None`: it is gone.
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// CPU time that a process has used, in user and kernel mode; `None`: it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    // SAFETY: the call takes an integer and no memory.
    let ticks = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|ticks| *ticks > 0)?;
    Some(Duration::from_millis((field(pid, 14)? + field(pid, 15)?) * 1000 / ticks))
}

/// Children of a process.
pub fn children_of(parent: u32) -> Vec<u32> {
    all_processes().into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect()
}

/// Command lines of all descendants of `root`, one a line.
pub fn listing_below(root: u32) -> String {
    let processes: Vec<(u32, u32)> = all_processes();
    let mut below = vec![root];
    let mut lines = String::new();
    while let Some(parent) = below.pop() {
        for (pid, _) in processes.iter().filter(|(_, of)| *of == parent) {
            below.push(*pid);
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            lines.push_str(&format!("  {pid} {command}\n"));
        }
    }
    lines
}

/// Pairs of process and parent.
fn all_processes() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    field(pid, 4)?.try_into().ok()
}

/// A numeric field of `/proc/PID/stat`.
fn field(pid: u32, number: usize) -> Option<u64> {
    text_field(pid, number)?.parse().ok()
}

/// A field of `/proc/PID/stat`, numbered as proc(5) does, from 3 on.
fn text_field(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, even a parenthesis: fields are counted from its end.
    stat.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_child_is_not_there() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::now(child.id()).unwrap();
        assert!(process.is_there());
        assert!(children_of(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        crate::wait::until_true("its end", Duration::from_secs(5), || !process.is_there()).unwrap();
        assert!(Process::now(child.id()).is_some(), "not yet waited for, it keeps its number");
        child.wait().unwrap();
    }
}
