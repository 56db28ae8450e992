//! The task that owns the speaker: wait, feed, act on what it decided.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use isthmus_bgp::{
    ConnectionId, Event, Families, PeerId, Refused, Speaker,
    fsm::State,
    wire::{Disposition, Notification, code},
};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc, watch},
    time::{MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Config, Error, Handle, NeighborConfig, NeighborStatus, Place, Transport,
    connection::{Connection, Ends, Share, set_options},
    dial::{Target, dial},
    handle::Command,
    link_down::Links,
    listen::{Listeners, Neighbors, accept},
    metrics, next_hops, paths,
    paths_watched::Watched,
    publish::Publisher,
    socket::Passwords,
    to_core::{self, to_core},
};
use crate::{
    lifecycle::{Service, Stage},
    log_limit::Limits,
    routes::{Board, Statics},
};

/// Inputs that wait for the driver; whoever produces more of them waits too.
const INPUTS: usize = 64;
/// How long connections may take to say goodbye at shutdown.
const PARTING: Duration = Duration::from_millis(1500);
/// Inputs are taken for this long before timers and output have their turn.
const TURN: Duration = Duration::from_millis(20);
/// The metrics of neighbors are as old as this at most.
const METRICS_AGE: Duration = Duration::from_secs(1);
/// How often our interfaces are looked at again, beside when they are known to have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What happens outside.
pub(super) enum Input {
    /// A dial ended.
    Dialed { peer: PeerId, transport: Transport, result: Result<TcpStream, String> },
    /// A neighbor connected.
    Accepted { stream: TcpStream, place: Place, transport: Transport },
    /// Bytes came.
    Bytes { id: ConnectionId, bytes: Bytes, share: Share },
    /// A connection ended.
    Closed { id: ConnectionId, why: String },
}

/// Owner of the speaker.
pub(super) struct Driver {
    config: Config,
    speaker: Speaker,
    board: Board,
    connections: HashMap<ConnectionId, Connection>,
    commands: mpsc::Receiver<Command>,
    inputs: mpsc::Receiver<Input>,
    /// Cloned for each task that produces inputs.
    input_sender: mpsc::Sender<Input>,
    /// A writer can take more.
    room: Arc<Notify>,
    neighbors: watch::Sender<Arc<Neighbors>>,
    listeners: Listeners,
    /// When the metrics of neighbors are due; `None`: nothing happened since they were.
    metrics_due: Option<Instant>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    started: Instant,
    settled: bool,
    /// The tunnel peers' prefixes.
    statics: watch::Receiver<Statics>,
    links: Links,
    publisher: Publisher,
    faults: Limits,
    refusals: Limits,
    notices: Limits,
    unsendable: Limits,
    full: Limits,
    watched: Arc<Watched>,
    /// Ends the dial under way.
    dials: HashMap<PeerId, CancellationToken>,
    /// What the kernel forwarded when we came.
    forwarding: Families,
    service: Service,
    stages: watch::Receiver<Stage>,
}

impl Driver {
    pub(super) fn new(
        config: Config,
        board: Board,
        listeners: Listeners,
        (forwarding, service): (Families, Service),
        shutdown: CancellationToken,
        now: Instant,
    ) -> Result<(Self, Handle), Error> {
        let (command_sender, commands) = mpsc::channel(16);
        let (input_sender, inputs) = mpsc::channel(INPUTS);
        let neighbors = watch::Sender::new(Arc::new(Neighbors::new(&config)));
        let tasks = TaskTracker::new();
        let listening = listeners.addresses()?;
        for listener in listeners.iter() {
            tasks.spawn(accept(listener, neighbors.subscribe(), input_sender.clone(), shutdown.clone()));
        }
        tracing::info!(asn = config.asn, router_id = %config.router_id, ?listening, "BGP started");
        let mut driver = Self {
            speaker: Speaker::new(to_core(&config, forwarding), rand::random(), now),
            statics: board.statics(),
            links: Links::new(&board),
            publisher: Publisher::default(),
            config,
            board,
            connections: HashMap::new(),
            commands,
            inputs,
            input_sender,
            room: Arc::default(),
            neighbors,
            listeners,
            metrics_due: Some(now),
            tasks,
            shutdown,
            started: now,
            settled: false,
            faults: Limits::default(),
            refusals: Limits::default(),
            notices: Limits::default(),
            unsendable: Limits::default(),
            full: Limits::default(),
            watched: Arc::default(),
            dials: HashMap::new(),
            forwarding,
            stages: service.subscribe(),
            service,
        };
        driver.look_around();
        let watched = Arc::clone(&driver.watched);
        Ok((driver, Handle { commands: command_sender, listening: listening.into(), watched }))
    }

    pub(super) async fn run(mut self) {
        self.act();
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let deadline = self.deadline();
            let alarm = sleep_until(deadline.unwrap_or_else(Instant::now).into());
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                // Before everything else: seconds of routes may wait behind it.
                () = self.watched.told() => self.follow_paths(),
                Ok(()) = self.stages.changed() => self.follow_orders(),
                Some(command) = self.commands.recv() => self.command(command),
                // Before inputs: a neighbor that sends without end must not keep us from noticing that it may no longer.
                Ok(()) = self.statics.changed() => self.look_around(),
                () = self.links.changed() => self.links.end_sessions(&mut self.speaker, Instant::now()),
                _ = looks.tick() => self.look_around(),
                Some(input) = self.inputs.recv() => self.feed(input),
                () = self.room.notified() => {}
                () = alarm, if deadline.is_some() => {}
            }
            self.feed_waiting();
            let now = Instant::now();
            if self.speaker.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.speaker.handle_timeout(now);
            }
            self.act();
            self.update_metrics(now);
        }
        self.stop().await;
    }

    /// What has arrived already counts before any timer does; but nobody's flood may hold up the others' KEEPALIVEs.
    fn feed_waiting(&mut self) {
        let end = Instant::now() + TURN;
        while Instant::now() < end {
            let Ok(input) = self.inputs.try_recv() else { return };
            self.feed(input);
        }
    }

    /// An operator takes the node out of service, or back.
    fn follow_orders(&mut self) {
        match *self.stages.borrow_and_update() {
            Stage::Draining { until } => self.speaker.drain(until),
            Stage::Serving => self.speaker.resume(Instant::now()),
            // The one comes from us, the other with the end.
            Stage::Drained | Stage::Suspended => {}
        }
    }

    /// To look at every neighbor costs more than most of what happens, so it waits for company.
    fn update_metrics(&mut self, now: Instant) {
        match self.metrics_due {
            Some(due) if due <= now => {
                metrics::update(&self.config, &self.speaker.status());
                self.metrics_due = None;
            }
            Some(_) => {}
            None => self.metrics_due = Some(now + METRICS_AGE),
        }
    }

    /// The name that a neighbor's events are counted under, and held back by; outsiders cannot make more of them.
    fn kind(&self, neighbor: &Arc<str>) -> Arc<str> {
        self.config.counted_under(neighbor)
    }

    /// When something is due without anything happening.
    fn deadline(&self) -> Option<Instant> {
        let timer = self.speaker.poll_timeout().map(|(at, _)| at);
        let settles = !self.settled && !self.speaker.defers();
        let settling = settles.then(|| self.started + self.config.graceful_restart);
        timer.into_iter().chain(settling).chain(self.metrics_due).min()
    }

    /// Tells the speaker what lies around us. Without an answer of the kernel it goes on with what it knows.
    fn look_around(&mut self) {
        match next_hops::interface_addresses() {
            Ok(entries) => {
                let topology = next_hops::topology(&entries, &self.statics.borrow_and_update());
                let topology = topology.with_underlay(self.board.underlay().iter().copied());
                self.speaker.set_topology(topology);
                self.follow_interfaces();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list own addresses; next hops are judged by former ones")
            }
        }
    }

    /// An interface that was made anew has another index, and link-local neighbors on it are others to the kernel.
    fn follow_interfaces(&mut self) {
        if self.config.neighbors.iter().any(|neighbor| neighbor.place.interface.is_some()) {
            let wanted = to_core(&self.config, self.forwarding);
            if wanted != *self.speaker.config() {
                self.speaker.apply(wanted, Instant::now());
            }
        }
    }

    fn feed(&mut self, input: Input) {
        let now = Instant::now();
        match input {
            Input::Dialed { peer, transport, result: Ok(stream) } => {
                self.dials.remove(&peer);
                self.dialed(peer, stream, &transport, now);
            }
            Input::Dialed { peer, result: Err(why), .. } => self.dial_failed(peer, &why, now),
            Input::Accepted { stream, place, transport } => self.accepted(stream, &place, &transport, now),
            Input::Bytes { id, bytes, share: _share } => self.speaker.handle_bytes(id, &bytes, now),
            Input::Closed { id, why } => self.speaker.handle_closed(id, &why, now),
        }
        // The next input may be about what this one decided.
        self.handle_events();
    }

    fn follow_paths(&mut self) {
        for (neighbor, news) in self.watched.take() {
            if let Some(why) = news.failed {
                tracing::info!(neighbor, why, "BFD ends the BGP session");
                self.speaker.handle_path_down(&neighbor, &why, Instant::now());
            }
            if news.proved {
                self.path_proved(&neighbor);
            }
        }
    }

    /// What was dialed while the path was dead waits for TCP's next try, seconds perhaps: it gives way to a new one.
    fn path_proved(&mut self, neighbor: &str) {
        let peer = self.speaker.find_peer(neighbor);
        match peer.and_then(|peer| self.dials.get(&peer)) {
            Some(dial) => dial.cancel(),
            None => self.speaker.handle_path_up(neighbor, Instant::now()),
        }
    }

    fn dial_failed(&mut self, peer: PeerId, why: &str, now: Instant) {
        self.speaker.handle_dial_failed(peer, why, now);
        let given_up = self.dials.remove(&peer).is_some_and(|dial| dial.is_cancelled());
        let name = self.speaker.peer_name(peer).filter(|_| given_up).cloned();
        if let Some(name) = name {
            self.speaker.handle_path_up(&name, now);
        }
    }

    fn dialed(&mut self, peer: PeerId, stream: TcpStream, made: &Transport, now: Instant) {
        // Between dialing and connecting the configuration may have changed.
        let neighbor = self.neighbor(peer).filter(|neighbor| neighbor.transport == *made).cloned();
        let Some(neighbor) = neighbor else {
            return self.speaker.handle_dial_failed(peer, "its configuration changed meanwhile", now);
        };
        match self.prepare(&stream, &neighbor) {
            Ok(ends) => {
                if let Some(id) = self.speaker.handle_connected(peer, ends.own, now) {
                    self.attach(id, stream, ends);
                }
            }
            Err(error) => self.speaker.handle_dial_failed(peer, &format!("connection failed: {error}"), now),
        }
    }

    fn accepted(&mut self, stream: TcpStream, place: &Place, made: &Transport, now: Instant) {
        let scope = place.interface.as_deref().map(to_core::index);
        let neighbor = self.config.neighbor_at(place, scope).filter(|neighbor| neighbor.transport == *made);
        let Some(neighbor) = neighbor else { return };
        // A connection that broke before we looked at it concerns nobody.
        let Ok(ends) = self.prepare(&stream, &neighbor) else { return };
        match self.speaker.handle_accepted(neighbor.place.address, scope, ends.own, now) {
            Ok(id) => self.attach(id, stream, ends),
            Err(reason) => self.refused(&neighbor.peer.name, &reason),
        }
    }

    fn refused(&mut self, neighbor: &str, reason: &Refused) {
        metrics::refused("unwanted");
        let not_shown = match reason {
            Refused::Full(template) => self.full.pass(template, Instant::now()),
            Refused::Unknown | Refused::Unwanted(_) => None,
        };
        match not_shown {
            Some(not_shown) => tracing::warn!(neighbor, %reason, not_shown, "BGP connection refused"),
            None => tracing::debug!(neighbor, %reason, "BGP connection refused"),
        }
    }

    fn neighbor(&self, peer: PeerId) -> Option<&NeighborConfig> {
        let name = self.speaker.peer_name(peer)?;
        self.config.neighbors.iter().find(|neighbor| neighbor.peer.name == *name)
    }

    fn prepare(&mut self, stream: &TcpStream, neighbor: &NeighborConfig) -> std::io::Result<Ends> {
        self.look_around();
        set_options(stream, Duration::from_secs(neighbor.peer.hold_time.into()))?;
        let local = stream.local_addr()?.ip().to_canonical();
        Ok(Ends {
            neighbor: Arc::clone(&neighbor.peer.name),
            local,
            own: next_hops::own(local, neighbor.place.interface.as_deref()),
        })
    }

    fn attach(&mut self, id: ConnectionId, stream: TcpStream, ends: Ends) {
        let (inputs, room) = (self.input_sender.clone(), Arc::clone(&self.room));
        self.connections.insert(id, Connection::spawn(id, stream, ends, inputs, room, &self.tasks));
    }

    fn command(&mut self, command: Command) {
        // Whoever asked may have gone; that is their choice.
        match command {
            Command::Errand(errand) => errand(&mut self.speaker),
            Command::Neighbors(answer) => drop(answer.send(self.status())),
            Command::Paths(prefixes, answer) => drop(answer.send(paths::answer(&self.speaker, prefixes))),
            Command::Apply(config, answer) => drop(answer.send(self.apply(*config))),
        }
    }

    fn status(&self) -> Vec<NeighborStatus> {
        let local = |id: ConnectionId| self.connections.get(&id).map(|connection| connection.ends.local);
        let now = Instant::now();
        let all = self.speaker.status().into_iter();
        all.map(|status| {
            let local = status.connection.and_then(local);
            let known = self.config.neighbors.iter().find(|neighbor| neighbor.peer.name == status.name);
            let by_template = || Some(&self.config.template_of(&status.name)?.settings);
            let neighbor = known.or_else(by_template);
            let warnings = neighbor.map(|neighbor| neighbor.warnings.clone()).unwrap_or_default();
            NeighborStatus { warnings, ..NeighborStatus::new(status, local, now) }
        })
        .collect()
    }

    fn apply(&mut self, config: Config) -> Result<Vec<String>, Error> {
        if config.listen != self.config.listen {
            return Err(Error::ListenChanged);
        }
        self.listeners.change_passwords(&passwords(&self.config), &passwords(&config))?;
        metrics::remove(&self.config, &config);
        let mut changes = self.speaker.apply(to_core(&config, self.forwarding), Instant::now());
        changes.extend(self.end_connections_made_otherwise(&config));
        if config.graceful_restart != self.config.graceful_restart {
            changes.push("graceful restart time changed".into());
        }
        self.neighbors.send_replace(Arc::new(Neighbors::new(&config)));
        self.config = config;
        // The tunnel was reloaded before us.
        self.look_around();
        Ok(changes)
    }

    /// A connection lives by what it was made with: where that changed it ends, and the next one is made anew.
    fn end_connections_made_otherwise(&mut self, new: &Config) -> Vec<String> {
        let old: HashMap<_, _> =
            self.config.neighbors.iter().map(|neighbor| (&neighbor.peer.name, neighbor)).collect();
        let differs = |new: &&NeighborConfig| {
            old.get(&new.peer.name)
                .is_some_and(|old| old.transport != new.transport && old.place == new.place)
        };
        let mut names: Vec<_> =
            new.neighbors.iter().filter(differs).map(|new| Arc::clone(&new.peer.name)).collect();
        names.extend(self.came_otherwise(new));
        for name in &names {
            self.end_connections(name, "its connection is made in another way now");
        }
        names.iter().map(|name| format!("neighbor {name}: connection made anew")).collect()
    }

    /// Connected neighbors whose template makes connections in another way now.
    fn came_otherwise(&self, new: &Config) -> BTreeSet<Arc<str>> {
        let connected = self.connections.values().map(|connection| &connection.ends.neighbor);
        let differs = |name: &&Arc<str>| {
            let both = self.config.template_of(name).zip(new.template_of(name));
            both.is_some_and(|(old, new)| old.settings.transport != new.settings.transport)
        };
        connected.filter(differs).cloned().collect()
    }

    /// Tells the neighbor that its configuration changed (RFC 4486), and closes.
    fn end_connections(&mut self, name: &str, why: &str) {
        let ids = self.connections.iter().filter(|(_, connection)| *connection.ends.neighbor == *name);
        for id in ids.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(connection) = self.connections.remove(&id) {
                let mut last_words = Vec::new();
                let notification = Notification::new(code::CEASE, code::cease::CONFIGURATION);
                notification.encode(&mut last_words).expect("a NOTIFICATION without data fits");
                connection.close(last_words);
            }
            self.speaker.handle_closed(id, why, Instant::now());
        }
    }

    /// Carries out everything that the speaker has decided.
    fn act(&mut self) {
        self.handle_events();
        self.transmit();
        self.publish();
        // Sending may have found something unsendable.
        self.handle_events();
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.speaker.poll_event() {
            match event {
                Event::Dial { peer, .. } => self.dial(peer),
                Event::Close { connection, last_words } => {
                    if let Some(connection) = self.connections.remove(&connection) {
                        connection.close(last_words);
                    }
                }
                Event::StateChanged { peer, from, to, reason } => {
                    self.state_changed(&peer, from, to, &reason)
                }
                Event::Notified { peer, sent, notification } => {
                    metrics::notified(&self.kind(&peer), sent, &notification);
                    if let Some(not_shown) = self.notices.pass(&self.kind(&peer), Instant::now()) {
                        tracing::info!(neighbor = %peer, sent, %notification, not_shown, "NOTIFICATION");
                    }
                }
                Event::UpdateFault { peer, fault } => self.fault(peer, fault.disposition, &fault.to_string()),
                Event::NextHopRefused { peer, prefix, next_hop, why } => {
                    if let Some(not_shown) = self.refusals.pass(&self.kind(&peer), Instant::now()) {
                        let (neighbor, rule) = (peer, why);
                        tracing::warn!(%neighbor, %prefix, %next_hop, %rule, not_shown, "route refused");
                    }
                }
                Event::ExportLimit { peer, family, limit } => {
                    let neighbor = peer;
                    tracing::warn!(%neighbor, %family, limit, "this neighbor is sent no more prefixes");
                }
                Event::StaleGone { peer, family, paths } => {
                    tracing::info!(neighbor = %peer, %family, paths, "routes of an earlier session are gone");
                }
                Event::RestartOver => tracing::info!("BGP restart is over"),
                Event::Drained => {
                    tracing::info!("drained: every BGP session has ended");
                    self.service.drained();
                    // Nobody will announce an earlier run's routes again.
                    self.settle("drained");
                }
                Event::TooManyPaths { peer, prefix } => {
                    if let Some(not_shown) = self.refusals.pass(&self.kind(&peer), Instant::now()) {
                        tracing::warn!(neighbor = %peer, %prefix, not_shown, "too many paths to one prefix");
                    }
                }
                Event::Unsendable { peer, error } => {
                    if let Some(not_shown) = self.unsendable.pass(&self.kind(&peer), Instant::now()) {
                        tracing::warn!(neighbor = %peer, error, not_shown, "a route cannot be announced to this neighbor");
                    }
                }
            }
        }
    }

    fn dial(&mut self, peer: PeerId) {
        let Some(target) = self.neighbor(peer).map(Target::new) else { return };
        let (inputs, given_up) = (self.input_sender.clone(), self.shutdown.child_token());
        self.dials.insert(peer, given_up.clone());
        self.tasks.spawn(async move {
            let result = given_up.run_until_cancelled(dial(&target)).await;
            let result = result.unwrap_or_else(|| Err("given up for a new try: the path is back".into()));
            // The driver is gone only at shutdown.
            let _ = inputs.send(Input::Dialed { peer, transport: target.transport, result }).await;
        });
    }

    fn state_changed(&self, neighbor: &str, from: State, to: State, reason: &str) {
        if from == State::Established || to == State::Established || to == State::Idle {
            tracing::info!(neighbor, %from, %to, reason, "BGP session");
        } else {
            tracing::debug!(neighbor, %from, %to, reason, "BGP session");
        }
        if to == State::Established {
            self.warn_unannounced(neighbor);
        }
    }

    fn warn_unannounced(&self, neighbor: &str) {
        let status = self.speaker.status().into_iter().find(|status| *status.name == *neighbor);
        let Some(status) = status else { return };
        let Some(connection) = status.connection.and_then(|id| self.connections.get(&id)) else { return };
        for family in status.families.iter().filter(|family| connection.ends.own.of(*family).is_none()) {
            let reason = next_hops::missing(family, connection.ends.local);
            tracing::warn!(neighbor, reason, "address family left out");
        }
    }

    fn fault(&mut self, peer: Arc<str>, disposition: Disposition, what: &str) {
        let Some(not_shown) = self.faults.pass(&self.kind(&peer), Instant::now()) else { return };
        let action = match disposition {
            Disposition::DiscardAttribute => "the attribute was ignored",
            Disposition::TreatAsWithdraw => "its prefixes were withdrawn",
        };
        tracing::warn!(neighbor = %peer, fault = what, action, not_shown, "faulty UPDATE");
    }

    /// Gives each connection that has room what waits for it.
    fn transmit(&mut self) {
        for id in self.speaker.pending_connections() {
            let Some(connection) = self.connections.get(&id) else { continue };
            while let Ok(place) = connection.writer.try_reserve() {
                let mut buffer = Vec::new();
                if !self.speaker.poll_transmit(id, &mut buffer) {
                    break;
                }
                place.send(buffer);
            }
        }
    }

    fn publish(&mut self) {
        let changed = self.speaker.take_changed();
        if !changed.is_empty() {
            self.board.update_bgp(self.publisher.changes(&self.speaker, changed));
        }
        // While the speaker keeps routes back, those of an earlier run have not been announced again.
        if !self.speaker.defers() {
            if self.speaker.synchronized() {
                self.settle("every neighbor has told all");
            } else if self.started.elapsed() >= self.config.graceful_restart {
                self.settle("the time for it is over");
            }
        }
    }

    /// What is not on the board now is really gone.
    fn settle(&mut self, why: &str) {
        if !std::mem::replace(&mut self.settled, true) {
            self.board.set_settled();
            tracing::info!(why, "BGP routes are complete");
        }
    }

    async fn stop(mut self) {
        let (why, now) = ("isthmusd is stopping", Instant::now());
        match self.service.stage() {
            Stage::Suspended => self.speaker.suspend(why, now),
            Stage::Serving | Stage::Draining { .. } | Stage::Drained => self.speaker.shut_down(why, now),
        }
        self.handle_events();
        self.connections.clear();
        self.tasks.close();
        // Readers that wait for a place in the channel find it closed.
        drop(self.inputs);
        if timeout(PARTING, self.tasks.wait()).await.is_err() {
            tracing::debug!("a BGP neighbor did not take our goodbye in time");
        }
        tracing::info!("BGP stopped");
    }
}

pub(super) fn passwords(config: &Config) -> Passwords {
    let own = config.neighbors.iter().map(|one| (one.place.address.into(), &one.transport));
    let of_templates = config.templates.iter().map(|one| (one.template.prefix, &one.settings.transport));
    let all = own.chain(of_templates);
    all.filter_map(|(addresses, transport)| Some((addresses, transport.password.clone()?))).collect()
}
