//! Datagrams on the tunnel's UDP port: raw ones, damaged ones of a live session, and anything as the content of a good one.
#![no_main]

use std::cell::RefCell;
use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use isthmus_tunnel::buffer::{Datagram, Opened, Outbox, OuterPath, Plaintext};
use isthmus_tunnel::ecn::Ecn;
use isthmus_tunnel::packet;
use isthmus_tunnel::peer::{Peer, Settings};
use isthmus_tunnel::receive::{Demux, Receiver};
use isthmus_tunnel::x25519::{PublicKey, StaticSecret};
use isthmus_tunnel::{Identity, Now};
use libfuzzer_sys::fuzz_target;

const MTU: u16 = 1420;

/// An IPv4 header without content.
const IP_PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 20, 0, 1, 10, 10, 0, 2];

thread_local! {
    static PAIR: RefCell<Option<Pair>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    PAIR.with_borrow_mut(|slot| {
        let pair = slot.get_or_insert_with(Pair::new);
        match choice % 4 {
            0 => pair.near.receive(data).clear(),
            1 => pair.damaged(data),
            2 => pair.content(data),
            _ => pair.near.receive(&pair.far.addressed(data)).clear(),
        }
    });
});

/// Two ends of one tunnel with a live session; the fuzzer is on the far side. Their clock stands still.
struct Pair {
    near: End,
    far: End,
}

/// One end: what a packet thread has for it.
struct End {
    receiver: Receiver,
    demux: Demux,
    peer: Peer,
    own: SocketAddr,
    out: Outbox,
    now: Now,
    /// The receiver index of the far end's session.
    index: [u8; 4],
}

/// Anything as an inner packet.
struct Content<'a>(&'a [u8]);

impl Plaintext for Content<'_> {
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

impl Pair {
    fn new() -> Self {
        let [near, far] = [StaticSecret::from([1; 32]), StaticSecret::from([2; 32])];
        let now = Now { instant: Instant::now(), unix: Duration::from_secs(1_800_000_000) };
        let mut pair = Self { near: End::new(&near, &far, 1, now), far: End::new(&far, &near, 2, now) };
        pair.near.peer.set_endpoint(pair.far.own);
        pair.far.peer.set_endpoint(pair.near.own);
        pair.far.send(&[0; 64]);
        // Initiation, response, the packet that confirms, and one to spare.
        for _ in 0..4 {
            pair.exchange();
        }
        pair.far.send(&IP_PACKET);
        pair.far.index = pair.far.out.bytes()[4..8].try_into().expect("a transport message");
        assert!(pair.exchange().iter().any(|packet| packet.starts_with(&IP_PACKET)), "there is a session");
        pair
    }

    /// Delivers what both have to send; what came out at the near end.
    fn exchange(&mut self) -> Vec<Vec<u8>> {
        let packets = self.near.receive_from(&mut self.far);
        self.far.receive_from(&mut self.near);
        packets
    }

    /// A good datagram of this session with bytes changed: the receiver index mostly still fits, the tag never does.
    fn damaged(&mut self, changes: &[u8]) {
        self.far.send(&[0; 256]);
        let out = std::mem::take(&mut self.far.out);
        for (good, _, _) in out.iter() {
            let mut datagram = good.to_vec();
            for change in changes.chunks_exact(2) {
                let at = usize::from(change[0]) % datagram.len();
                datagram[at] ^= change[1];
            }
            datagram.truncate(datagram.len() - changes.len() % 2);
            let packets = self.near.receive(&datagram);
            assert!(packets.is_empty() || datagram == good, "a damaged datagram was taken");
        }
    }

    /// It comes out as it went in, padding aside; unless it is a message about the path, which is no packet (its first nibble is 15).
    fn content(&mut self, content: &[u8]) {
        let content = &content[..content.len().min(usize::from(MTU))];
        self.far.send(content);
        let packets = self.exchange();
        let is_packet = content.first().is_some_and(|first| first >> 4 != 15);
        assert_eq!(packets.len(), usize::from(is_packet), "content was lost, or came out of nothing");
        for packet in packets {
            assert!(packet.starts_with(content), "the content changed on the way");
            assert!(packet[content.len()..].iter().all(|byte| *byte == 0), "padding is zeros");
            let _ = packet::parse(&packet);
        }
    }
}

impl End {
    fn new(own: &StaticSecret, other: &StaticSecret, index: u32, now: Now) -> Self {
        let (identity, public_key) = (Arc::new(Identity::new(own.clone())), PublicKey::from(other));
        let demux = Demux::new([(public_key.to_bytes(), index)]);
        let settings = Settings { public_key, preshared_key: None, index, mtu: MTU, keepalive: None };
        let number = u8::try_from(index).expect("small");
        let hashers = [RandomState::new(), RandomState::new()];
        Self {
            receiver: Receiver::new(Arc::clone(&identity), [number; 32], hashers, now),
            demux,
            peer: Peer::new(
                &identity,
                settings,
                Arc::new(AtomicBool::new(false)),
                Arc::default(),
                [number; 32],
            ),
            own: SocketAddr::from(([192, 0, 2, number], 51_820)),
            out: Outbox::new(),
            now,
            index: [0; 4],
        }
    }

    fn send(&mut self, content: &[u8]) {
        self.peer.seal([Content(content)].into_iter(), self.now, &mut self.out);
    }

    /// The same bytes with the receiver index of the session that this end sends under, where a message of that type has it.
    fn addressed(&self, datagram: &[u8]) -> Vec<u8> {
        let mut datagram = datagram.to_vec();
        let at = if datagram.first() == Some(&2) { 8 } else { 4 };
        if let Some(field) = datagram.get_mut(at..at + 4) {
            field.copy_from_slice(&self.index);
        }
        datagram
    }

    fn receive_from(&mut self, other: &mut Self) -> Vec<Vec<u8>> {
        let out = std::mem::take(&mut other.out);
        out.iter().flat_map(|(datagram, _, _)| self.receive(datagram)).collect()
    }

    /// As a packet thread does: find the peer, open, keep what there is to answer.
    fn receive(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let path = OuterPath::from(SocketAddr::from(([198, 51, 100, 1], 1)));
        let mut bytes = datagram.to_vec();
        let mut inbox: Vec<Opened<'_>> = Vec::new();
        if self.receiver.classify(&self.demux, datagram, path, self.now, &mut self.out).is_ok() {
            let datagram = Datagram { bytes: &mut bytes, path, ecn: Ecn::NotEct };
            self.peer.open(std::iter::once(datagram), |_| false, self.now, &mut self.out, &mut inbox);
        }
        inbox.into_iter().map(|packet| packet.bytes.to_vec()).collect()
    }
}
