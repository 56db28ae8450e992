//! The thread: wait, take what has come, do what is due, tell.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use isthmus_bfd::{Packet, SessionId, Sessions};
use metrics::Counter;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        time::TimeSpec,
    },
};
use tokio::sync::oneshot;

use super::{
    Error, Event, Handle, Route, SessionConfig, SessionStatus,
    handle::{Command, Shared},
    inner,
    metrics::{SessionMetrics, discarded},
    notices::{Notice, Notices},
    priority,
    session::wall,
    sockets::{BUFFER_SIZE, Listeners, Outlet},
};

/// Sends one inner packet to a tunnel peer by name, at once and without waiting; false: there is no such peer.
pub type Carry = Box<dyn FnMut(&str, &[u8]) -> bool + Send>;
/// Called on the BFD thread at the instant of a change, before anything else. It must not wait for anybody.
pub type Hook = Box<dyn FnMut(&Event) + Send>;

/// Sessions at most; each may have a socket.
const LIMIT: usize = 1024;
/// Packets of one socket before timers have their turn: a flood must not hold them up.
const TURN: usize = 256;
/// Goodbyes are repeated so often, after so long: one may be lost, and nobody asks for it again.
const GOODBYES: usize = 2;
const GOODBYE_PAUSE: Duration = Duration::from_millis(10);

/// Starts the thread. The receiver ends with it.
pub(super) fn spawn(
    carry: Carry,
    hook: Hook,
    notices: Notices,
) -> Result<(Handle, oneshot::Receiver<()>), Error> {
    let system = |what| move |reason: io::Error| Error::System { what, reason };
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|error| system("make an eventfd")(error.into()))?;
    let shared = Arc::new(Shared::new(wake));
    let (alive, ended) = oneshot::channel();
    let mut thread = Thread {
        shared: Arc::clone(&shared),
        sessions: Sessions::new(LIMIT, rand::random()),
        entries: BTreeMap::new(),
        listeners: Listeners::default(),
        carry,
        hook,
        notices,
        discarded: discarded(),
    };
    let body = move || {
        // Told also if the thread panics.
        let _ended = thread.shared.ended.clone().drop_guard();
        let _alive = alive;
        thread.run();
    };
    std::thread::Builder::new()
        .name("isthmus-bfd".into())
        .spawn(body)
        .map_err(system("start the BFD thread"))?;
    Ok((Handle { shared }, ended))
}

struct Thread {
    shared: Arc<Shared>,
    sessions: Sessions<Route>,
    entries: BTreeMap<SessionId, Entry>,
    listeners: Listeners,
    carry: Carry,
    hook: Hook,
    notices: Notices,
    discarded: Counter,
}

/// What belongs to a session beside its machine.
struct Entry {
    config: Arc<SessionConfig>,
    way: Way,
    metrics: SessionMetrics,
    sent: u64,
    received: u64,
    failures: u64,
}

/// How its packets leave.
enum Way {
    Udp(Outlet),
    Tunnel { peer: Arc<str>, local: IpAddr, remote: IpAddr, port: u16 },
}

impl Thread {
    fn run(&mut self) {
        self.notices.say(Notice::Started { priority: priority::raise() });
        while self.turn() {}
        self.say_goodbye();
    }

    /// Waits for something and does it; false: it was told to stop.
    fn turn(&mut self) -> bool {
        self.wait();
        // What has arrived counts before any timer does: being late must not look like a dead path.
        self.take_delivered();
        for at in 0..self.listeners.all().len() {
            self.receive(at);
        }
        self.sessions.handle_timeout(Instant::now());
        self.flush();
        self.shared.take_commands().into_iter().all(|command| self.command(command))
    }

    fn wait(&mut self) {
        let now = Instant::now();
        let left = self.sessions.poll_timeout().map(|at| at.saturating_duration_since(now));
        let sockets = self.listeners.all().iter().map(|listener| listener.fd());
        let readable = std::iter::once(self.shared.wake.as_fd()).chain(sockets);
        let mut descriptors: Vec<_> = readable.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Interrupted or refused, the loop looks at everything and comes back.
        let _ = ppoll(&mut descriptors, left.map(TimeSpec::from), None);
        let _ = self.shared.wake.read();
    }

    fn take_delivered(&mut self) {
        for packet in self.shared.take_delivered() {
            self.heard(&packet.payload, &packet.route, None);
        }
    }

    fn receive(&mut self, at: usize) {
        let mut buffer = [0; BUFFER_SIZE];
        for _ in 0..TURN {
            let Some(listener) = self.listeners.all().get(at) else { return };
            let Ok(Some(received)) = listener.receive(&mut buffer) else { return };
            if received.near {
                self.heard(&buffer[..received.length], &received.route, Some(received.from));
            } else {
                self.discarded.increment(1);
                self.notices.stranger(received.from, "it has crossed a router", Instant::now());
            }
        }
    }

    fn heard(&mut self, bytes: &[u8], route: &Route, from: Option<std::net::SocketAddr>) {
        let now = Instant::now();
        let taken = match route {
            Route::Multihop { .. } => self.sessions.handle_distant_packet(bytes, route, now),
            Route::Tunnel { .. } | Route::Direct { .. } => self.sessions.handle_packet(bytes, route, now),
        };
        match taken {
            Ok(id) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.received += 1;
                    entry.metrics.received.increment(1);
                }
                self.flush();
            }
            Err(why) => {
                self.discarded.increment(1);
                let from = from.unwrap_or_else(|| (route.remote(), inner::PORT).into());
                self.notices.stranger(from, why, now);
            }
        }
    }

    /// Tells others first, then the peers.
    fn flush(&mut self) {
        while let Some(event) = self.sessions.poll_event() {
            let Some(entry) = self.entries.get_mut(&event.session) else { continue };
            let told = Event { session: Arc::clone(&entry.config), change: event.change };
            (self.hook)(&told);
            entry.failures += u64::from(event.change.is_failure());
            let status = self.sessions.status_of(event.session);
            entry.metrics.changed(&event.change, status.and_then(|status| status.detection_time));
            // Nobody may be listening.
            let _ = self.shared.events.send(told.clone());
            self.notices.say(Notice::Changed(told));
        }
        while let Some((id, packet)) = self.sessions.poll_transmit() {
            self.send(id, &packet);
        }
    }

    fn send(&mut self, id: SessionId, packet: &Packet) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let bytes = packet.encode();
        let sent = match &entry.way {
            Way::Udp(outlet) => outlet.send(&bytes),
            Way::Tunnel { peer, local, remote, port } => {
                let packet = inner::build(*local, *remote, *port, &bytes);
                let taken = packet.is_some_and(|packet| (self.carry)(peer, &packet));
                if taken { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
            }
        };
        match sent {
            Ok(()) => {
                entry.sent += 1;
                entry.metrics.sent.increment(1);
            }
            // No route, no carrier: the detection time says what that means.
            Err(error) => self.notices.unsent(&entry.config.name, error, Instant::now()),
        }
    }

    /// False: stop. Whoever asked may have gone; that is their choice.
    fn command(&mut self, command: Command) -> bool {
        match command {
            Command::Apply(wanted, answer) => drop(answer.send(self.apply(wanted))),
            Command::Sessions(answer) => drop(answer.send(self.status())),
            Command::Stop => return false,
        }
        true
    }

    fn status(&self) -> Vec<SessionStatus> {
        let all = self.entries.iter().filter_map(|(id, entry)| {
            let status = self.sessions.status_of(*id)?;
            Some(SessionStatus {
                config: Arc::clone(&entry.config),
                status,
                since: wall(status.since),
                packets_sent: entry.sent,
                packets_received: entry.received,
                failures: entry.failures,
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| a.config.name.cmp(&b.config.name));
        all
    }

    /// Everything that can be refused comes before the first change.
    fn apply(&mut self, wanted: Vec<SessionConfig>) -> Result<Vec<String>, Error> {
        self.listeners.open_for(wanted.iter().map(|session| &session.route))?;
        let running: BTreeMap<Route, SessionId> =
            self.sessions.status().map(|(id, route, _)| (route.clone(), id)).collect();
        let (kept, new): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|session| running.contains_key(&session.route));
        if kept.len() + new.len() > LIMIT {
            let name = new.last().map(|session| session.name.to_string()).unwrap_or_default();
            return Err(Error::Session { name, reason: format!("there may be {LIMIT} sessions") });
        }
        let ways = new.iter().map(way).collect::<Result<Vec<_>, _>>()?;
        let mut words = self.remove_all_but(&kept);
        kept.into_iter().for_each(|session| self.alter(running[&session.route], session, &mut words));
        for (session, way) in new.into_iter().zip(ways) {
            words.push(format!("BFD session {} added", session.name));
            self.create(session, way);
        }
        self.shared.tunnels.store(Arc::new(self.entries.values().filter_map(ends).collect()));
        self.flush();
        Ok(words)
    }

    fn remove_all_but(&mut self, kept: &[SessionConfig]) -> Vec<String> {
        let gone = |entry: &Entry| !kept.iter().any(|session| session.route == entry.config.route);
        let gone: Vec<_> = self.entries.iter().filter(|(_, entry)| gone(entry)).map(|(id, _)| *id).collect();
        let words = gone.iter().filter_map(|id| {
            self.sessions.set_admin_down(*id, Instant::now());
            self.flush();
            self.sessions.remove(*id);
            self.entries.remove(id).map(|entry| format!("BFD session {} removed", entry.config.name))
        });
        words.collect()
    }

    fn alter(&mut self, id: SessionId, session: SessionConfig, words: &mut Vec<String>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if *entry.config == session {
            return;
        }
        words.push(format!("BFD session {} changed", session.name));
        if entry.config.name != session.name {
            entry.metrics = SessionMetrics::new(&session.name);
        }
        let timing = session.core();
        entry.config = Arc::new(session);
        self.sessions.alter(id, timing, Instant::now());
    }

    fn create(&mut self, session: SessionConfig, way: Way) {
        // The route is new and the number of sessions is within the limit, so that it is not refused.
        let created = self.sessions.create(session.route.clone(), session.core(), Instant::now());
        let Ok(id) = created else { return };
        let metrics = SessionMetrics::new(&session.name);
        metrics.detects(None);
        let config = Arc::new(session);
        self.entries.insert(id, Entry { config, way, metrics, sent: 0, received: 0, failures: 0 });
    }

    /// Every peer hears that an administrator, not the path, ends the session (RFC 5880 section 6.8.16).
    fn say_goodbye(&mut self) {
        let ids: Vec<_> = self.entries.keys().copied().collect();
        ids.iter().for_each(|id| self.sessions.set_admin_down(*id, Instant::now()));
        let goodbyes: Vec<_> = std::iter::from_fn(|| self.sessions.poll_transmit()).collect();
        self.flush();
        for time in 0..=GOODBYES {
            if time > 0 {
                std::thread::sleep(GOODBYE_PAUSE);
            }
            goodbyes.iter().for_each(|(id, packet)| self.send(*id, packet));
        }
        self.shared.tunnels.store(Arc::new(BTreeSet::new()));
    }
}

fn ends(entry: &Entry) -> Option<(Route, IpAddr)> {
    match entry.way {
        Way::Tunnel { local, .. } => Some((entry.config.route.clone(), local)),
        Way::Udp(_) => None,
    }
}

fn way(session: &SessionConfig) -> Result<Way, Error> {
    let refused = |reason: String| Error::Session { name: session.name.to_string(), reason };
    let Route::Tunnel { peer, remote } = &session.route else {
        let outlet = Outlet::open(&session.route, session.local, rand::random);
        return outlet.map(Way::Udp).map_err(|error| refused(format!("no port to send from: {error}")));
    };
    let local = session
        .local
        .ok_or_else(|| refused(format!("[tunnel] has no address of the family of {remote} to send from")))?;
    let port = 49_152 + rand::random::<u16>() % (u16::MAX - 49_152);
    Ok(Way::Tunnel { peer: Arc::clone(peer), local, remote: *remote, port })
}
