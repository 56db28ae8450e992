//! One speaker whose peers the test plays, message by message, on virtual time.

use std::{collections::BTreeMap, time::Duration};

use super::{net::*, *};
use crate::{
    Families,
    wire::{
        AsPath, Attributes, Capability, Encoding, Frame, MessageType, Open, Peering, RestartFamily,
        RouteRefresh, Update, UpdateContext, encode_announcement, encode_end_of_rib, frame,
    },
};

pub(super) const V4: Family = Family::Ipv4Unicast;
pub(super) const V6: Family = Family::Ipv6Unicast;
pub(super) const OURS: u32 = 65_001;

pub(super) struct Stage {
    pub(super) speaker: Speaker,
    pub(super) now: Instant,
    lines: BTreeMap<usize, ConnectionId>,
}

/// What a played peer says of graceful restart: it keeps both families for a minute.
pub(super) fn graceful(restarting: bool, forwarding: Families, notification: bool) -> Capability {
    let family = |family: Family| RestartFamily {
        afi: family.afi(),
        safi: family.safi(),
        forwarding: forwarding.contains(family),
    };
    let families = Family::ALL.into_iter().map(family).collect();
    Capability::GracefulRestart { restarting, notification, time: 60, families }
}

/// The same of a peer that has forwarded everything all along.
pub(super) fn steady() -> Capability {
    graceful(false, Families::ALL, true)
}

pub(super) fn asn(n: usize) -> u32 {
    65_100 + u32::try_from(n).unwrap()
}

pub(super) fn net(prefix: &str) -> IpNet {
    prefix.parse().unwrap()
}

/// Peers that connect to us and do graceful restart.
pub(super) fn playing(peers: &[usize]) -> Config {
    let of = |n: &usize| PeerConfig { passive: true, restart: RestartMode::Full, ..peer(*n, asn(*n)) };
    config(0, OURS, &[ONE], peers.iter().map(of).collect())
}

impl Stage {
    pub(super) fn new(config: Config) -> Self {
        let now = Instant::now();
        Self { speaker: Speaker::new(config, 0, now), now, lines: BTreeMap::new() }
    }

    /// The peer connects and says that it can do this; returns our OPEN.
    pub(super) fn connect(&mut self, n: usize, capabilities: &[Capability]) -> Result<Open, Refused> {
        self.connect_from(n, v4(n).into(), None, capabilities)
    }

    pub(super) fn connect_from(
        &mut self,
        n: usize,
        address: IpAddr,
        scope: Option<u32>,
        capabilities: &[Capability],
    ) -> Result<Open, Refused> {
        self.accept(n, address, scope, own(0), capabilities)
    }

    /// The same on a connection where these are our addresses.
    pub(super) fn accept(
        &mut self,
        n: usize,
        address: IpAddr,
        scope: Option<u32>,
        own: NextHops,
        capabilities: &[Capability],
    ) -> Result<Open, Refused> {
        let id = self.speaker.handle_accepted(address, scope, own, self.now)?;
        self.lines.insert(n, id);
        let mut bytes = Vec::new();
        self.speaker.poll_transmit(id, &mut bytes);
        let ours = Open::decode(frame(&bytes).unwrap().expect("our OPEN is the first").body).unwrap();
        let mut theirs = Open::new(asn(n), 0, v4(n), Families::ALL);
        theirs.capabilities.extend_from_slice(capabilities);
        let mut bytes = Vec::new();
        theirs.encode(&mut bytes).unwrap();
        encode_keepalive(&mut bytes);
        self.send(n, &bytes);
        Ok(ours)
    }

    pub(super) fn send(&mut self, n: usize, bytes: &[u8]) {
        self.speaker.handle_bytes(self.lines[&n], bytes, self.now);
    }

    /// The prefix with the peer's AS, and these behind it, on its path.
    pub(super) fn announce(&mut self, n: usize, prefix: &str, behind: &[u32]) {
        let mut attributes = Attributes::originated(match net(prefix) {
            IpNet::V4(_) => v4(n).into(),
            IpNet::V6(_) => v6(n).into(),
        });
        attributes.as_path = AsPath::new([&[asn(n)], behind].concat());
        let mut bytes = Vec::new();
        let prefixes = [prefix.parse().unwrap()];
        encode_announcement(&attributes, &prefixes, &Encoding::FOUR_OCTET, &mut bytes).unwrap();
        self.send(n, &bytes);
    }

    pub(super) fn end_of_rib(&mut self, n: usize, family: Family) {
        let mut bytes = Vec::new();
        encode_end_of_rib(family, &mut bytes).unwrap();
        self.send(n, &bytes);
    }

    pub(super) fn notify(&mut self, n: usize, notification: &Notification) {
        let mut bytes = Vec::new();
        notification.encode(&mut bytes).unwrap();
        self.send(n, &bytes);
    }

    pub(super) fn refresh(&mut self, n: usize, subtype: u8) {
        let mut bytes = Vec::new();
        RouteRefresh::new(V4, subtype).encode(&mut bytes).unwrap();
        self.send(n, &bytes);
    }

    pub(super) fn close(&mut self, n: usize) {
        self.speaker.handle_closed(self.lines[&n], "connection reset", self.now);
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some((at, _)) = self.speaker.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.speaker.handle_timeout(self.now);
        }
        self.now = end;
    }

    pub(super) fn apply(&mut self, change: impl Fn(&mut Config)) -> Vec<String> {
        let mut config = self.speaker.config().clone();
        change(&mut config);
        self.speaker.apply(config, self.now)
    }

    /// Names of the peers that carry a prefix.
    pub(super) fn through(&self, prefix: &str) -> Vec<String> {
        let selected = self.speaker.paths(&net(prefix)).iter().filter(|path| path.verdict().selected());
        selected.filter_map(|path| Some(path.source().neighbor()?.name.to_string())).collect()
    }

    pub(super) fn status(&self, name: &str) -> PeerStatus {
        self.speaker.status().into_iter().find(|status| *status.name == *name).unwrap()
    }

    /// Prefixes of a peer: all, and the stale ones.
    pub(super) fn kept(&self, name: &str) -> (u32, u32) {
        let status = self.status(name);
        (status.prefixes_received, status.prefixes_stale)
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.speaker.poll_event()).collect()
    }

    /// Of each connection that we closed the NOTIFICATION, if there was one.
    pub(super) fn last_words(&mut self) -> Vec<Option<Notification>> {
        let words = |event| match event {
            Event::Close { last_words, .. } => Some(last_words),
            _ => None,
        };
        let notification = |message: &Frame<'_>| {
            (message.kind == MessageType::Notification).then(|| Notification::decode(message.body).unwrap())
        };
        let closed = self.events().into_iter().filter_map(words);
        closed.map(|bytes| messages(&bytes, notification).pop()).collect()
    }

    /// Messages that we sent.
    pub(super) fn heard<T>(&mut self, n: usize, read: impl Fn(&Frame<'_>) -> Option<T>) -> Vec<T> {
        let mut bytes = Vec::new();
        while self.speaker.poll_transmit(self.lines[&n], &mut bytes) {}
        messages(&bytes, read)
    }

    pub(super) fn updates(&mut self, n: usize) -> Vec<Update> {
        let context = UpdateContext {
            four_octet: true,
            peering: Peering::External { asn: OURS },
            families: Families::ALL,
            add_path: Families::NONE,
            extended_next_hop: false,
        };
        self.heard(n, |message| {
            (message.kind == MessageType::Update).then(|| Update::decode(message.body, &context).unwrap())
        })
    }

    /// Prefixes that we announced to a peer, and the families of which we said that that was all.
    pub(super) fn told(&mut self, n: usize) -> (Vec<String>, Families) {
        let updates = self.updates(n);
        let ends = updates.iter().filter_map(|update| update.end_of_rib).collect();
        let announced = updates.iter().flat_map(|update| &update.announced);
        (announced.flat_map(|a| &a.prefixes).map(|nlri| nlri.prefix.to_string()).collect(), ends)
    }
}

fn messages<T>(mut stream: &[u8], read: impl Fn(&Frame<'_>) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    while let Some(message) = frame(stream).unwrap() {
        found.extend(read(&message));
        stream = &stream[message.wire_length()..];
    }
    found
}
