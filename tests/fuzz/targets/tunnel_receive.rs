//! Datagrams on the tunnel's UDP port: raw ones, damaged ones of a live session, and anything as the content of a good one.
#![no_main]

use std::cell::RefCell;
use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use isthmus_tunnel::buffer::{Inbox, Outbox};
use isthmus_tunnel::packet;
use isthmus_tunnel::peer::{Peer, Plain, Settings};
use isthmus_tunnel::receive::{Demux, Receiver};
use isthmus_tunnel::x25519::{PublicKey, StaticSecret};
use libfuzzer_sys::fuzz_target;

const MTU: u16 = 1420;
/// Sessions end after three minutes; a pair is replaced well before.
const PAIR_LIFETIME: Duration = Duration::from_secs(60);

/// An IPv4 header without content.
const IP_PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 20, 0, 1, 10, 10, 0, 2];

thread_local! {
    static PAIR: RefCell<Option<Pair>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    PAIR.with_borrow_mut(|slot| {
        let fresh = slot.take().filter(|pair| pair.made.elapsed() < PAIR_LIFETIME);
        let pair = slot.insert(fresh.unwrap_or_else(Pair::new));
        match choice % 3 {
            0 => pair.near.receive(data, &mut Inbox::new()),
            1 => pair.damaged(data),
            _ => pair.content(data),
        }
    });
});

/// Two ends of one tunnel with a live session; the fuzzer is on the far side.
struct Pair {
    near: End,
    far: End,
    made: Instant,
}

/// One end: what a packet thread has for it.
struct End {
    receiver: Receiver,
    demux: Demux,
    peer: Peer,
    own: SocketAddr,
    out: Outbox,
}

impl Pair {
    fn new() -> Self {
        let [near, far] = [StaticSecret::from([1; 32]), StaticSecret::from([2; 32])];
        let mut pair =
            Self { near: End::new(&near, &far, 1), far: End::new(&far, &near, 2), made: Instant::now() };
        pair.near.peer.set_endpoint(pair.far.own);
        pair.far.peer.set_endpoint(pair.near.own);
        pair.far.send(&[0; 64]);
        // Initiation, response, the packet that confirms, and one to spare.
        for _ in 0..4 {
            pair.exchange(&mut Inbox::new());
        }
        assert!(pair.carries(&IP_PACKET), "there is a session");
        pair
    }

    /// Sends from the far end and says whether that came out at the near one.
    fn carries(&mut self, content: &[u8]) -> bool {
        self.far.send(content);
        let mut inbox = Inbox::new();
        self.exchange(&mut inbox);
        inbox.iter().any(|packet| packet.starts_with(content))
    }

    /// Delivers what both have to send.
    fn exchange(&mut self, inbox: &mut Inbox) {
        self.near.receive_from(&mut self.far, inbox);
        self.far.receive_from(&mut self.near, inbox);
    }

    /// A good datagram of this session with bytes changed: the receiver index mostly still fits, the tag never does.
    fn damaged(&mut self, changes: &[u8]) {
        self.far.send(&[0; 256]);
        let out = std::mem::take(&mut self.far.out);
        for (datagram, _) in out.iter() {
            let mut datagram = datagram.to_vec();
            for change in changes.chunks_exact(2) {
                let at = usize::from(change[0]) % datagram.len();
                datagram[at] ^= change[1];
            }
            datagram.truncate(datagram.len() - changes.len() % 2);
            self.near.receive(&datagram, &mut Inbox::new());
        }
    }

    /// Anything as an inner packet: it comes out as it went in, padding aside, if it comes out at all.
    fn content(&mut self, content: &[u8]) {
        let content = &content[..content.len().min(usize::from(MTU))];
        self.far.send(content);
        let mut inbox = Inbox::new();
        self.exchange(&mut inbox);
        for packet in inbox.iter() {
            assert!(
                packet.starts_with(content) || content.starts_with(packet),
                "the content changed on the way"
            );
            let _ = packet::parse(packet);
        }
    }
}

impl End {
    fn new(own: &StaticSecret, other: &StaticSecret, index: u32) -> Self {
        let (now, public_key) = (Instant::now(), PublicKey::from(other));
        let demux = Demux::new([(public_key.to_bytes(), index)]);
        let settings = Settings { public_key, preshared_key: None, index, mtu: MTU, keepalive: None };
        Self {
            receiver: Receiver::new(own.clone(), [RandomState::new(), RandomState::new()], now),
            demux,
            peer: Peer::new(own, &settings, Arc::new(AtomicBool::new(false)), Arc::default()),
            own: SocketAddr::from(([192, 0, 2, u8::try_from(index).expect("small")], 51_820)),
            out: Outbox::new(),
        }
    }

    fn send(&mut self, content: &[u8]) {
        let mut buffer = [content, &[0; Plain::ROOM]].concat();
        let plain = Plain { buffer: &mut buffer, length: content.len() };
        self.peer.seal([plain], Instant::now(), &mut self.out);
    }

    fn receive_from(&mut self, other: &mut Self, inbox: &mut Inbox) {
        let out = std::mem::take(&mut other.out);
        out.iter().for_each(|(datagram, _)| self.receive(datagram, inbox));
    }

    /// As a packet thread does: find the peer, open, keep what there is to answer.
    fn receive(&mut self, datagram: &[u8], inbox: &mut Inbox) {
        let (now, from) = (Instant::now(), SocketAddr::from(([198, 51, 100, 1], 1)));
        if self.receiver.classify(&self.demux, datagram, from, now, &mut self.out).is_ok() {
            self.peer.open([(datagram, from)], |_| false, now, &mut self.out, inbox);
        }
    }
}
