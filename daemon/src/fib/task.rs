//! The task that owns the kernel's view, the wanted routes and their states.
//!
//! It answers to six things: the board changed (only those prefixes are decided), a link lost its carrier (only what lies behind it,
//! and at once), somebody removed routes of ours (only these, once he has stopped: who flushes a table looks for what came back),
//! somebody changed the kernel otherwise (everything is read and decided again), the clock (the same, in case an event was lost), and
//! a new configuration.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use ipnet::IpNet;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tracing::{info, warn};

use super::{
    Adopted, Config, Error, Request, SocketError,
    lock::Lock,
    netlink::{Events, Heard, Netlink, Outcome},
    plan::{Kernel, Memory, Operation, Step},
    schedule::{Schedule, Work},
    state::States,
    view::{Loss, Pass, Prefixes, View},
};
use crate::{
    lifecycle::{CancellationToken, Pending, Service, Stage},
    routes::{Board, Changes, Watcher},
};

/// Prefixes whose operations are under way at the same time; links are looked at between two such chunks.
const CHUNK: usize = 2048;
/// Announcements heard between two chunks.
const EVENTS: usize = 1024;
/// Whoever announces routes says when all are there; only if nobody does, adopted ones go so much after their time.
const SLACK: Duration = Duration::from_secs(5);
/// Announcements that can wait in the socket while the kernel is read.
const BACKLOG: usize = 16 * 1024;
/// Removing our routes on shutdown may take this long.
const LEAVE_TIME: Duration = Duration::from_secs(20);

/// The FIB's state; [`Task::run`] consumes it.
pub(super) struct Task {
    board: Board,
    watcher: Watcher,
    view: View,
    /// Without it the kernel is left alone. With `install` off it is held only until nothing of ours is left there.
    lock: Option<Lock>,
    netlink: Netlink,
    events: Events,
    /// The sockets failed; the next pass opens new ones.
    broken: bool,
    /// The kernel has not been looked at yet.
    adopting: bool,
    /// Until when adopted routes may wait to be announced again.
    deadline: Instant,
    schedule: Schedule,
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
            deadline: now + config.stale_time + SLACK,
            watcher: board.subscribe(),
            schedule: Schedule::new(now),
            broken: false,
            adopting: true,
            view: View::new(config, states),
            board,
            lock,
            netlink,
            events,
        }
    }

    /// Reconciles until shutdown, then removes our routes, or leaves them where the daemon is to come back.
    pub(super) async fn run(
        mut self,
        applications: mpsc::Receiver<Request>,
        first: (Pending, watch::Sender<Option<Adopted>>),
        service: Service,
        shutdown: CancellationToken,
    ) {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = self.serve(applications, first) => {}
        }
        match service.stage() {
            Stage::Suspended => info!(
                "kernel routes stay for the next start; `isthmusctl drain` before a stop, or `ip route flush proto 73` and \
                 `ip -6 route flush proto 73` after it, take them away"
            ),
            Stage::Serving | Stage::Draining { .. } | Stage::Drained => self.leave().await,
        }
    }

    async fn serve(
        &mut self,
        mut applications: mpsc::Receiver<Request>,
        (pending, found): (Pending, watch::Sender<Option<Adopted>>),
    ) {
        self.take_board();
        self.reconcile().await;
        // Nobody may have asked.
        let _ = found.send(Some(self.view.adopted_families()));
        drop(pending);
        loop {
            let table = self.view.config.table;
            let (when, work) = self.schedule.next();
            self.view.plan_pass(when);
            tokio::select! {
                biased;
                heard = self.events.heard(table), if !self.broken => self.heard(heard).await,
                () = self.watcher.changed() => self.follow_board().await,
                () = tokio::time::sleep_until(when) => match work {
                    Work::Read => self.reconcile().await,
                    Work::Repair => self.repair().await,
                },
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
        if self.board.underlay() != self.view.underlay {
            prefixes.extend(self.view.known());
        }
        let pass = self.settle(prefixes).await;
        self.report_part(&pass);
    }

    /// Puts back what others removed, as far as they let us.
    async fn repair(&mut self) {
        let lost = self.take_lost();
        info!(routes = lost.len(), "somebody removed kernel routes of ours, putting them back");
        let pass = self.settle_unless_robbed(lost).await;
        self.report_part(&pass);
    }

    fn take_lost(&mut self) -> Prefixes {
        self.schedule.repaired();
        std::mem::take(&mut self.view.lost)
    }

    fn take_board(&mut self) -> Prefixes {
        match self.watcher.take() {
            Changes::All(routes) => {
                let mut prefixes: Prefixes = self.view.wanted.prefixes().collect();
                self.view.wanted.clear();
                for route in routes {
                    prefixes.insert(route.prefix);
                    self.view.note(route.prefix, Some(route.group));
                }
                prefixes
            }
            Changes::Some(changes) => {
                let mut prefixes = Prefixes::with_capacity(changes.len());
                for (prefix, route) in changes {
                    prefixes.insert(prefix);
                    self.view.note(prefix, route.map(|route| route.group));
                }
                prefixes
            }
        }
    }

    /// Prefixes that changed, and adopted ones whose time is over. Whether the board is settled is read before its changes are taken:
    /// the other way round, what BGP publishes in between would look like something that nobody announces any more.
    fn look_at_board(&mut self) -> Prefixes {
        let install = self.view.config.install;
        let over = self.board.settled() || Instant::now() >= self.deadline || !install;
        let mut prefixes = self.take_board();
        if !install {
            prefixes.clear();
        }
        if over {
            prefixes.extend(self.view.adopted.prefixes());
            self.view.adopted.clear();
        }
        prefixes
    }

    async fn heard(&mut self, outcome: io::Result<Heard>) {
        let mut pass = Pass::default();
        self.believe(outcome, &mut pass).await;
        if pass.changed + pass.refused > 0 {
            self.report(&pass);
        }
    }

    /// A link without carrier is left at once, and BGP told. What was removed is put back soon, and all else read from the kernel.
    async fn believe(&mut self, outcome: io::Result<Heard>, pass: &mut Pass) {
        let heard = outcome.unwrap_or_else(|error| {
            warn!(%error, "lost the kernel's route announcements; opening a new netlink socket");
            self.broken = true;
            Heard::default()
        });
        for link in heard.links {
            let (index, up, name) = (link.index, link.up, link.name.clone());
            if self.view.kernel.links.set(index, link.name, up) && !up {
                let prefixes = self.view.behind(index);
                info!(link = name, prefixes = prefixes.len(), "a link is down");
                self.settle_now(prefixes, pass).await;
            }
            self.board.set_down_links(self.view.kernel.links.down());
        }
        let losses = heard.removed.into_iter().map(|route| self.view.lose(route));
        let (robbed, puzzled) = losses.fold((false, false), |(robbed, puzzled), loss| {
            (robbed | (loss == Loss::Known), puzzled | (loss == Loss::Puzzling))
        });
        let now = Instant::now();
        if robbed {
            self.schedule.robbed(now);
        }
        if heard.changed || puzzled {
            self.schedule.disturbed(now);
        }
    }

    /// Reads the kernel again and decides about everything.
    async fn reconcile(&mut self) {
        let pass = match self.refresh().await {
            Ok(()) => {
                let mut prefixes = self.look_at_board();
                prefixes.extend(self.take_lost());
                prefixes.extend(self.view.known());
                self.settle_unless_robbed(prefixes).await
            }
            Err(error) => {
                warn!(%error, "cannot reconcile kernel routes now, trying again");
                self.broken = true;
                Pass::failed()
            }
        };
        self.report(&pass);
        if !self.view.config.install && pass.refused == 0 {
            self.lock = None;
        }
        self.schedule.finished(Instant::now(), pass.refused > 0);
        if !self.view.adopted.is_empty() {
            self.schedule.no_later_than(self.deadline);
        }
    }

    async fn refresh(&mut self) -> Result<(), SocketError> {
        let (began, interface) = (Instant::now(), self.view.config.interface.clone());
        self.view.kernel = self.read(interface.as_deref()).await?;
        self.schedule.read(began.elapsed(), Instant::now());
        // What happened meanwhile may be in what was read, or not. Heard now, it cannot be taken for something that happens later.
        self.catch_up(BACKLOG, &mut Pass::default()).await;
        self.board.set_down_links(self.view.kernel.links.down());
        if std::mem::take(&mut self.adopting) && self.lock.is_some() {
            let routes = self.view.adopt();
            if routes > 0 {
                info!(
                    routes,
                    not_announced = self.view.adopted.len(),
                    "adopted kernel routes of an earlier run"
                );
            }
        }
        Ok(())
    }

    async fn read(&mut self, interface: Option<&str>) -> Result<Kernel, SocketError> {
        if self.broken {
            (self.netlink, self.events) = Netlink::open()?;
            self.broken = false;
        }
        self.netlink.read(self.view.config.table, interface).await
    }

    /// Brings these prefixes to what is wanted, and meanwhile leaves links that lose their carrier.
    async fn settle(&mut self, prefixes: Prefixes) -> Pass {
        let mut prefixes = prefixes.into_iter();
        self.settle_while(&mut prefixes, |_| true).await
    }

    /// The same, but ends when others remove our routes meanwhile. The rest is lost too, and put back when they have stopped: they
    /// would only find more to remove.
    async fn settle_unless_robbed(&mut self, prefixes: Prefixes) -> Pass {
        let mut prefixes = prefixes.into_iter();
        let pass = self.settle_while(&mut prefixes, |view| view.lost.is_empty()).await;
        self.view.lost.extend(prefixes);
        pass
    }

    async fn settle_while(
        &mut self,
        prefixes: &mut impl ExactSizeIterator<Item = IpNet>,
        go_on: impl Fn(&View) -> bool,
    ) -> Pass {
        self.view.underlay = self.board.underlay();
        let mut pass = Pass::default();
        while prefixes.len() > 0 && go_on(&self.view) {
            let chunk = prefixes.take(CHUNK).collect();
            self.settle_now(chunk, &mut pass).await;
            self.catch_up(EVENTS, &mut pass).await;
        }
        pass
    }

    /// Hears what is announced already, up to so many announcements.
    async fn catch_up(&mut self, events: usize, pass: &mut Pass) {
        for _ in 0..events {
            if self.broken {
                return;
            }
            let Some(heard) = self.events.heard_already(self.view.config.table).await else { return };
            self.believe(heard, pass).await;
        }
    }

    async fn settle_now(&mut self, prefixes: Vec<IpNet>, pass: &mut Pass) {
        let steps = self.decide(prefixes, pass);
        self.carry_out(steps, pass).await;
    }

    /// What is to be done; where nothing is, that is recorded.
    fn decide(&mut self, prefixes: Vec<IpNet>, pass: &mut Pass) -> Vec<Step> {
        let memory = Memory::default();
        let mut steps = Vec::new();
        for prefix in prefixes {
            let mut step = self.view.decide(prefix, &memory);
            if self.lock.is_none() {
                step.operations.clear();
            }
            match step.operations.is_empty() {
                true => self.view.record(Outcome::nothing(step), pass),
                false => steps.push(step),
            }
        }
        steps
    }

    async fn carry_out(&mut self, steps: Vec<Step>, pass: &mut Pass) {
        for steps in chunks(steps) {
            match self.netlink.carry_out(self.view.config.table, steps).await {
                Ok(outcomes) => outcomes.into_iter().for_each(|outcome| self.view.record(outcome, pass)),
                // What the kernel has now is read from it soon, in the pass that a refusal brings about.
                Err(error) => {
                    warn!(%error, "reading the kernel's routes again");
                    pass.refused += 1;
                }
            }
        }
    }

    /// The same, of a pass over some prefixes.
    fn report_part(&mut self, pass: &Pass) {
        self.report(pass);
        if pass.refused > 0 {
            self.schedule.refused(Instant::now());
        }
    }

    /// Says what a pass did.
    fn report(&mut self, pass: &Pass) {
        let summary = self.view.publish(self.board.len());
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
        let moves = config.table != self.view.config.table;
        let claims = config.install && (moves || self.lock.is_none());
        let claimed = claims.then(|| Lock::take(config.table)).transpose()?;
        if moves {
            self.leave().await;
            self.view.adopted.clear();
        }
        if moves || claims {
            self.lock = claimed;
        }
        if config.install != self.view.config.install {
            self.view.wanted.clear();
            self.watcher = self.board.subscribe();
        }
        self.view.config = config;
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
        let steps: Vec<Step> = kernel.ours().map(|prefix| removal(&kernel, prefix)).collect();
        let routes: usize = steps.iter().map(|step| step.operations.len()).sum();
        let mut pass = Pass::default();
        self.carry_out(steps, &mut pass).await;
        info!(routes, refused = pass.refused, table = self.view.config.table, "removed our kernel routes");
    }
}

/// Takes out whatever of ours leads to a prefix.
fn removal(kernel: &Kernel, prefix: IpNet) -> Step {
    let ours = kernel.at(prefix).into_iter().filter(|route| route.is_ours());
    Step { prefix, operations: ours.map(Operation::Delete).collect(), state: None }
}

fn chunks(steps: Vec<Step>) -> impl Iterator<Item = Vec<Step>> {
    let mut steps = steps.into_iter().peekable();
    std::iter::from_fn(move || {
        steps.peek()?;
        Some(steps.by_ref().take(CHUNK).collect())
    })
}
