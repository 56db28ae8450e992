//! Gathers what entries ask for about a process. The slow parts run where nobody else waits for them.

use std::{
    hash::{BuildHasher as _, RandomState},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use super::{
    Refusal, Wants,
    cgroup::{self, Container, Placement},
    executable::{self, FileId, Hashes},
    facts::{Facts, PodFacts},
    kubelet::Kubelet,
    names,
    pods::{Pods, Unknown},
    proc::{self, Status},
};
use crate::identity::{
    config::{KubeletTrust, KubernetesConfig},
    registration::Registry,
};

/// Most callers whose executables and names are looked at together: file systems and name services may be slow.
const MAX_BLOCKING: usize = 4;
/// Longest look at a caller's executable and names.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gathers facts; one for all callers, a new one when something else is wanted.
pub struct Attestor {
    /// Tells attestors apart: facts that another one gathered may lack something.
    generation: u64,
    wants: Wants,
    kubernetes: Option<KubernetesConfig>,
    pods: Option<Arc<Pods>>,
    hashes: Arc<Hashes>,
    turns: Arc<Semaphore>,
    /// Hashes what marks stand for, with a key that nobody can know.
    keys: RandomState,
}

/// What must not change between gathering facts and using them, beside user and group. Small, and read without touching a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    executable: Option<FileId>,
    cgroup: Option<u64>,
    groups: Option<u64>,
}

impl Attestor {
    /// Gathers what `wants` says; pods with the kubelet that is named, if one is.
    pub fn new(wants: Wants, kubernetes: Option<KubernetesConfig>) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let pods = kubernetes.clone().filter(|_| wants.pod).map(|config| {
            if config.trust == KubeletTrust::Unverified {
                tracing::warn!(
                    "the kubelet's certificate is not checked: insecure = true in [workload_api.kubernetes]"
                );
            }
            let pods = Arc::new(Pods::new(Box::new(Kubelet::new(config))));
            // Whether the kubelet answers is known before the first workload asks.
            pods.refresh();
            pods
        });
        Self {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            wants,
            kubernetes,
            pods,
            hashes: Arc::default(),
            turns: Arc::new(Semaphore::new(MAX_BLOCKING)),
            keys: RandomState::new(),
        }
    }

    /// Would [`Attestor::new`] with these make one that gathers the same?
    pub fn serves(&self, wants: Wants, kubernetes: Option<&KubernetesConfig>) -> bool {
        self.wants == wants && self.kubernetes.as_ref() == kubernetes
    }

    /// Why pods can't be attested now, if they can't.
    pub fn trouble(&self) -> Option<String> {
        self.pods.as_ref()?.trouble()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// What has to stay as it is. `status` has just been read.
    pub(super) fn mark(&self, process: &Path, status: &Status) -> Result<Mark, Refusal> {
        let wants = self.wants;
        let cgroup = wants.cgroup().then(|| read_cgroup(process)).transpose()?;
        Ok(Mark {
            // Unreadable without CAP_SYS_PTRACE: then nothing about it is known either.
            executable: wants.executable().then(|| executable::file_id(&process.join("exe")).ok()).flatten(),
            cgroup: cgroup.map(|text| self.keys.hash_one(text)),
            groups: (wants.groups || wants.names).then(|| self.keys.hash_one(&status.groups)),
        })
    }

    /// All that entries ask for.
    pub(super) async fn gather(
        &self,
        process: &Path,
        status: Status,
        registry: &Registry,
    ) -> Result<Facts, Refusal> {
        let start = Instant::now();
        let placement = if self.wants.cgroup() { place(process)? } else { Placement::default() };
        let bare = Facts {
            uid: status.uid,
            gid: status.gid,
            groups: status.groups,
            unit: placement.unit,
            ..Facts::default()
        };
        let mut facts = self.outside(process, bare).await?;
        took("unix", start);
        if let Some((pods, container)) = self.pods.as_ref().zip(placement.container.as_ref()) {
            facts.pod = Some(self.pod(pods, container).await?);
        }
        self.add_hash(process, &mut facts, registry).await;
        Ok(facts)
    }

    /// Does an entry hang on the hash of the executable, which is not known yet?
    pub(super) fn lacks_hash(&self, facts: &Facts, registry: &Registry) -> bool {
        self.wants.sha256 && facts.sha256.is_none() && registry.asks_for_hash(facts)
    }

    /// Puts the hash of the executable into the facts, if an entry hangs on it.
    pub(super) async fn add_hash(&self, process: &Path, facts: &mut Facts, registry: &Registry) {
        if !self.lacks_hash(facts, registry) {
            return;
        }
        let (start, hashes, exe) = (Instant::now(), self.hashes.clone(), process.join("exe"));
        match self.blocking(move || hashes.of(&exe)).await {
            Ok(Ok(digest)) => facts.sha256 = Some(digest),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a caller's executable can't be hashed: CAP_SYS_PTRACE is needed")
            }
            Err(refusal) => tracing::debug!(%refusal, "a caller's executable is not hashed"),
        }
        took("sha256", start);
    }

    /// What the kubelet has said of a caller's pod, whose labels may have changed. `None`: nothing is known now.
    pub(super) fn pod_again(&self, process: &Path) -> Option<Arc<PodFacts>> {
        let container = place(process).ok()?.container?;
        self.pods.as_ref()?.known(&container)
    }

    async fn pod(&self, pods: &Pods, container: &Container) -> Result<Arc<PodFacts>, Refusal> {
        let start = Instant::now();
        let pod = pods.find(container).await;
        took("kubernetes", start);
        pod.map_err(|unknown| match unknown {
            Unknown::Kubelet(error) => Refusal::Kubelet(Box::new(error)),
            Unknown::Container => Refusal::UnknownPod,
            Unknown::Disputed(disputed) => Refusal::Pod(disputed),
        })
    }

    /// Names and path: both may ask others.
    async fn outside(&self, process: &Path, mut facts: Facts) -> Result<Facts, Refusal> {
        let Wants { names, path, .. } = self.wants;
        if !names && !path {
            return Ok(facts);
        }
        let exe: PathBuf = process.join("exe");
        self.blocking(move || {
            if names {
                facts.user = names::user(facts.uid);
                facts.group = names::group(facts.gid);
                facts.group_names = facts.groups.iter().copied().filter_map(names::group).collect();
            }
            facts.path = path.then(|| executable::path(&exe)).flatten();
            facts
        })
        .await
    }

    /// On a thread that may wait. What hangs there keeps its turn, so that it can't take all threads one by one.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turns = self.turns.clone();
        let run = async move {
            let turn = turns.acquire_owned().await.ok()?;
            let work = move || {
                let result = work();
                drop(turn);
                result
            };
            tokio::task::spawn_blocking(work).await.ok()
        };
        tokio::time::timeout(PATIENCE, run).await.ok().flatten().ok_or(Refusal::Slow)
    }
}

fn read_cgroup(process: &Path) -> Result<Vec<u8>, Refusal> {
    proc::read(&process.join("cgroup"), cgroup::MAX_CGROUP).map_err(Refusal::Proc)
}

/// Its cgroups, and where they are all the root of what we see, what is mounted there.
fn place(process: &Path) -> Result<Placement, Refusal> {
    let mut placement = cgroup::parse(&read_cgroup(process)?)?;
    if placement.at_root && in_our_user_namespace(process) {
        let mounts = proc::read(&process.join("mountinfo"), cgroup::MAX_MOUNTINFO).map_err(Refusal::Proc)?;
        placement.container = cgroup::from_mountinfo(&mounts)?;
    }
    Ok(placement)
}

/// In another one, users mount what they like. Unknown counts as another.
fn in_our_user_namespace(process: &Path) -> bool {
    let of = |process: &Path| std::fs::read_link(process.join("ns/user")).ok();
    of(process).is_some_and(|theirs| of(Path::new("/proc/self")) == Some(theirs))
}

fn took(attestor: &'static str, start: Instant) {
    metrics::histogram!("isthmus_attestation_seconds", "attestor" => attestor).record(start.elapsed());
}
