//! A BGP neighbor that sends anything at any moment: the speaker stands, and what it tells the other neighbor is well formed.
#![no_main]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use isthmus_bgp::Families;
use isthmus_bgp::rib::NextHops;
use isthmus_bgp::wire::{
    Capability, Frame, MessageType, Open, Peering, Update, UpdateContext, encode_keepalive, frame,
};
use isthmus_bgp::{Config, ConnectionId, Event, Guards, PeerConfig, Policy, Speaker};
use libfuzzer_sys::fuzz_target;

const OWN: u32 = 65_000;
const FUZZED: u32 = 65_001;
const LISTENER: u32 = 65_002;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let mut now = Instant::now();
    let mut speaker = Speaker::new(config(), 1, now);
    let listener = Listener { connection: connect(&mut speaker, LISTENER, now), four_octet: choice & 2 == 0 };
    greet(&mut speaker, listener.connection, LISTENER, listener.four_octet, now);
    let fuzzed = connect(&mut speaker, FUZZED, now);
    if choice & 1 == 0 {
        greet(&mut speaker, fuzzed, FUZZED, true, now);
    }
    let chunk = 16 * (1 + usize::from(choice >> 2));
    for bytes in data.chunks(chunk) {
        now += Duration::from_millis(u64::from(bytes[0]) * 16);
        speaker.handle_bytes(fuzzed, bytes, now);
        speaker.handle_timeout(now);
        check(&mut speaker, &listener);
        // The listener stays alive however long the fuzzed neighbor takes.
        let mut keepalive = Vec::new();
        encode_keepalive(&mut keepalive);
        speaker.handle_bytes(listener.connection, &keepalive, now);
    }
    speaker.handle_closed(fuzzed, "the fuzzer is done", now);
    check(&mut speaker, &listener);
});

/// The neighbor that behaves, and must be told nothing that is malformed.
struct Listener {
    connection: ConnectionId,
    /// It knows AS numbers of four octets.
    four_octet: bool,
}

fn config() -> Config {
    Config {
        announce: vec!["10.10.0.0/16".parse().expect("valid"), "fd00:10::/32".parse().expect("valid")],
        peers: vec![peer(FUZZED), peer(LISTENER)],
        ..Config::new(OWN, [10, 0, 0, 1].into())
    }
}

fn address(asn: u32) -> IpAddr {
    [192, 0, 2, asn.to_be_bytes()[3]].into()
}

fn peer(asn: u32) -> PeerConfig {
    PeerConfig {
        hold_time: 90,
        import: Policy::all(),
        export: Policy::all(),
        guards: Guards { max_prefixes: Some(1000), ..Guards::default() },
        ..PeerConfig::new(asn.to_string(), address(asn), asn)
    }
}

fn connect(speaker: &mut Speaker, asn: u32, now: Instant) -> ConnectionId {
    let own = NextHops {
        v4: Some([10, 99, 0, 1].into()),
        v6: Some("fd99::1".parse().expect("valid")),
        link_local: None,
    };
    speaker.handle_accepted(address(asn), None, own, now).expect("a configured neighbor is taken")
}

/// OPEN and KEEPALIVE: the session is Established.
fn greet(speaker: &mut Speaker, connection: ConnectionId, asn: u32, four_octet: bool, now: Instant) {
    let [.., last] = asn.to_be_bytes();
    let mut open = Open::new(asn, 90, [10, 0, 1, last].into(), Families::ALL);
    open.capabilities.retain(|capability| four_octet || !matches!(capability, Capability::FourOctetAsn(_)));
    let mut hello = Vec::new();
    open.encode(&mut hello).expect("it fits");
    encode_keepalive(&mut hello);
    speaker.handle_bytes(connection, &hello, now);
}

/// Takes everything the speaker has to say. Of what goes to the listener every UPDATE is read; what the fuzzed neighbor negotiated
/// only it knows, so what goes there is cut into messages and no more.
fn check(speaker: &mut Speaker, listener: &Listener) {
    while let Some(event) = speaker.poll_event() {
        if let Event::Close { connection, last_words } = event {
            assert_ne!(connection, listener.connection, "the other neighbor paid for it");
            each_message(&last_words, |_| {});
        }
    }
    for connection in speaker.pending_connections() {
        let mut out = Vec::new();
        while speaker.poll_transmit(connection, &mut out) {}
        each_message(&out, |message| {
            if connection == listener.connection {
                listener.read(message);
            }
        });
    }
    let _ = (speaker.take_changed(), speaker.status(), speaker.poll_timeout());
}

fn each_message(mut stream: &[u8], mut read: impl FnMut(&Frame<'_>)) {
    while let Some(message) = frame(stream).expect("our own header is right") {
        read(&message);
        stream = &stream[message.wire_length()..];
    }
    assert_eq!(stream, [], "our own message is cut short");
}

impl Listener {
    fn read(&self, message: &Frame<'_>) {
        assert_ne!(message.kind, MessageType::Notification, "the other neighbor paid for it");
        if message.kind == MessageType::Update {
            let peering = Peering::External { asn: OWN };
            let context = UpdateContext {
                four_octet: self.four_octet,
                peering,
                families: Families::ALL,
                add_path: Families::NONE,
                extended_next_hop: false,
            };
            let update = Update::decode(message.body, &context).expect("our own UPDATE is well formed");
            assert_eq!(update.faults, [], "our own UPDATE has faults");
        }
    }
}
