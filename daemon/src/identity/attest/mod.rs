//! Who is at the other end of a unix socket: what the kernel says, and whether it is still so.
//!
//! The kernel notes pid, uid and gid when the peer connects. A pid is only a number: the process may end and the number be
//! given to another. So a pidfd is taken at once, with the start time of the process, and both are looked at again before
//! anything is handed out.
//!
//! ```text
//! Caller (pid, uid, gid, pidfd, start time)
//!    │ facts()   alive, same process, same user? ── what was seen last time, if the marks are the same
//!    ▼                                              (executable's device and inode, cgroup, groups)
//! Attestor ── /proc/PID ── cgroup ── systemd unit, or container ── pods ── kubelet
//!    │        └ exe ── path, hash                  └ one list for all callers
//!    ▼
//! Facts ── held against selectors; and then all of the first line once more
//! ```

mod attestor;
pub mod cgroup;
mod executable;
mod facts;
pub mod kubelet;
mod names;
mod pidfd;
mod pods;
mod proc;
mod wants;

use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{io::unix::AsyncFd, net::UnixStream, sync::Mutex};

use super::registration::Registry;
use attestor::Mark;
use proc::Status;

pub use attestor::Attestor;
pub use facts::{Facts, PodFacts};
pub use wants::Wants;

/// How often facts are gathered again when the process changes meanwhile.
const ROUNDS: usize = 3;
/// After what time the kubelet is asked again about a pod whose caller is still there.
const POD_AGE: Duration = Duration::from_secs(60);

/// Why a caller is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel does not say.
    #[error("the kernel does not say who the caller is: {0}")]
    Credentials(io::Error),
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
    Proc(io::Error),
    /// It changed user or group since it connected.
    #[error("the calling process runs under another user or group than when it connected")]
    Changed,
    /// It goes on changing while it is looked at.
    #[error("the calling process changes its program or cgroup while it is attested")]
    Restless,
    /// Its cgroups contradict each other.
    #[error("the calling process can't be placed: {0}")]
    Cgroup(#[from] cgroup::Conflict),
    /// The kubelet contradicts the cgroup, or itself.
    #[error("the pod of the calling process is not certain: {0}")]
    Pod(kubelet::Disputed),
    /// The kubelet does not know the container.
    #[error("the kubelet does not know the caller's container")]
    UnknownPod,
    /// The kubelet can't be asked.
    #[error("the pod of the calling process is not known: {0}")]
    Kubelet(Box<kubelet::Error>),
    /// File system or name service don't answer.
    #[error("the names or the executable of the caller could not be read in time")]
    Slow,
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
            Self::Restless => "restless",
            Self::Cgroup(_) => "cgroup",
            Self::Pod(_) => "pod_disputed",
            Self::UnknownPod => "pod_unknown",
            Self::Kubelet(_) => "kubelet",
            Self::Slow => "slow",
        }
    }

    /// True if it says nothing about the caller: it may come again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Kubelet(_) | Self::Slow)
    }
}

/// A process that connected. Made once per connection; [`facts`](Self::facts) are asked for before each answer.
#[derive(Debug)]
pub struct Caller {
    pid: u32,
    uid: u32,
    gid: u32,
    start_time: u64,
    process: AsyncFd<OwnedFd>,
    known: Mutex<Option<Known>>,
}

/// What was gathered, and under which circumstances it holds.
#[derive(Debug)]
struct Known {
    facts: Arc<Facts>,
    generation: u64,
    mark: Mark,
    at: Instant,
}

impl Caller {
    /// Knows the peer of a connection just accepted.
    pub fn attest(stream: &UnixStream) -> Result<Self, Refusal> {
        let credentials = stream.peer_cred().map_err(Refusal::Credentials)?;
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
        let pid = pid.ok_or(Refusal::NoPid)?;
        let process = pidfd::of_peer(stream, pid).map_err(|_| Refusal::Gone)?;
        let process = pidfd::watch(process).map_err(Refusal::Proc)?;
        let start_time = proc::start_time(&directory(pid)).map_err(|_| Refusal::Gone)?;
        let (uid, gid, known) = (credentials.uid(), credentials.gid(), Mutex::default());
        let caller = Self { pid, uid, gid, start_time, process, known };
        caller.check()?;
        Ok(caller)
    }

    /// Is it still there, the same process, under the same user and group?
    pub fn check(&self) -> Result<(), Refusal> {
        self.look().map(drop)
    }

    /// What is known of it, checked now: still there, the same process, user and group, and what was gathered of it still so. Gathers
    /// what `attestor` is for, the first time and whenever something has changed.
    pub async fn facts(&self, attestor: &Attestor, registry: &Registry) -> Result<Arc<Facts>, Refusal> {
        let mut known = self.known.lock().await;
        let status = self.look()?;
        let mark = attestor.mark(&directory(self.pid), &status)?;
        let before =
            known.take().filter(|known| known.generation == attestor.generation() && known.mark == mark);
        let now = match before {
            Some(before) => self.kept(before, attestor, registry).await?,
            None => self.gathered(status, mark, attestor, registry).await?,
        };
        Ok(known.insert(now).facts.clone())
    }

    /// What is known already, with what may be missing in it or new.
    async fn kept(
        &self,
        mut known: Known,
        attestor: &Attestor,
        registry: &Registry,
    ) -> Result<Known, Refusal> {
        let is_old = known.facts.pod.is_some() && known.at.elapsed() >= POD_AGE;
        if !is_old && !attestor.lacks_hash(&known.facts, registry) {
            return Ok(known);
        }
        let directory = directory(self.pid);
        let mut facts = Facts::clone(&known.facts);
        if is_old {
            known.at = Instant::now();
            // A kubelet that is away, or has forgotten the pod of a process that is there, takes nothing away.
            facts.pod = attestor.pod_again(&directory).or(facts.pod);
        }
        attestor.add_hash(&directory, &mut facts, registry).await;
        if facts == *known.facts {
            return Ok(known);
        }
        let status = self.look()?;
        if attestor.mark(&directory, &status)? != known.mark {
            return Err(Refusal::Restless);
        }
        known.facts = Arc::new(facts);
        Ok(known)
    }

    async fn gathered(
        &self,
        mut status: Status,
        mut mark: Mark,
        attestor: &Attestor,
        registry: &Registry,
    ) -> Result<Known, Refusal> {
        let (directory, generation) = (directory(self.pid), attestor.generation());
        for _ in 0..ROUNDS {
            let facts = attestor.gather(&directory, status, registry).await?;
            status = self.look()?;
            let after = attestor.mark(&directory, &status)?;
            if after == mark {
                return Ok(Known { facts: Arc::new(facts), generation, mark, at: Instant::now() });
            }
            mark = after;
        }
        Err(Refusal::Restless)
    }

    fn look(&self) -> Result<Status, Refusal> {
        let directory = directory(self.pid);
        let start_time = proc::start_time(&directory).map_err(|_| Refusal::Gone)?;
        let status = proc::status(&directory).map_err(Refusal::Proc)?;
        // Last, so that a process that is there now was there while /proc was read.
        if start_time != self.start_time || pidfd::has_ended(self.process.get_ref()) {
            return Err(Refusal::Gone);
        }
        if (status.uid, status.gid) == (self.uid, self.gid) { Ok(status) } else { Err(Refusal::Changed) }
    }

    /// Returns when the process has ended.
    pub async fn ended(&self) {
        // An error here means that the runtime goes away: the caller's time is over as well.
        let _ = self.process.readable().await;
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

fn directory(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

#[cfg(test)]
mod tests;
