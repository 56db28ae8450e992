//! The task that owns the speaker: wait, feed, act on what it decided.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use isthmus_bgp::{ConnectionId, Event, PeerId, Speaker, fsm::State, rib::NextHops, wire::Disposition};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, watch},
    time::{MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Config, Error, Handle, NeighborStatus, Policy,
    connection::{Connection, set_options},
    dial::dial,
    handle::Command,
    listen::{Neighbors, accept},
    metrics, next_hops, publish,
};
use crate::log_limit::Limits;
use crate::routes::{Board, Statics};

/// Inputs that wait for the driver; whoever produces more of them waits too.
const INPUTS: usize = 64;
/// How long connections may take to say goodbye at shutdown.
const PARTING: Duration = Duration::from_millis(1500);
/// How often our interfaces are looked at again, beside when they are known to have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What happens outside.
pub(super) enum Input {
    /// A dial ended.
    Dialed { peer: PeerId, result: Result<TcpStream, String> },
    /// A configured neighbor connected.
    Accepted { stream: TcpStream, remote: IpAddr },
    /// Bytes came.
    Bytes { id: ConnectionId, bytes: Bytes },
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
    neighbors: watch::Sender<Neighbors>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    started: Instant,
    settled: bool,
    /// The tunnel peers' prefixes.
    statics: watch::Receiver<Statics>,
    faults: Limits,
    refusals: Limits,
    notices: Limits,
    unsendable: Limits,
}

impl Driver {
    pub(super) fn new(
        config: Config,
        board: Board,
        listeners: Vec<TcpListener>,
        shutdown: CancellationToken,
        now: Instant,
    ) -> Result<(Self, Handle), Error> {
        let (command_sender, commands) = mpsc::channel(16);
        let (input_sender, inputs) = mpsc::channel(INPUTS);
        let neighbors = watch::Sender::new(addresses(&config));
        let tasks = TaskTracker::new();
        let mut listening = Vec::new();
        for (listener, address) in listeners.into_iter().zip(&config.listen) {
            listening.push(listener.local_addr().map_err(|error| Error::listen(*address, error))?);
            tasks.spawn(accept(listener, neighbors.subscribe(), input_sender.clone(), shutdown.clone()));
        }
        tracing::info!(asn = config.asn, router_id = %config.router_id, ?listening, "BGP started");
        let mut driver = Self {
            speaker: Speaker::new(to_core(&config), rand::random(), now),
            statics: board.statics(),
            config,
            board,
            connections: HashMap::new(),
            commands,
            inputs,
            input_sender,
            room: Arc::default(),
            neighbors,
            tasks,
            shutdown,
            started: now,
            settled: false,
            faults: Limits::default(),
            refusals: Limits::default(),
            notices: Limits::default(),
            unsendable: Limits::default(),
        };
        driver.look_around();
        Ok((driver, Handle { commands: command_sender, listening: listening.into() }))
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
                Some(command) = self.commands.recv() => self.command(command),
                // Before inputs: a neighbor that sends without end must not keep us from noticing that it may no longer.
                Ok(()) = self.statics.changed() => self.look_around(),
                _ = looks.tick() => self.look_around(),
                Some(input) = self.inputs.recv() => self.feed(input),
                () = self.room.notified() => {}
                () = alarm, if deadline.is_some() => {}
            }
            // What has arrived already counts before any timer does.
            for _ in 0..INPUTS {
                let Ok(input) = self.inputs.try_recv() else { break };
                self.feed(input);
            }
            let now = Instant::now();
            if self.speaker.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.speaker.handle_timeout(now);
            }
            self.act();
        }
        self.stop().await;
    }

    /// When something is due without anything happening.
    fn deadline(&self) -> Option<Instant> {
        let timer = self.speaker.poll_timeout().map(|(at, _)| at);
        let settling = (!self.settled).then(|| self.started + self.config.graceful_restart);
        timer.into_iter().chain(settling).min()
    }

    /// Tells the speaker what lies around us. Without an answer of the kernel it goes on with what it knows.
    fn look_around(&mut self) {
        match next_hops::interface_addresses() {
            Ok(entries) => {
                let topology = next_hops::topology(&entries, &self.statics.borrow_and_update());
                self.speaker.set_topology(topology);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list own addresses; next hops are judged by former ones")
            }
        }
    }

    fn feed(&mut self, input: Input) {
        let now = Instant::now();
        match input {
            Input::Dialed { peer, result: Ok(stream) } => self.dialed(peer, stream, now),
            Input::Dialed { peer, result: Err(why) } => self.speaker.handle_dial_failed(peer, &why, now),
            Input::Accepted { stream, remote } => self.accepted(stream, remote, now),
            Input::Bytes { id, bytes } => self.speaker.handle_bytes(id, &bytes, now),
            Input::Closed { id, why } => self.speaker.handle_closed(id, &why, now),
        }
        // The next input may be about what this one decided.
        self.handle_events();
    }

    fn dialed(&mut self, peer: PeerId, stream: TcpStream, now: Instant) {
        let prepared =
            stream.peer_addr().and_then(|remote| self.prepare(&stream, remote.ip().to_canonical()));
        match prepared {
            Ok((local, own)) => {
                if let Some(id) = self.speaker.handle_connected(peer, own, now) {
                    self.attach(id, stream, (local, own));
                }
            }
            Err(error) => self.speaker.handle_dial_failed(peer, &format!("connection failed: {error}"), now),
        }
    }

    fn accepted(&mut self, stream: TcpStream, remote: IpAddr, now: Instant) {
        // A connection that broke before we looked at it concerns nobody.
        let Ok((local, own)) = self.prepare(&stream, remote) else { return };
        match self.speaker.handle_accepted(remote, None, own, now) {
            Ok(id) => self.attach(id, stream, (local, own)),
            Err(reason) => {
                tracing::debug!(%remote, %reason, "BGP connection refused");
                metrics::refused("unwanted");
            }
        }
    }

    fn prepare(&mut self, stream: &TcpStream, remote: IpAddr) -> std::io::Result<(IpAddr, NextHops)> {
        self.look_around();
        let neighbor = self.config.neighbors.iter().find(|neighbor| neighbor.address == remote);
        set_options(stream, neighbor.map_or(Duration::ZERO, |neighbor| neighbor.hold_time))?;
        let local = stream.local_addr()?.ip().to_canonical();
        Ok((local, next_hops::own(local)))
    }

    fn attach(&mut self, id: ConnectionId, stream: TcpStream, ends: (IpAddr, NextHops)) {
        let (inputs, room) = (self.input_sender.clone(), Arc::clone(&self.room));
        self.connections.insert(id, Connection::spawn(id, stream, ends, inputs, room, &self.tasks));
    }

    fn command(&mut self, command: Command) {
        // Whoever asked may have gone; that is their choice.
        match command {
            Command::Neighbors(answer) => drop(answer.send(self.status())),
            Command::Apply(config, answer) => drop(answer.send(self.apply(*config))),
        }
    }

    fn status(&self) -> Vec<NeighborStatus> {
        let local = |id: ConnectionId| self.connections.get(&id).map(|connection| connection.local);
        let now = Instant::now();
        let all = self.speaker.status().into_iter();
        all.map(|status| {
            let local = status.connection.and_then(local);
            NeighborStatus::new(status, local, now)
        })
        .collect()
    }

    fn apply(&mut self, config: Config) -> Result<Vec<String>, Error> {
        if config.listen != self.config.listen {
            return Err(Error::ListenChanged);
        }
        let kept: HashSet<_> = config.neighbors.iter().map(|neighbor| neighbor.name.as_str()).collect();
        for gone in self.config.neighbors.iter().filter(|neighbor| !kept.contains(neighbor.name.as_str())) {
            metrics::remove(&gone.name);
        }
        let mut changes = self.speaker.apply(to_core(&config), Instant::now());
        if config.graceful_restart != self.config.graceful_restart {
            changes.push("graceful restart time changed".into());
        }
        self.neighbors.send_replace(addresses(&config));
        self.config = config;
        // The tunnel was reloaded before us.
        self.look_around();
        Ok(changes)
    }

    /// Carries out everything that the speaker has decided.
    fn act(&mut self) {
        self.handle_events();
        self.transmit();
        self.publish();
        // Sending may have found something unsendable.
        self.handle_events();
        self.speaker.status().iter().for_each(metrics::update);
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.speaker.poll_event() {
            match event {
                Event::Dial { peer, address, port } => self.dial(peer, address, port),
                Event::Close { connection, last_words } => {
                    if let Some(connection) = self.connections.remove(&connection) {
                        connection.close(last_words);
                    }
                }
                Event::StateChanged { peer, from, to, reason } => {
                    self.state_changed(&peer, from, to, &reason)
                }
                Event::Notified { peer, sent, notification } => {
                    metrics::notified(&peer, sent, &notification);
                    if let Some(not_shown) = self.notices.pass(&peer, Instant::now()) {
                        tracing::info!(neighbor = %peer, sent, %notification, not_shown, "NOTIFICATION");
                    }
                }
                Event::UpdateFault { peer, fault } => self.fault(peer, fault.disposition, &fault.to_string()),
                Event::NextHopRefused { peer, prefix, next_hop, why } => {
                    if let Some(not_shown) = self.refusals.pass(&peer, Instant::now()) {
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
                Event::Drained => tracing::info!("BGP is drained"),
                Event::TooManyPaths { peer, prefix } => {
                    if let Some(not_shown) = self.refusals.pass(&peer, Instant::now()) {
                        tracing::warn!(neighbor = %peer, %prefix, not_shown, "too many paths to one prefix");
                    }
                }
                Event::Unsendable { peer, error } => {
                    if let Some(not_shown) = self.unsendable.pass(&peer, Instant::now()) {
                        tracing::warn!(neighbor = %peer, error, not_shown, "a route cannot be announced to this neighbor");
                    }
                }
            }
        }
    }

    fn dial(&self, peer: PeerId, address: IpAddr, port: u16) {
        let (inputs, shutdown) = (self.input_sender.clone(), self.shutdown.clone());
        self.tasks.spawn(async move {
            if let Some(result) = shutdown.run_until_cancelled(dial(address, port)).await {
                // The driver is gone only at shutdown.
                let _ = inputs.send(Input::Dialed { peer, result }).await;
            }
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
        for family in status.families.iter().filter(|family| connection.own.of(*family).is_none()) {
            let reason = next_hops::missing(family, connection.local);
            tracing::warn!(neighbor, reason, "address family left out");
        }
    }

    fn fault(&mut self, peer: Arc<str>, disposition: Disposition, what: &str) {
        let Some(not_shown) = self.faults.pass(&peer, Instant::now()) else { return };
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
            let of = |prefix| (prefix, publish::candidates(&self.speaker, &prefix));
            self.board.update_bgp(changed.into_iter().map(of).collect());
        }
        if !self.settled {
            let waited = self.started.elapsed() >= self.config.graceful_restart;
            if self.speaker.synchronized() || waited {
                self.settled = true;
                self.board.set_settled();
                tracing::info!(waited, "BGP routes are complete");
            }
        }
    }

    async fn stop(mut self) {
        self.speaker.shut_down("isthmusd is stopping", Instant::now());
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

fn addresses(config: &Config) -> Neighbors {
    Arc::new(config.neighbors.iter().map(|neighbor| neighbor.address).collect())
}

fn to_core(config: &Config) -> isthmus_bgp::Config {
    let peer = |neighbor: &super::NeighborConfig| isthmus_bgp::PeerConfig {
        port: neighbor.port,
        hold_time: u16::try_from(neighbor.hold_time.as_secs()).unwrap_or(u16::MAX),
        import: to_core_policy(neighbor.import),
        export: to_core_policy(neighbor.export),
        guards: isthmus_bgp::Guards { max_prefixes: neighbor.max_prefixes, ..Default::default() },
        ..isthmus_bgp::PeerConfig::new(neighbor.name.as_str(), neighbor.address, neighbor.asn)
    };
    isthmus_bgp::Config {
        announce: config.announce.clone(),
        peers: config.neighbors.iter().map(peer).collect(),
        ..isthmus_bgp::Config::new(config.asn, config.router_id)
    }
}

fn to_core_policy(policy: Policy) -> Arc<isthmus_bgp::Policy> {
    match policy {
        Policy::All => isthmus_bgp::Policy::all(),
        Policy::None => isthmus_bgp::Policy::none(),
    }
}
