mod batch;
mod carry;
mod endpoint;
mod hostile;
mod interop;
mod path;
mod timers;
mod world;

use std::sync::OnceLock;

use super::*;
use crate::x25519::StaticSecret;
use crate::{counters::Drop as Dropped, ecn::Ecn, packet};

const A: &str = "192.0.2.1:51820";
const B: &str = "198.51.100.2:51820";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// An IPv4 packet from 10.0.0.1 with `extra` bytes of payload, numbered to tell it from others.
fn inner(number: u8, extra: usize) -> Vec<u8> {
    let length = u16::try_from(20 + extra).unwrap().to_be_bytes();
    let mut packet =
        vec![0x45, 0, length[0], length[1], 0, number, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.resize(20 + extra, number);
    packet
}

/// Everybody's clock begins here.
static START: OnceLock<Instant> = OnceLock::new();

/// A packet that is already there.
struct Plain<'a>(&'a [u8]);

impl Plaintext for Plain<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&self, into: &mut [u8]) {
        into.copy_from_slice(self.0);
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
}

/// Without padding, if it is a sound packet.
fn trimmed(padded: &[u8]) -> Vec<u8> {
    packet::parse(padded).map_or_else(|_| padded.to_vec(), |packet| packet.bytes.to_vec())
}

/// One end of a tunnel.
struct End {
    peer: Peer,
    live: Arc<AtomicBool>,
    counters: Arc<Counters>,
    now: Now,
    /// The last call said that something is due earlier.
    earlier: bool,
    /// What the last tick asked for.
    deadline: Option<Instant>,
    /// What the last tick had to probe.
    probes: Vec<Vec<u8>>,
}

impl End {
    fn new(own: u8, other: u8, preshared_key: Option<[u8; 32]>) -> Self {
        let (live, counters) = (Arc::new(AtomicBool::new(false)), Arc::<Counters>::default());
        let settings = Settings {
            public_key: PublicKey::from(&StaticSecret::from([other; 32])),
            preshared_key,
            index: u32::from(own),
            mtu: 1420,
            keepalive: None,
        };
        let identity = Arc::new(Identity::new(StaticSecret::from([own; 32])));
        let peer = Peer::new(&identity, settings, Arc::clone(&live), Arc::clone(&counters), [own; 32]);
        let now = Now { instant: *START.get_or_init(Instant::now), unix: Duration::from_secs(1_800_000_000) };
        Self { peer, live, counters, now, earlier: false, deadline: None, probes: vec![] }
    }

    fn seal(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.earlier |= self.peer.seal(packets.iter().map(|packet| Plain(packet)), self.now, &mut out);
        datagrams(&out)
    }

    fn seal_news(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.earlier |= self.peer.seal_news(Plain(packet), self.now, &mut out);
        datagrams(&out)
    }

    /// (answers, inner packets)
    fn open(&mut self, from: &str, arrived: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (out, packets) = self.open_where(from, arrived, |_| false);
        (datagrams(&out), packets)
    }

    /// [`End::open`] on a node whose routes lead some addresses into the tunnel.
    fn open_where(
        &mut self,
        from: &str,
        arrived: &[Vec<u8>],
        captures: impl Fn(IpAddr) -> bool,
    ) -> (Outbox, Vec<Vec<u8>>) {
        let (mut out, mut inbox) = (Outbox::new(), Vec::new());
        let mut arrived = arrived.to_vec();
        let path = address(from).into();
        let batch = arrived.iter_mut().map(|bytes| Datagram { bytes, path, ecn: Ecn::NotEct });
        self.earlier |= self.peer.open(batch, captures, self.now, &mut out, &mut inbox);
        let packets = inbox.iter().map(|packet| trimmed(packet.bytes)).collect();
        (out, packets)
    }

    fn tick(&mut self) -> Vec<Vec<u8>> {
        let (mut out, mut probes) = (Outbox::new(), Outbox::new());
        self.deadline = self.peer.tick(self.now, &mut out, &mut probes);
        self.probes = datagrams(&probes);
        datagrams(&out)
    }

    /// When it wants to be called next.
    fn wait(&mut self) -> Option<Instant> {
        let mut out = Outbox::new();
        let next = self.peer.tick(self.now, &mut out, &mut Outbox::new());
        assert!(out.is_empty(), "something was due");
        next
    }

    /// An initiation, no matter whether it is time for one.
    fn force_initiation(&mut self) -> Vec<u8> {
        let mut out = Outbox::new();
        self.peer.lock(self.now).send_initiation(self.now, &mut out);
        datagrams(&out).remove(0)
    }

    fn drops(&self, reason: Dropped) -> u64 {
        self.counters.drops.get(reason)
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn datagrams(out: &Outbox) -> Vec<Vec<u8>> {
    out.iter().map(|(bytes, _, _)| bytes.to_vec()).collect()
}

/// A knows where B is; B knows nothing about A.
fn pair(preshared_key: Option<[u8; 32]>) -> (End, End) {
    let (a, b) = (End::new(1, 2, preshared_key), End::new(2, 1, preshared_key));
    a.peer.set_endpoint(address(B));
    (a, b)
}

/// Handshake started by A with one packet in its queue.
fn connected() -> (End, End) {
    let (mut a, mut b) = pair(None);
    let initiation = a.seal(&[inner(0, 0)]);
    let (response, _) = b.open(A, &initiation);
    let (confirmed, _) = a.open(B, &response);
    let (_, packets) = b.open(A, &confirmed);
    assert_eq!(packets, [inner(0, 0)]);
    (a, b)
}
