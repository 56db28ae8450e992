//! Pods by container, from a kubelet that may be slow, late or away.
//!
//! One list serves all callers: whoever comes while it is being fetched waits for that answer. A container that is on no list yet may
//! be younger than the list, and the kubelet itself lags behind its containers; so it is asked again, a few times. The last list is
//! kept for as long as there is no newer one: a kubelet that is away takes nothing from those it has named.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

use super::{
    cgroup::Container,
    facts::PodFacts,
    kubelet::{Containers, Disputed, Error, Source},
};

/// How long is waited for what.
struct Timing {
    /// How old a list may be that names the container: labels may change.
    fresh: Duration,
    /// How old a list may be that does not; the kubelet is asked no more often than this.
    recent: Duration,
    /// Waits between asking again.
    waits: [Duration; 5],
    /// Longest search, with all waits and answers.
    longest: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let ms = Duration::from_millis;
        let waits = [ms(250), ms(500), ms(1000), ms(2000), ms(2000)];
        Self { fresh: ms(10_000), recent: ms(250), waits, longest: ms(10_000) }
    }
}

/// Why the pod of a container is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unknown {
    /// The kubelet gives no answer.
    #[error(transparent)]
    Kubelet(#[from] Error),
    /// Two answers.
    #[error(transparent)]
    Disputed(#[from] Disputed),
    /// It answers, and does not know the container.
    #[error("the kubelet does not know the caller's container")]
    Container,
}

/// Finds pods. One for all callers.
pub(super) struct Pods {
    source: Box<dyn Source>,
    timing: Timing,
    last: Mutex<Last>,
    /// Held by the one who fetches a list.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Last {
    list: Option<(Instant, Arc<Containers>)>,
    /// Why there is no newer list.
    failure: Option<(Instant, Error)>,
}

impl Pods {
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        Self { source, timing: Timing::default(), last: Mutex::default(), turn: Arc::default() }
    }

    /// The pod of a container.
    pub(super) async fn find(&self, container: &Container) -> Result<Arc<PodFacts>, Unknown> {
        let search = self.search(container);
        tokio::time::timeout(self.timing.longest, search).await.unwrap_or(Err(Unknown::Kubelet(Error::Slow)))
    }

    /// What is known of it without waiting. A list that is old is fetched anew meanwhile, for the next who asks.
    pub(super) fn known(self: &Arc<Self>, container: &Container) -> Option<Arc<PodFacts>> {
        self.refresh();
        self.lock().find(container, Duration::MAX).ok().flatten()
    }

    /// Why the kubelet can't be asked, if it can't. Looks again, for the next who asks.
    pub(super) fn trouble(self: &Arc<Self>) -> Option<String> {
        self.refresh();
        self.lock().failure.as_ref().map(|(_, failure)| failure.to_string())
    }

    /// Fetches a list in the background, if there is no fresh one and nobody is at it.
    pub(super) fn refresh(self: &Arc<Self>) {
        let is_old = self.lock().age() >= self.timing.fresh;
        // Without a runtime there is no kubelet either: a check of the configuration, a test.
        let Ok(runtime) = Handle::try_current() else { return };
        if let (true, Ok(turn)) = (is_old, self.turn.clone().try_lock_owned()) {
            let pods = self.clone();
            runtime.spawn(async move {
                pods.fetch().await;
                drop(turn);
            });
        }
    }

    async fn search(&self, container: &Container) -> Result<Arc<PodFacts>, Unknown> {
        let mut result = self.look(container).await;
        for wait in self.timing.waits {
            if !matches!(result, Err(Unknown::Container | Unknown::Kubelet(_))) {
                return result;
            }
            sleep(wait).await;
            result = self.look(container).await;
        }
        result
    }

    /// In the list that is there, if it is fresh and names it; else in a newer one; and if there is none, in the old one.
    async fn look(&self, container: &Container) -> Result<Arc<PodFacts>, Unknown> {
        if let Some(pod) = self.fresh(container)? {
            return Ok(pod);
        }
        let _turn = self.turn.lock().await;
        // Somebody else may have fetched one meanwhile.
        if let Some(pod) = self.fresh(container)? {
            return Ok(pod);
        }
        let is_old = self.lock().age() >= self.timing.recent;
        if is_old {
            self.fetch().await;
        }
        let last = self.lock();
        match (last.find(container, Duration::MAX)?, &last.failure) {
            (Some(pod), _) => Ok(pod),
            (None, Some((_, failure))) => Err(failure.clone().into()),
            (None, None) => Err(Unknown::Container),
        }
    }

    fn fresh(&self, container: &Container) -> Result<Option<Arc<PodFacts>>, Disputed> {
        self.lock().find(container, self.timing.fresh)
    }

    /// Says once when the kubelet is away, and once when it is there again.
    async fn fetch(&self) {
        let result = self.source.containers().await;
        let (now, mut last) = (Instant::now(), self.lock());
        match result {
            Ok(containers) => {
                let before = std::mem::replace(
                    &mut *last,
                    Last { list: Some((now, Arc::new(containers))), failure: None },
                );
                if before.failure.is_some() {
                    tracing::info!("the kubelet tells of its pods again");
                }
            }
            Err(error) => {
                if last.failure.is_none() {
                    tracing::warn!(%error, "pods can't be attested: the kubelet does not tell of them");
                }
                last.failure = Some((now, error));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        // Each change is a single one.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    fn find(&self, container: &Container, age: Duration) -> Result<Option<Arc<PodFacts>>, Disputed> {
        let Some((_, list)) = self.list.as_ref().filter(|(at, _)| at.elapsed() < age) else {
            return Ok(None);
        };
        list.find(container)
    }

    /// Of the last answer, good or bad.
    fn age(&self) -> Duration {
        let good = self.list.as_ref().map(|(at, _)| *at);
        let bad = self.failure.as_ref().map(|(at, _)| *at);
        good.max(bad).map_or(Duration::MAX, |at| at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        future::Future,
        pin::Pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::identity::attest::kubelet::parse;

    const ID: &str = "aa11bb22cc33dd44ee55ff6600778899aa11bb22cc33dd44ee55ff6600778899";

    fn container() -> Container {
        Container { id: ID.into(), pod_uid: Some("u-1".into()) }
    }

    fn list(uids: &[&str]) -> Result<Containers, Error> {
        let pod = |uid: &&str| {
            format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns-{uid}","uid":"{uid}"}},"status":{{"containerStatuses":[{{"name":"c","containerID":"containerd://{ID}"}}]}}}}"#
            )
        };
        let pods: Vec<_> = uids.iter().map(pod).collect();
        Ok(parse(format!(r#"{{"items":[{}]}}"#, pods.join(",")).as_bytes(), None).unwrap())
    }

    fn away() -> Result<Containers, Error> {
        Err(Error::Denied { status: 401 })
    }

    /// Gives its answers in turn, each after a while; the last one again and again.
    struct Script {
        answers: Mutex<VecDeque<fn() -> Result<Containers, Error>>>,
        asked: Arc<AtomicUsize>,
        takes: Duration,
    }

    impl Source for Script {
        fn containers(&self) -> Pin<Box<dyn Future<Output = Result<Containers, Error>> + Send + '_>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let mut answers = self.answers.lock().unwrap();
            let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0] };
            Box::pin(async move {
                sleep(self.takes).await;
                answer()
            })
        }
    }

    fn pods(answers: &[fn() -> Result<Containers, Error>], takes: Duration) -> (Pods, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let answers = Mutex::new(answers.iter().copied().collect());
        let mut pods = Pods::new(Box::new(Script { answers, asked: asked.clone(), takes }));
        pods.timing = Timing { fresh: LONG, recent: QUICK, waits: [QUICK * 2; 5], longest: LONG };
        (pods, asked)
    }

    const QUICK: Duration = Duration::from_millis(5);
    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(600);

    async fn finds(pods: &Arc<Pods>, callers: usize) -> Vec<Result<Arc<PodFacts>, Unknown>> {
        let one = |_| {
            let pods = pods.clone();
            tokio::spawn(async move { pods.find(&container()).await })
        };
        let callers: Vec<_> = (0..callers).map(one).collect();
        let mut found = Vec::new();
        for caller in callers {
            found.push(caller.await.unwrap());
        }
        found
    }

    #[tokio::test]
    async fn a_thousand_callers_make_one_request() {
        let (pods, asked) = pods(&[|| list(&["u-1"])], QUICK * 10);
        let pods = Arc::new(pods);
        let found = finds(&pods, 1000).await;
        assert!(found.iter().all(|pod| pod.as_ref().unwrap().namespace == "ns-u-1"));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // Later they come from the list that is there.
        pods.find(&container()).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn an_old_list_is_fetched_anew_for_labels_may_change() {
        let (mut pods, asked) = pods(&[|| list(&["u-1"])], QUICK);
        pods.timing.fresh = Duration::ZERO;
        pods.find(&container()).await.unwrap();
        sleep(QUICK).await;
        pods.find(&container()).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_pod_that_the_kubelet_does_not_know_yet_is_waited_for() {
        let (pods, asked) = pods(&[|| list(&[]), away, || list(&[]), || list(&["u-1"])], QUICK);
        assert_eq!(pods.find(&container()).await.unwrap().uid, "u-1");
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn the_search_ends() {
        let (unknown, asked) = pods(&[|| list(&[])], QUICK);
        let tries = unknown.timing.waits.len() + 1;
        assert!(matches!(unknown.find(&container()).await, Err(Unknown::Container)));
        assert_eq!(asked.load(Ordering::SeqCst), tries);

        let (mut silent, _) = pods(&[|| list(&["u-1"])], LONG);
        silent.timing.longest = QUICK;
        assert!(matches!(silent.find(&container()).await, Err(Unknown::Kubelet(Error::Slow))));
    }

    #[tokio::test]
    async fn the_kubelet_is_not_asked_for_each_of_many() {
        let (mut pods, asked) = pods(&[|| list(&[])], QUICK);
        pods.timing.recent = LONG;
        let found = finds(&Arc::new(pods), 100).await;
        assert!(found.iter().all(|pod| matches!(pod, Err(Unknown::Container))));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_kubelet_that_is_away_takes_nothing_from_those_it_has_named() {
        let (mut pods, _) = pods(&[|| list(&["u-1"]), away], QUICK);
        pods.timing.fresh = Duration::ZERO;
        pods.find(&container()).await.unwrap();
        sleep(QUICK).await;
        assert_eq!(pods.find(&container()).await.unwrap().uid, "u-1");
        let other = Container { id: ID.replace('a', "b"), pod_uid: None };
        assert!(matches!(pods.find(&other).await, Err(Unknown::Kubelet(Error::Denied { status: 401 }))));
        assert!(Arc::new(pods).trouble().unwrap().contains("401"));
    }

    #[tokio::test]
    async fn trouble_shows_and_goes() {
        let (mut pods, _) = pods(&[away, || list(&["u-1"])], QUICK);
        pods.timing.fresh = Duration::ZERO;
        let pods = Arc::new(pods);
        // Each look has the next one look better.
        assert_eq!(pods.trouble(), None);
        while pods.trouble().is_none() {
            sleep(QUICK).await;
        }
        assert!(pods.lock().failure.as_ref().unwrap().1.to_string().contains("nodes/pods"));
        while pods.trouble().is_some() {
            sleep(QUICK).await;
        }
        assert_eq!(pods.known(&container()).unwrap().uid, "u-1");
    }

    /// Whoever has been named already is not kept waiting by a kubelet that hangs.
    #[tokio::test]
    async fn what_is_known_is_told_without_waiting() {
        let (mut pods, asked) = pods(&[|| list(&["u-1"])], QUICK);
        pods.timing.fresh = Duration::ZERO;
        let pods = Arc::new(pods);
        assert!(pods.known(&container()).is_none());
        assert_eq!(pods.find(&container()).await.unwrap().uid, "u-1");
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(pods.known(&container()).unwrap().uid, "u-1");
        while asked.load(Ordering::SeqCst) == before {
            sleep(QUICK).await;
        }
    }

    #[tokio::test]
    async fn a_disputed_container_is_refused_at_once() {
        let (pods, asked) = pods(&[|| list(&["u-1", "u-2"])], QUICK);
        assert!(matches!(pods.find(&container()).await, Err(Unknown::Disputed(_))));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
