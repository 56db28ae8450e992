use std::hash::RandomState;

use proptest::prelude::*;

use super::*;
use crate::x25519::StaticSecret;
use crate::{
    packet,
    receive::{Demux, Receiver},
    table::{Member, Table},
};

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
        let now = Now { instant: Instant::now(), unix: Duration::from_secs(1_800_000_000) };
        Self { peer, live, counters, now }
    }

    fn seal(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.peer.seal(packets.iter().map(|packet| Plain(packet)), self.now, &mut out);
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
        self.peer.open(batch, captures, self.now, &mut out, &mut inbox);
        let packets = inbox.iter().map(|packet| trimmed(packet.bytes)).collect();
        (out, packets)
    }

    fn tick(&mut self) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.peer.tick(self.now, &mut out);
        datagrams(&out)
    }

    fn drops(&self, reason: Drop) -> u64 {
        self.counters.drops.get(reason)
    }
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

#[test]
fn packets_wait_for_the_handshake_and_arrive_in_order() {
    let (mut a, mut b) = pair(Some([9; 32]));
    let first: Vec<Vec<u8>> = (0..3).map(|n| inner(n, 10)).collect();
    let second: Vec<Vec<u8>> = (3..6).map(|n| inner(n, 10)).collect();
    let initiation = a.seal(&first);
    assert_eq!(initiation.len(), 1);
    assert!(a.seal(&second).is_empty(), "one initiation is enough");
    let (response, _) = b.open(A, &initiation);
    let (rest, _) = a.open(B, &response);
    let (_, packets) = b.open(A, &rest);
    assert_eq!(packets, [first, second].concat());
    assert_eq!(a.counters.sent_packets.load(Ordering::Relaxed), 6);
    assert_eq!(a.counters.sent_bytes.load(Ordering::Relaxed), 180);
    assert_eq!(b.counters.received_bytes.load(Ordering::Relaxed), 180);
    assert!(
        a.peer.status(a.now.instant).handshake.is_some() && b.peer.status(b.now.instant).handshake.is_some()
    );
    let (_, back) = a.open(B, &b.seal(&[inner(7, 100)]));
    assert_eq!(back, [inner(7, 100)]);
}

#[test]
fn wrong_preshared_key_is_a_failed_handshake() {
    let (mut a, mut b) = (End::new(1, 2, Some([1; 32])), End::new(2, 1, Some([2; 32])));
    a.peer.set_endpoint(address(B));
    let initiation = a.seal(&[inner(0, 0)]);
    let (response, _) = b.open(A, &initiation);
    let (nothing, _) = a.open(B, &response);
    assert!(nothing.is_empty());
    assert_eq!(a.drops(Drop::HandshakeFailed), 1);
    assert!(!a.live.load(Ordering::Relaxed));
}

#[test]
fn datagram_length_is_padded_but_not_beyond_the_mtu() {
    let (mut a, mut b) = connected();
    for (length, padded) in [(20, 32), (32, 32), (33, 48), (1408, 1408), (1409, 1420), (1420, 1420)] {
        let sealed = a.seal(&[inner(1, length - 20)]);
        assert_eq!(sealed[0].len(), padded + OVERHEAD);
        assert_eq!(b.open(A, &sealed).1, [inner(1, length - 20)]);
    }
}

#[test]
fn endpoint_follows_authentic_packets_only() {
    let (mut a, mut b) = connected();
    let endpoint = |end: &End| end.peer.status(end.now.instant).endpoint;
    assert_eq!(endpoint(&b), Some(address(A)));

    let mut forged = a.seal(&[inner(1, 0)]);
    *forged[0].last_mut().unwrap() ^= 1;
    b.open("203.0.113.66:1", &forged);
    assert_eq!(b.drops(Drop::DecryptFailed), 1);
    assert_eq!(endpoint(&b), Some(address(A)));

    let genuine = a.seal(&[inner(1, 0)]);
    b.open("203.0.113.7:7", &genuine);
    assert_eq!(endpoint(&b), Some(address("203.0.113.7:7")));
    b.open("203.0.113.66:1", &genuine);
    assert_eq!(b.drops(Drop::Replayed), 1);
    assert_eq!(endpoint(&b), Some(address("203.0.113.7:7")));
}

/// Inside a prefix that is routed into the tunnel, for [`captured`].
const INSIDE: &str = "10.50.0.9:51820";

fn captured(address: IpAddr) -> bool {
    address == IpAddr::from([10, 50, 0, 9])
}

#[test]
fn a_captured_source_is_heard_but_not_followed() {
    let (mut a, mut b) = connected();
    let sealed = a.seal(&[inner(1, 0), inner(2, 0)]);
    let (_, packets) = b.open_where(INSIDE, &sealed, captured);
    assert_eq!(packets, [inner(1, 0), inner(2, 0)]);
    assert_eq!(b.drops(Drop::EndpointRefused), 2);
    let status = b.peer.status(b.now.instant);
    assert_eq!((status.endpoint, status.state), (Some(address(A)), State::Up));
    assert!(
        status.reason.ends_with(
            "it calls from 10.50.0.9:51820, which our own routes lead into the tunnel: not followed"
        ),
        "{}",
        status.reason
    );

    // A new handshake from there is answered where the peer was.
    let mut restarted = End::new(1, 2, None);
    restarted.peer.set_endpoint(address(B));
    let initiation = restarted.seal(&[inner(0, 0)]);
    let (answers, _) = b.open_where(INSIDE, &initiation, captured);
    assert_eq!(answers.iter().map(|(_, to, _)| to.remote).collect::<Vec<_>>(), [address(A)]);

    // The endpoint itself is not asked about, and the complaint ends.
    let sealed = a.seal(&[inner(3, 0)]);
    b.open_where(A, &sealed, |_| panic!("asked about the endpoint"));
    assert!(b.peer.status(b.now.instant).reason.starts_with("heard"));
    assert!(!b.peer.status(b.now.instant).reason.contains("not followed"));
}

#[test]
fn a_first_call_from_a_captured_source_gets_no_answer_and_is_no_life() {
    let (mut a, mut b) = pair(None);
    let initiation = a.seal(&[inner(0, 0)]);
    let (answers, _) = b.open_where(INSIDE, &initiation, captured);
    assert!(answers.is_empty());
    let status = b.peer.status(b.now.instant);
    assert_eq!((status.endpoint, status.state), (None, State::Idle));
    assert!(status.reason.contains("it calls from 10.50.0.9:51820"), "{}", status.reason);
    assert_eq!(b.drops(Drop::EndpointRefused), 1);
}

#[test]
fn a_forged_packet_from_a_captured_source_changes_nothing() {
    let (mut a, mut b) = connected();
    let mut forged = a.seal(&[inner(1, 0)]);
    *forged[0].last_mut().unwrap() ^= 1;
    b.open_where(INSIDE, &forged, captured);
    assert_eq!((b.drops(Drop::DecryptFailed), b.drops(Drop::EndpointRefused)), (1, 0));
    assert!(!b.peer.status(b.now.instant).reason.contains("not followed"));
}

#[test]
fn cookie_reply_moves_no_endpoint_and_is_no_sign_of_life() {
    let (mut a, _) = pair(None);
    let initiation = a.seal(&[inner(0, 0)]);
    let limiter = RateLimiter::new(&PublicKey::from(&StaticSecret::from([2; 32])), 0);
    let mut reply = [0; 64];
    let source = address("203.0.113.66:1");
    let challenged = limiter.verify_packet(Some(source.ip()), &initiation[0], &mut reply);
    assert!(matches!(challenged, Err(TunnResult::WriteToNetwork(_))));
    a.open("203.0.113.66:1", &[reply.to_vec()]);
    assert_eq!(a.counters.drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
    assert_eq!(a.peer.status(a.now.instant).endpoint, Some(address(B)));
    assert!(!a.live.load(Ordering::Relaxed));
}

#[test]
fn silent_peer_goes_down_after_its_handshakes_stay_unanswered() {
    let (mut a, _) = connected();
    let mut out = Outbox::new();
    a.peer.lock().initiate(a.now.instant, &mut out);
    assert_eq!(out.len(), 1);
    a.now.instant += Duration::from_secs(14);
    a.tick();
    assert_eq!(a.peer.status(a.now.instant).state, State::Up);
    a.now.instant += Duration::from_secs(1);
    a.tick();
    let status = a.peer.status(a.now.instant);
    assert_eq!(status.state, State::Down);
    assert_eq!(status.reason, "no handshake reply for 15 s from 198.51.100.2:51820");
}

#[test]
fn keepalive_starts_the_tunnel_and_then_only_breaks_silence() {
    let (mut a, mut b) = pair(None);
    a.peer.set_keepalive(Some(Duration::from_secs(25)));
    let initiation = a.tick();
    assert_eq!(initiation.len(), 1);
    let (response, _) = b.open(A, &initiation);
    let (confirmed, _) = a.open(B, &response);
    b.open(A, &confirmed);
    assert!(b.live.load(Ordering::Relaxed));
    a.now.instant += Duration::from_secs(24);
    assert!(a.tick().is_empty());
    a.seal(&[inner(1, 0)]);
    a.now.instant += Duration::from_secs(24);
    assert!(a.tick().is_empty());
    a.now.instant += Duration::from_secs(1);
    let keepalive = a.tick();
    assert_eq!(keepalive.iter().map(Vec::len).collect::<Vec<_>>(), [OVERHEAD]);
    assert_eq!(b.open(A, &keepalive), (vec![], vec![]));
    assert_eq!(b.counters.drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn keepalives_renew_the_session_of_the_initiator_only() {
    let (mut a, mut b) = connected();
    for end in [&mut a, &mut b] {
        end.peer.set_keepalive(Some(Duration::from_secs(25)));
        end.now.instant += Duration::from_secs(119);
        assert_eq!(end.tick().iter().map(Vec::len).collect::<Vec<_>>(), [OVERHEAD]);
        end.now.instant += Duration::from_secs(25);
    }
    assert_eq!(a.tick().iter().map(Vec::len).collect::<Vec<_>>(), [OVERHEAD, HANDSHAKE]);
    assert_eq!(b.tick().iter().map(Vec::len).collect::<Vec<_>>(), [OVERHEAD]);
}

#[test]
fn without_an_endpoint_packets_are_counted_not_kept() {
    let mut b = End::new(2, 1, None);
    assert!(b.seal(&[inner(0, 0), inner(1, 0)]).is_empty());
    assert_eq!(b.drops(Drop::NoEndpoint), 2);
}

#[test]
fn counter_at_the_limit_is_refused_before_the_engine_sees_it() {
    let (mut a, mut b) = connected();
    let mut last = a.seal(&[inner(1, 0)]);
    last[0][8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    b.open(A, &last);
    assert_eq!(b.drops(Drop::Replayed), 1);
}

#[test]
fn inner_lengths_are_checked_after_decryption() {
    let (mut a, mut b) = connected();
    let mut too_long = inner(1, 10);
    too_long[3] = 200;
    let mut zero = inner(1, 10);
    zero[3] = 0;
    let sealed = a.seal(&[too_long, zero, vec![0x00; 40], vec![0x45]]);
    let (_, packets) = b.open(A, &sealed);
    let sound: Vec<_> = packets.iter().filter(|packet| packet::parse(packet).is_ok()).collect();
    assert!(sound.is_empty());
}

/// The receiving half of a node with one connected peer in slot 0.
struct Node {
    receiver: Receiver,
    demux: Demux,
    table: Table,
    end: End,
}

impl Node {
    /// Everything that happens to a datagram between the two sockets; what would be written to the TUN device.
    fn receive(&mut self, datagram: &[u8]) -> Result<Vec<Vec<u8>>, Drop> {
        let (from, now) = (OuterPath::from(address(A)), self.end.now);
        let slot = self.receiver.classify(&self.demux, datagram, from, now, &mut Outbox::new())?;
        let (_, packets) = self.end.open(A, &[datagram.to_vec()]);
        let accept =
            |bytes: &Vec<u8>| packet::parse(bytes).is_ok_and(|p| self.table.is_feasible(p.source, slot));
        Ok(packets.into_iter().filter(accept).collect())
    }
}

/// (the far end, the node)
fn node() -> (End, Node) {
    let (a, end) = connected();
    let identity = Arc::new(Identity::new(StaticSecret::from([2; 32])));
    let receiver = Receiver::new(identity, [7; 32], [RandomState::new(), RandomState::new()], end.now);
    let demux = Demux::new([(PublicKey::from(&StaticSecret::from([1; 32])).to_bytes(), 2)]);
    let mut builder = Table::builder(vec![Member { key: 1, live: Arc::clone(&end.live) }]);
    builder.route("10.0.0.1/32".parse().unwrap(), &[0], &[]);
    (a, Node { receiver, demux, table: builder.build(), end })
}

#[test]
fn whole_receive_path_delivers_data_and_finds_the_initiator() {
    let (mut a, mut node) = node();
    let sealed = a.seal(&[inner(1, 5)]);
    assert_eq!(node.receive(&sealed[0]), Ok(vec![inner(1, 5)]));
    let mut spoofed = inner(1, 5);
    spoofed[15] = 9;
    let sealed = a.seal(&[spoofed]);
    assert_eq!(node.receive(&sealed[0]), Ok(vec![]));

    let mut restarted = End::new(1, 2, None);
    restarted.peer.set_endpoint(address(B));
    let initiation = restarted.seal(&[inner(0, 0)]);
    assert_eq!(node.receive(&initiation[0]), Ok(vec![]));
    let mut stranger = End::new(3, 2, None);
    stranger.peer.set_endpoint(address(B));
    let initiation = stranger.seal(&[inner(0, 0)]);
    assert_eq!(node.receive(&initiation[0]), Err(Drop::UnknownPeer));
}

/// Bytes that look like a message often enough to get past the first check.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![Just(148), Just(92), Just(64), 28..200_usize, 0..2000_usize];
    (0..6_u8, lengths, any::<bool>()).prop_flat_map(|(kind, length, ours)| {
        proptest::collection::vec(any::<u8>(), length).prop_map(move |mut bytes| {
            if let Some(head) = bytes.first_chunk_mut() {
                *head = [kind, 0, 0, 0];
            }
            // Receiver index of the connected session.
            if ours && bytes.len() > 8 {
                let at = if kind == 2 { 8 } else { 4 };
                bytes[at..at + 4.min(length - at)].copy_from_slice(&[1, 2, 0, 0][..4.min(length - at)]);
            }
            bytes
        })
    })
}

proptest! {
    #[test]
    fn random_datagrams_never_panic_and_never_deliver(junk in proptest::collection::vec(datagram(), 1..20)) {
        let (mut a, mut node) = node();
        for datagram in &junk {
            prop_assert_eq!(node.receive(datagram).unwrap_or_default(), Vec::<Vec<u8>>::new());
        }
        let sealed = a.seal(&[inner(1, 5)]);
        prop_assert_eq!(node.receive(&sealed[0]), Ok(vec![inner(1, 5)]));
    }

    #[test]
    fn altered_datagrams_never_deliver(position in 0..84_usize, bit in 0..8_u8, cut in 0..84_usize) {
        let (mut a, mut node) = node();
        let good = a.seal(&[inner(1, 32)]).remove(0);
        let mut flipped = good.clone();
        flipped[position] ^= 1 << bit;
        prop_assert_eq!(node.receive(&flipped).unwrap_or_default(), Vec::<Vec<u8>>::new());
        prop_assert_eq!(node.receive(&good[..cut]).unwrap_or_default(), Vec::<Vec<u8>>::new());
        prop_assert_eq!(node.receive(&good), Ok(vec![inner(1, 32)]));
    }

    #[test]
    fn decrypted_junk_never_panics(plain in proptest::collection::vec(any::<u8>(), 0..100)) {
        let (mut a, mut node) = node();
        let sealed = a.seal(&[plain]);
        for packet in node.receive(&sealed[0]).unwrap_or_default() {
            prop_assert!(packet::parse(&packet).is_ok());
        }
    }
}
