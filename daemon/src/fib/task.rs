//! The task that owns the kernel's view, the wanted routes and their states.
//!
//! It answers to four things: the board changed (only those prefixes are decided), somebody changed the kernel (everything is read
//! and decided again), the clock (the same, in case an event was lost), and a new configuration.

use std::{
    collections::HashSet,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use ipnet::IpNet;
use metrics::counter;
use tokio::{sync::mpsc, time::Instant};
use tracing::{debug, info, warn};

use super::{
    Config, Error, KernelState, Request, SocketError,
    lock::Lock,
    netlink::{Events, Netlink, Refusal},
    plan::{self, Kernel, Operation, Rules, Step, Wanted},
    state::States,
};
use crate::{
    lifecycle::{CancellationToken, Pending},
    routes::{Board, Changes, Route, Watcher},
};

/// Everything is read again at least this often, whatever events say.
const INTERVAL: Duration = Duration::from_secs(30);
/// Changes that others make are gathered for this long before the kernel is read again.
const GATHER: Duration = Duration::from_millis(50);
/// After a pass this many times its own duration belongs to others, so that a flood of events cannot occupy a core.
const REST: u32 = 9;
/// What the kernel refused is tried again first after this time, then after twice as long, up to [`INTERVAL`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Prefixes whose operations are under way at the same time.
const IN_FLIGHT: usize = 64;
/// Removing our routes on shutdown may take this long.
const LEAVE_TIME: Duration = Duration::from_secs(20);
/// Failures logged one by one in a pass; of more, only the count.
const LOGGED: usize = 10;

/// What came of one step.
struct Outcome {
    prefix: IpNet,
    done: Vec<Operation>,
    state: Option<KernelState>,
    refused: bool,
}

/// Counts of one pass, for the log.
#[derive(Default)]
struct Pass {
    changed: usize,
    refused: usize,
    logged: usize,
}

/// When to read everything again.
struct Schedule {
    next: Instant,
    /// No earlier than this, even for an event.
    rested: Instant,
    retry: Duration,
}

/// The FIB's state; [`Task::run`] consumes it.
pub(super) struct Task {
    config: Config,
    board: Board,
    watcher: Watcher,
    /// Without it the kernel is left alone. With `install` off it is held only until nothing of ours is left there.
    lock: Option<Lock>,
    netlink: Netlink,
    events: Events,
    /// The sockets failed; the next pass opens new ones.
    broken: bool,
    kernel: Kernel,
    wanted: Wanted,
    underlay: Vec<IpAddr>,
    /// The kernel has not been looked at yet.
    adopting: bool,
    /// Prefixes of routes that the daemon before us left, until they are announced again or [`Task::deadline`] passes.
    adopted: HashSet<IpNet>,
    deadline: Instant,
    schedule: Schedule,
    states: Arc<Mutex<States>>,
}

impl Task {
    pub(super) fn new(
        config: Config,
        board: Board,
        lock: Option<Lock>,
        (netlink, events): (Netlink, Events),
        states: Arc<Mutex<States>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            deadline: now + config.stale_time,
            watcher: board.subscribe(),
            schedule: Schedule { next: now, rested: now, retry: FIRST_RETRY },
            broken: false,
            kernel: Kernel::default(),
            wanted: Wanted::default(),
            underlay: Vec::new(),
            adopting: true,
            adopted: HashSet::new(),
            config,
            board,
            lock,
            netlink,
            events,
            states,
        }
    }

    /// Reconciles until shutdown, then removes our routes.
    pub(super) async fn run(
        mut self,
        applications: mpsc::Receiver<Request>,
        pending: Pending,
        shutdown: CancellationToken,
    ) {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = self.serve(applications, pending) => {}
        }
        self.leave().await;
    }

    async fn serve(&mut self, mut applications: mpsc::Receiver<Request>, pending: Pending) {
        self.take_board();
        self.reconcile().await;
        drop(pending);
        loop {
            tokio::select! {
                () = self.watcher.changed() => self.follow_board().await,
                heard = self.events.changed(self.config.table), if !self.broken => self.heard(heard),
                () = tokio::time::sleep_until(self.schedule.next) => self.reconcile().await,
                Some((config, done)) = applications.recv() => {
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(self.reconfigure(config).await);
                }
            }
        }
    }

    /// The board changed: decides about those prefixes, or about all if it is something that touches all.
    async fn follow_board(&mut self) {
        let mut prefixes = self.look_at_board();
        if self.board.underlay() != self.underlay {
            prefixes.extend(self.known());
        }
        let pass = self.settle(prefixes).await;
        self.report(&pass);
        if pass.refused > 0 {
            self.schedule.no_later_than(Instant::now() + self.schedule.retry);
        }
    }

    fn take_board(&mut self) -> HashSet<IpNet> {
        match self.watcher.take() {
            Changes::All(routes) => {
                let mut prefixes: HashSet<IpNet> = self.wanted.keys().collect();
                self.wanted.clear();
                prefixes.extend(routes.into_iter().map(|route| self.note(route.prefix, Some(route))));
                prefixes
            }
            Changes::Some(changes) => {
                changes.into_iter().map(|(prefix, route)| self.note(prefix, route)).collect()
            }
        }
    }

    fn note(&mut self, prefix: IpNet, route: Option<Arc<Route>>) -> IpNet {
        match route {
            Some(route) => {
                self.adopted.remove(&prefix);
                self.wanted.insert(prefix, route);
            }
            None => {
                self.wanted.remove(&prefix);
            }
        }
        prefix
    }

    /// Prefixes that changed, and adopted ones whose time is over. Whether the board is settled is read before its changes are taken:
    /// the other way round, what BGP publishes in between would look like something that nobody announces any more.
    fn look_at_board(&mut self) -> HashSet<IpNet> {
        let over = self.board.settled() || Instant::now() >= self.deadline || !self.config.install;
        let mut prefixes = self.take_board();
        if over {
            prefixes.extend(std::mem::take(&mut self.adopted));
        }
        prefixes
    }

    fn heard(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            warn!(%error, "lost the kernel's route announcements; opening a new netlink socket");
            self.broken = true;
        }
        self.schedule.no_later_than((Instant::now() + GATHER).max(self.schedule.rested));
    }

    /// Reads the kernel again and decides about everything.
    async fn reconcile(&mut self) {
        let began = Instant::now();
        let pass = match self.refresh().await {
            Ok(()) => {
                let mut prefixes = self.look_at_board();
                prefixes.extend(self.known());
                self.settle(prefixes).await
            }
            Err(error) => {
                warn!(%error, "cannot reconcile kernel routes now, trying again");
                self.broken = true;
                Pass { refused: 1, ..Pass::default() }
            }
        };
        self.report(&pass);
        if !self.config.install && pass.refused == 0 {
            self.lock = None;
        }
        self.schedule.finished(began, pass.refused > 0);
        if !self.adopted.is_empty() {
            self.schedule.no_later_than(self.deadline);
        }
    }

    async fn refresh(&mut self) -> Result<(), SocketError> {
        let interface = self.config.interface.clone();
        self.kernel = self.read(interface.as_deref()).await?;
        if std::mem::take(&mut self.adopting) && self.lock.is_some() {
            self.adopt();
        }
        Ok(())
    }

    /// What is there with our number at the first look was left by the daemon before us.
    fn adopt(&mut self) {
        let ours = self.kernel.ours().map(|route| route.prefix);
        self.adopted = ours.filter(|prefix| !self.wanted.contains_key(prefix)).collect();
        let routes = self.kernel.ours().count();
        if routes > 0 {
            info!(routes, not_announced = self.adopted.len(), "adopted kernel routes of an earlier run");
        }
    }

    async fn read(&mut self, interface: Option<&str>) -> Result<Kernel, SocketError> {
        if self.broken {
            (self.netlink, self.events) = Netlink::open()?;
            self.broken = false;
        }
        self.netlink.read(self.config.table, interface).await
    }

    /// Every prefix that anything is known about.
    fn known(&self) -> HashSet<IpNet> {
        let shown = self.states.lock().unwrap_or_else(PoisonError::into_inner).prefixes();
        let ours = self.kernel.ours().map(|route| route.prefix);
        self.wanted.keys().chain(ours).chain(shown).collect()
    }

    /// Brings these prefixes to what is wanted.
    async fn settle(&mut self, prefixes: HashSet<IpNet>) -> Pass {
        self.underlay = self.board.underlay();
        let mut pass = Pass::default();
        let mut steps = Vec::new();
        for prefix in prefixes {
            let step = self.decide(prefix);
            if step.operations.is_empty() {
                let Step { prefix, state, .. } = step;
                self.record(Outcome { prefix, done: vec![], state, refused: false }, &mut pass);
            } else {
                steps.push(step);
            }
        }
        let netlink = self.netlink.clone();
        let table = self.config.table;
        let mut outcomes =
            stream::iter(steps).map(|step| carry_out(&netlink, table, step)).buffer_unordered(IN_FLIGHT);
        while let Some(outcome) = outcomes.next().await {
            self.record(outcome, &mut pass);
        }
        pass
    }

    fn decide(&self, prefix: IpNet) -> Step {
        let rules = Rules { config: &self.config, board: &self.wanted, underlay: &self.underlay };
        let mut step = plan::decide(prefix, self.adopted.contains(&prefix), &self.kernel, rules);
        if self.lock.is_none() {
            step.operations.clear();
        }
        step
    }

    fn record(&mut self, outcome: Outcome, pass: &mut Pass) {
        let Outcome { prefix, done, state, refused } = outcome;
        pass.changed += done.len();
        pass.refused += usize::from(refused);
        for operation in done {
            debug!(%prefix, operation = operation.label(), "kernel route changed");
            self.kernel.apply(operation);
        }
        let failure = match &state {
            Some(KernelState::Failed(why)) => Some(Arc::clone(why)),
            _ => None,
        };
        let news = self.states.lock().unwrap_or_else(PoisonError::into_inner).set(prefix, state);
        match failure {
            Some(reason) if news && pass.logged < LOGGED => {
                pass.logged += 1;
                warn!(%prefix, %reason, "kernel route not installed");
            }
            _ => {}
        }
    }

    /// Says what a pass did.
    fn report(&self, pass: &Pass) {
        let summary = {
            let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
            states.publish();
            states.summary()
        };
        if pass.changed > 0 || pass.refused > 0 {
            info!(
                changed = pass.changed,
                refused = pass.refused,
                installed = summary.installed,
                failed = summary.failed,
                stale = summary.stale,
                "kernel routes reconciled"
            );
        }
    }

    /// A change of the table moves our routes; any other change is found by comparing.
    async fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        let moves = config.table != self.config.table;
        let claims = config.install && (moves || self.lock.is_none());
        let claimed = claims.then(|| Lock::take(config.table)).transpose()?;
        if moves {
            self.leave().await;
            self.adopted.clear();
        }
        if moves || claims {
            self.lock = claimed;
        }
        self.config = config;
        self.reconcile().await;
        Ok(())
    }

    /// What is in the table without our lock is not ours to remove.
    async fn leave(&mut self) {
        if self.lock.is_none() {
            return;
        }
        if tokio::time::timeout(LEAVE_TIME, self.clear()).await.is_err() {
            warn!(
                seconds = LEAVE_TIME.as_secs(),
                "removing our kernel routes takes too long; `ip route flush proto 73` removes them"
            );
        }
    }

    /// Removes every route of ours from the table.
    async fn clear(&mut self) {
        let kernel = match self.read(None).await {
            Ok(kernel) => kernel,
            Err(error) => {
                return warn!(%error, "cannot remove our kernel routes; `ip route flush proto 73` removes them");
            }
        };
        let steps: Vec<Step> = kernel
            .ours()
            .map(|route| Step {
                prefix: route.prefix,
                operations: vec![Operation::Delete(route.clone())],
                state: None,
            })
            .collect();
        let routes = steps.len();
        let mut pass = Pass::default();
        let netlink = self.netlink.clone();
        let table = self.config.table;
        let mut outcomes =
            stream::iter(steps).map(|step| carry_out(&netlink, table, step)).buffer_unordered(IN_FLIGHT);
        while let Some(outcome) = outcomes.next().await {
            self.record(outcome, &mut pass);
        }
        info!(routes, refused = pass.refused, table, "removed our kernel routes");
    }
}

impl Schedule {
    /// A pass over everything ended.
    fn finished(&mut self, began: Instant, refused: bool) {
        let now = Instant::now();
        self.next = now + if refused { self.retry } else { INTERVAL };
        self.retry = if refused { (self.retry * 2).min(INTERVAL) } else { FIRST_RETRY };
        self.rested = now + ((now - began) * REST).min(INTERVAL);
    }

    fn no_later_than(&mut self, when: Instant) {
        self.next = self.next.min(when);
    }
}

async fn carry_out(netlink: &Netlink, table: u32, step: Step) -> Outcome {
    let mut outcome = Outcome { prefix: step.prefix, done: Vec::new(), state: step.state, refused: false };
    for operation in step.operations {
        match netlink.execute(table, &operation).await {
            Ok(()) => {
                count(&operation, "ok");
                outcome.done.push(operation);
            }
            Err(refusal) => {
                count(&operation, "refused");
                outcome.state = Some(KernelState::Failed(describe(&operation, &refusal).into()));
                outcome.refused = true;
                break;
            }
        }
    }
    outcome
}

fn describe(operation: &Operation, refusal: &Refusal) -> String {
    match operation {
        Operation::Add(_) | Operation::Replace { .. } => refusal.explain(),
        Operation::Delete(_) => format!("cannot be removed: {}", refusal.explain()),
    }
}

fn count(operation: &Operation, result: &'static str) {
    counter!("isthmus_fib_operations_total", "op" => operation.label(), "result" => result).increment(1);
}
