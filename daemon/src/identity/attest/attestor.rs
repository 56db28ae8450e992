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

use super::{
    Refusal, Wants,
    cgroup::{self, Container, Placement},
    executable::{self, FileId, Hashes},
    facts::{Facts, PodFacts},
    kubelet::{Kubelet, Source},
    names::Names,
    pods::{Pods, Unknown},
    proc::{self, Status},
    turns::Turns,
};
use crate::identity::{
    config::{KubeletTrust, KubernetesConfig},
    registration::Registry,
};

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
    names: Arc<Names>,
    turns: Turns,
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
        let source = kubernetes.clone().filter(|_| wants.pod).map(|config| {
            if config.trust == KubeletTrust::Unverified {
                tracing::warn!(
                    "the kubelet's certificate is not checked: insecure = true in [workload_api.kubernetes]"
                );
            }
            Box::new(Kubelet::new(config)) as Box<dyn Source>
        });
        Self { kubernetes, ..Self::with_source(wants, source) }
    }

    /// With another than the kubelet to tell of pods.
    pub(super) fn with_source(wants: Wants, source: Option<Box<dyn Source>>) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let pods = source.map(|source| Arc::new(Pods::new(source)));
        // Whether the kubelet answers is known before the first workload asks.
        pods.iter().for_each(Pods::refresh);
        Self {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            wants,
            kubernetes: None,
            pods,
            hashes: Arc::default(),
            names: Arc::default(),
            turns: Turns::default(),
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

    /// All that entries ask for. In a task of its own: an answer that a client does not take is not polled on, and would keep the turns
    /// that it has or waits for.
    pub(super) async fn gather(
        self: &Arc<Self>,
        process: PathBuf,
        status: Status,
        registry: &Arc<Registry>,
    ) -> Result<Facts, Refusal> {
        let (this, registry) = (self.clone(), registry.clone());
        let work = async move { this.gather_here(&process, status, &registry).await };
        tokio::spawn(work).await.unwrap_or(Err(Refusal::Slow))
    }

    /// The facts with the hash of the executable, if an entry hangs on it. In a task of its own, as [`gather`](Self::gather).
    pub(super) async fn with_hash(
        self: &Arc<Self>,
        process: PathBuf,
        facts: Facts,
        registry: &Arc<Registry>,
    ) -> Result<Facts, Refusal> {
        let (this, registry) = (self.clone(), registry.clone());
        let work = async move { this.add_hash(&process, facts, &registry).await };
        tokio::spawn(work).await.unwrap_or(Err(Refusal::Slow))
    }

    /// Does an entry hang on the hash of the executable, which is not known yet?
    pub(super) fn lacks_hash(&self, facts: &Facts, registry: &Registry) -> bool {
        self.wants.sha256 && facts.sha256.is_none() && registry.asks_for_hash(facts)
    }

    async fn gather_here(
        &self,
        process: &Path,
        status: Status,
        registry: &Registry,
    ) -> Result<Facts, Refusal> {
        let start = Instant::now();
        let placement = if self.wants.cgroup() { self.place(process)? } else { Placement::default() };
        let Status { uid, gid, groups } = status;
        let bare = Facts { uid, gid, groups, unit: placement.unit, ..Facts::default() };
        let mut facts = self.outside(process, bare).await?;
        took("unix", start);
        if let Some((pods, container)) = self.pods.as_ref().zip(placement.container.as_ref()) {
            facts.pod = Some(self.pod(pods, container).await?);
        }
        self.add_hash(process, facts, registry).await
    }

    async fn add_hash(
        &self,
        process: &Path,
        mut facts: Facts,
        registry: &Registry,
    ) -> Result<Facts, Refusal> {
        if !self.lacks_hash(&facts, registry) {
            return Ok(facts);
        }
        let (start, hashes, exe) = (Instant::now(), self.hashes.clone(), process.join("exe"));
        match self.blocking(facts.uid, move || hashes.of(&exe)).await? {
            Ok(digest) => facts.sha256 = Some(digest),
            Err(error) => {
                tracing::debug!(%error, "a caller's executable can't be hashed: CAP_SYS_PTRACE is needed, and 512 MiB are the most")
            }
        }
        took("sha256", start);
        Ok(facts)
    }

    /// What the kubelet has said of a caller's pod, whose labels may have changed. `None`: nothing is known now.
    pub(super) fn pod_again(&self, process: &Path) -> Option<Arc<PodFacts>> {
        let container = self.place(process).ok()?.container?;
        self.pods.as_ref()?.known(&container)
    }

    /// Its cgroups, and where they are all the root of what we see, what is mounted there.
    fn place(&self, process: &Path) -> Result<Placement, Refusal> {
        let mut placement = cgroup::parse(&read_cgroup(process)?)?;
        if self.wants.pod && placement.at_root && in_our_user_namespace(process) {
            let mounts =
                proc::read(&process.join("mountinfo"), cgroup::MAX_MOUNTINFO).map_err(Refusal::Proc)?;
            placement.container = cgroup::from_mountinfo(&mounts)?;
        }
        Ok(placement)
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
        let uid = facts.uid;
        let (wants, names, exe) = (self.wants, self.names.clone(), process.join("exe"));
        if !wants.names && !wants.path {
            return Ok(facts);
        }
        let work = move || {
            if wants.names {
                facts.user = names.user(facts.uid);
                facts.group = names.group(facts.gid);
                facts.group_names = facts.groups.iter().filter_map(|gid| names.group(*gid)).collect();
            }
            facts.path = wants.path.then(|| executable::path(&exe)).flatten();
            facts
        };
        self.blocking(uid, work).await
    }

    /// On a thread that may wait. What hangs there keeps its turn, so that it can't take all threads one by one.
    async fn blocking<T: Send + 'static>(
        &self,
        uid: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let run = async {
            let turn = self.turns.take(uid).await;
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

/// In another one, users mount what they like. Unknown counts as another.
fn in_our_user_namespace(process: &Path) -> bool {
    let of = |process: &Path| std::fs::read_link(process.join("ns/user")).ok();
    of(process).is_some_and(|theirs| of(Path::new("/proc/self")) == Some(theirs))
}

fn took(attestor: &'static str, start: Instant) {
    metrics::histogram!("isthmus_attestation_seconds", "attestor" => attestor).record(start.elapsed());
}
