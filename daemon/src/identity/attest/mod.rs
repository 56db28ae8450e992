//! Who is at the other end of a unix socket: what the kernel says, and whether it is still so.
//!
//! The kernel notes pid, uid and gid when the peer connects. A pid is only a number: the process may end and the number be
//! given to another. So a pidfd is taken at once, with the start time of the process, and both are looked at again before
//! anything is handed out.

mod pidfd;
mod proc;

use std::{os::fd::OwnedFd, path::Path};

use tokio::{io::unix::AsyncFd, net::UnixStream};

use super::config::Selector;

/// Why a caller is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel does not say.
    #[error("the kernel does not say who the caller is: {0}")]
    Credentials(std::io::Error),
    /// In a pid namespace that we can't see.
    #[error(
        "the caller's pid is not visible here: isthmusd and the workload must share a pid namespace, or isthmusd the host's (hostPID)"
    )]
    NoPid,
    /// Ended, or its number has been given to another.
    #[error("the calling process is gone")]
    Gone,
    /// Its facts can't be read.
    #[error("/proc can't be read for the caller: {0}")]
    Proc(std::io::Error),
    /// It changed user or group since it connected.
    #[error("the calling process runs under another user or group than when it connected")]
    Changed,
}

impl Refusal {
    /// Label of `isthmus_attestation_refused_total`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::NoPid => "no_pid",
            Self::Gone => "gone",
            Self::Proc(_) => "proc",
            Self::Changed => "changed",
        }
    }
}

/// What is known of a caller: what selectors are held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Effective user when it connected.
    pub uid: u32,
    /// Effective group when it connected.
    pub gid: u32,
}

impl Facts {
    /// True if all selectors hold.
    pub fn matches(&self, selectors: &[Selector]) -> bool {
        let holds = |selector: &Selector| match *selector {
            Selector::Uid(uid) => uid == self.uid,
            Selector::Gid(gid) => gid == self.gid,
        };
        // Without a selector an entry would be everybody's.
        !selectors.is_empty() && selectors.iter().all(holds)
    }
}

/// A process that connected. Made once per connection, [checked](Self::check) before each answer.
#[derive(Debug)]
pub struct Caller {
    pid: u32,
    uid: u32,
    gid: u32,
    start_time: u64,
    process: AsyncFd<OwnedFd>,
}

impl Caller {
    /// Attests the peer of a connection just accepted.
    pub fn attest(stream: &UnixStream) -> Result<Self, Refusal> {
        let credentials = stream.peer_cred().map_err(Refusal::Credentials)?;
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
        let pid = pid.ok_or(Refusal::NoPid)?;
        let process = pidfd::of_peer(stream, pid).map_err(|_| Refusal::Gone)?;
        let process = pidfd::watch(process).map_err(Refusal::Proc)?;
        let start_time = proc::start_time(Path::new("/proc"), pid).map_err(|_| Refusal::Gone)?;
        let caller = Self { pid, uid: credentials.uid(), gid: credentials.gid(), start_time, process };
        caller.check()?;
        Ok(caller)
    }

    /// Is it still there, the same process, under the same user and group?
    pub fn check(&self) -> Result<(), Refusal> {
        let proc = Path::new("/proc");
        let start_time = proc::start_time(proc, self.pid).map_err(|_| Refusal::Gone)?;
        let (uid, gid) = proc::owner(proc, self.pid).map_err(Refusal::Proc)?;
        // Last, so that a process that is there now was there while /proc was read.
        if start_time != self.start_time || pidfd::has_ended(self.process.get_ref()) {
            return Err(Refusal::Gone);
        }
        if (uid, gid) == (self.uid, self.gid) { Ok(()) } else { Err(Refusal::Changed) }
    }

    /// Returns when the process has ended.
    pub async fn ended(&self) {
        // An error here means that the runtime goes away: the caller's time is over as well.
        let _ = self.process.readable().await;
    }

    /// What is known of it.
    pub fn facts(&self) -> Facts {
        Facts { uid: self.uid, gid: self.gid }
    }

    /// User that it ran as when it connected.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// For logs.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream as StdStream,
        process::{Command, Stdio},
    };

    use super::*;

    fn own() -> Caller {
        let (ours, _theirs) = StdStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        Caller::attest(&UnixStream::from_std(ours).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn we_are_ourselves() {
        let caller = own();
        assert_eq!(caller.pid(), std::process::id());
        caller.check().unwrap();
        let (uid, gid) = (caller.uid, caller.gid);
        let caller = caller.facts();
        assert!(caller.matches(&[Selector::Uid(uid)]));
        assert!(caller.matches(&[Selector::Uid(uid), Selector::Gid(gid)]));
        assert!(!caller.matches(&[Selector::Uid(uid), Selector::Gid(gid + 1)]));
        assert!(!caller.matches(&[Selector::Uid(uid + 1)]));
        assert!(!caller.matches(&[]));
    }

    #[tokio::test]
    async fn a_recycled_pid_or_a_changed_user_is_refused() {
        let other = Caller { start_time: 1, ..own() };
        assert!(matches!(other.check(), Err(Refusal::Gone)));
        let own = own();
        let other = Caller { uid: own.uid + 1, ..own };
        assert!(matches!(other.check(), Err(Refusal::Changed)));
    }

    #[tokio::test]
    async fn an_ended_process_is_refused() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let process = pidfd::watch(pidfd::open(pid).unwrap()).unwrap();
        let (uid, gid) = proc::owner(Path::new("/proc"), pid).unwrap();
        let start_time = proc::start_time(Path::new("/proc"), pid).unwrap();
        let caller = Caller { pid, uid, gid, start_time, process };
        caller.check().unwrap();
        child.kill().unwrap();
        caller.ended().await;
        // Not yet waited for: a zombie is gone as well.
        assert!(matches!(caller.check(), Err(Refusal::Gone)));
        child.wait().unwrap();
        assert!(matches!(caller.check(), Err(Refusal::Gone)));
    }
}
