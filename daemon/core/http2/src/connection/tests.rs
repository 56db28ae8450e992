use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;

const HELLO: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/a/B"), (":authority", "%2Fs")];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, flags, stream, payload);
    out
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    fields.iter().for_each(|(name, value)| hpack::encode(&mut block, name.as_bytes(), value.as_bytes()));
    block
}

fn headers(stream: u32, flags: u8) -> Vec<u8> {
    frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block(&HELLO))
}

fn start() -> Vec<u8> {
    [PREFACE.to_vec(), frame(kind::SETTINGS, 0, 0, &[])].concat()
}

/// A connection at whose other end is somebody with nothing to say but this.
struct Peer {
    connection: Connection,
    now: Instant,
}

impl Peer {
    fn new() -> Self {
        let mut peer = Self { connection: Connection::default(), now: Instant::now() };
        assert_eq!(peer.say(&start()), Ok(vec![]));
        peer.heard();
        peer
    }

    fn say(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Fault> {
        self.connection.receive(bytes, self.now)
    }

    /// The connection is over for this.
    fn fails(&mut self, bytes: &[u8]) -> Code {
        let code = self.say(bytes).unwrap_err().code;
        assert!(self.heard().iter().any(|(head, _)| head.kind == kind::GOAWAY), "the client is told");
        code
    }

    /// What was sent, as frames.
    fn heard(&mut self) -> Vec<(Head, Vec<u8>)> {
        let (mut rest, mut frames) = (self.connection.output(), Vec::new());
        while let Some(head) = Head::parse(rest) {
            let end = HEAD + head.length;
            frames.push((head, rest[HEAD..end].to_vec()));
            rest = &rest[end..];
        }
        assert!(rest.is_empty());
        self.connection.sent(self.connection.output().len());
        frames
    }

    fn opened(&mut self, stream: u32) {
        assert!(matches!(self.say(&headers(stream, 0)).as_deref(), Ok([Event::Request { .. }])));
    }

    /// The stream was reset for this.
    fn resets(&mut self, bytes: &[u8]) -> u32 {
        self.say(bytes).unwrap();
        let heard = self.heard();
        let reset = heard.iter().find(|(head, _)| head.kind == kind::RST_STREAM).expect("a reset");
        frame::number(&reset.1).unwrap()
    }
}

fn code(code: Code) -> u32 {
    code as u32
}

#[test]
fn a_call_from_its_beginning_to_its_end() {
    let mut peer = Peer::new();
    let call = [headers(1, 0), frame(kind::DATA, flag::END_STREAM, 1, b"question")].concat();
    let request = Request { method: b"POST".to_vec(), path: b"/a/B".to_vec(), fields: vec![] };
    let data = Event::Data { stream: 1, bytes: b"question".to_vec(), is_last: true };
    assert_eq!(peer.say(&call), Ok(vec![Event::Request { stream: 1, request, is_last: false }, data]));
    let connection = &mut peer.connection;
    connection.send_fields(1, [(&b":status"[..], &b"200"[..])], false);
    let mut content = Bytes::from_static(b"answer");
    connection.send(1, &mut content);
    assert!(content.is_empty());
    connection.send_fields(1, [(&b"grpc-status"[..], &b"0"[..])], true);
    connection.send_fields(1, [(&b"grpc-status"[..], &b"0"[..])], true);
    let heard = peer.heard();
    let kinds: Vec<_> = heard.iter().map(|(head, _)| (head.kind, head.flags)).collect();
    assert_eq!(kinds, [(1, flag::END_HEADERS), (0, 0), (1, flag::END_HEADERS | flag::END_STREAM)]);
    let fields = |at: usize| Decoder::default().decode(&heard[at].1).unwrap();
    assert_eq!(fields(0), [(b":status".to_vec(), b"200".to_vec())]);
    assert_eq!(fields(2), [(b"grpc-status".to_vec(), b"0".to_vec())]);
}

#[test]
fn an_idle_connection_keeps_no_buffer() {
    let mut peer = Peer::new();
    for byte in [headers(1, flag::END_STREAM), frame(kind::PING, 0, 0, &[0; 8])].concat() {
        peer.say(&[byte]).unwrap();
    }
    peer.heard();
    let Connection { partial, out, block, streams, .. } = &peer.connection;
    assert_eq!((partial.capacity(), out.capacity(), block.is_none(), streams.capacity()), (0, 0, true, 1));
    assert!(size_of::<Connection>() <= 320, "{}", size_of::<Connection>());
}

#[test]
fn a_beginning_that_is_not_http2_is_refused() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX", &[0]] {
        let mut peer = Peer { connection: Connection::default(), now: Instant::now() };
        assert_eq!(peer.say(bytes).map_err(|fault| fault.code), Err(Code::Protocol));
    }
    let mut peer = Peer { connection: Connection::default(), now: Instant::now() };
    let ping = [PREFACE, &frame(kind::PING, 0, 0, &[0; 8])].concat();
    assert_eq!(peer.fails(&ping), Code::Protocol);
}

/// RFC 9113 section 4 to 6: each ends the connection.
#[test]
fn what_breaks_the_connection() {
    let cases = [
        (frame(kind::DATA, 0, 0, b"x"), Code::Protocol),
        (frame(kind::DATA, 0, 9, b"x"), Code::Protocol),
        (frame(kind::DATA, flag::PADDED, 1, &[9, 0]), Code::Protocol),
        (headers(2, 0), Code::Protocol),
        (headers(0, 0), Code::Protocol),
        (frame(kind::HEADERS, flag::END_HEADERS, 3, &[0x80]), Code::Compression),
        ([frame(kind::HEADERS, 0, 3, &[]), frame(kind::PING, 0, 0, &[0; 8])].concat(), Code::Protocol),
        ([frame(kind::HEADERS, 0, 3, &[]), frame(kind::CONTINUATION, 4, 1, &[])].concat(), Code::Protocol),
        (frame(kind::CONTINUATION, 4, 1, &[]), Code::Protocol),
        (frame(kind::PRIORITY, 0, 0, &[0; 5]), Code::Protocol),
        (frame(kind::RST_STREAM, 0, 0, &[0; 4]), Code::Protocol),
        (frame(kind::RST_STREAM, 0, 9, &[0; 4]), Code::Protocol),
        (frame(kind::RST_STREAM, 0, 1, &[0; 3]), Code::FrameSize),
        (frame(kind::SETTINGS, 0, 1, &[]), Code::Protocol),
        (frame(kind::SETTINGS, 0, 0, &[0; 5]), Code::FrameSize),
        (frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), Code::FrameSize),
        (frame(kind::PUSH_PROMISE, 4, 1, &[0; 4]), Code::Protocol),
        (frame(kind::PING, 0, 0, &[0; 7]), Code::FrameSize),
        (frame(kind::PING, 0, 1, &[0; 8]), Code::Protocol),
        (frame(kind::GOAWAY, 0, 1, &[0; 8]), Code::Protocol),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Code::Protocol),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]), Code::FlowControl),
        (frame(kind::WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1]), Code::Protocol),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]), Code::FrameSize),
        (vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1], Code::FrameSize),
    ];
    for (bytes, wanted) in cases {
        let mut peer = Peer::new();
        peer.opened(1);
        assert_eq!(peer.fails(&bytes), wanted, "{bytes:?}");
    }
}

/// Each ends a stream, and the others go on.
#[test]
fn what_breaks_a_stream() {
    let malformed = |fields: &[(&str, &str)]| {
        frame(kind::HEADERS, flag::END_HEADERS, 3, &block(&[&HELLO[..], fields].concat()))
    };
    let short =
        [malformed(&[("content-length", "5")]), frame(kind::DATA, flag::END_STREAM, 3, b"four")].concat();
    let trailers = |flags, fields: &[(&str, &str)]| frame(kind::HEADERS, flags, 1, &block(fields));
    let closed = [frame(kind::RST_STREAM, 0, 1, &[0; 4]), headers(1, 0)].concat();
    let cases = [
        (malformed(&[(":path", "/twice")]), Code::Protocol),
        (malformed(&[("connection", "close")]), Code::Protocol),
        (malformed(&[("content-length", "x")]), Code::Protocol),
        (short, Code::Protocol),
        (trailers(flag::END_HEADERS, &[("a", "b")]), Code::Protocol),
        (trailers(flag::END_HEADERS | flag::END_STREAM, &[(":a", "b")]), Code::Protocol),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0; 4]), Code::Protocol),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 255, 255, 255]), Code::FlowControl),
        (frame(kind::PRIORITY, 0, 1, &[0; 4]), Code::FrameSize),
        (closed, Code::StreamClosed),
        ([frame(kind::DATA, 1, 1, b""), frame(kind::DATA, 0, 1, b"x")].concat(), Code::StreamClosed),
    ];
    for (bytes, wanted) in cases {
        let mut peer = Peer::new();
        peer.opened(1);
        assert_eq!(peer.resets(&bytes), code(wanted), "{bytes:?}");
        peer.opened(5);
    }
}

#[test]
fn no_more_streams_than_allowed_at_a_time() {
    let mut peer = Peer::new();
    (0..16).for_each(|at| peer.opened(2 * at + 1));
    assert_eq!(peer.resets(&headers(33, 0)), code(Code::RefusedStream));
    peer.connection.reset(1, Code::Cancel);
    peer.opened(35);
    peer.heard();
    peer.connection.leave();
    assert_eq!(peer.resets(&headers(37, 0)), code(Code::RefusedStream));
}

/// CVE-2023-44487.
#[test]
fn streams_that_are_begun_and_reset_end_the_connection() {
    let mut peer = Peer::new();
    let pair = |at: u32| [headers(at, 0), frame(kind::RST_STREAM, 0, at, &[0; 4])].concat();
    let result = (0..1000).map(|at| 2 * at + 1).try_for_each(|at| peer.say(&pair(at)).map(drop));
    assert_eq!(result.unwrap_err().code, Code::EnhanceYourCalm);
    // Who does so ten times a second is a client with timeouts.
    let mut peer = Peer::new();
    for at in 0..2000 {
        peer.now += Duration::from_millis(100);
        peer.say(&pair(2 * at + 1)).unwrap();
    }
}

/// CVE-2024-27316, and the same with DATA.
#[test]
fn floods_of_nothing_end_the_connection() {
    let mut peer = Peer::new();
    let endless = [frame(kind::HEADERS, 0, 1, &[]), frame(kind::CONTINUATION, 0, 1, &[]).repeat(20)].concat();
    assert_eq!(peer.fails(&endless), Code::EnhanceYourCalm);
    let mut peer = Peer::new();
    let large = frame(kind::HEADERS, 0, 1, &[0; 16_384]);
    peer.say(&large).unwrap();
    assert_eq!(peer.fails(&frame(kind::CONTINUATION, 0, 1, &[0])), Code::EnhanceYourCalm);
    let mut peer = Peer::new();
    peer.opened(1);
    assert_eq!(peer.fails(&frame(kind::DATA, 0, 1, &[]).repeat(500)), Code::EnhanceYourCalm);
}

#[test]
fn pings_fill_the_output_and_then_are_not_read() {
    let mut peer = Peer::new();
    let ping = frame(kind::PING, 0, 0, &[7; 8]);
    let mut count = 0;
    while !peer.connection.is_full() {
        peer.say(&ping).unwrap();
        count += 1;
    }
    assert!(count < 2100);
    assert!(peer.heard().iter().all(|(head, payload)| head.flags == flag::ACK && *payload == [7; 8]));
}

#[test]
fn content_waits_for_windows() {
    let mut peer = Peer::new();
    peer.opened(1);
    let mut content = Bytes::from(vec![1; 100_000]);
    let mut sent = Vec::new();
    for _ in 0..4 {
        peer.connection.send(1, &mut content);
        sent.extend(peer.heard());
    }
    assert_eq!(content.len(), 100_000 - 65_535);
    assert!(sent.iter().all(|(head, _)| head.length <= LARGEST));
    // The stream's window alone is not enough, and one may be below zero.
    peer.say(&frame(kind::WINDOW_UPDATE, 0, 1, &10_u32.to_be_bytes())).unwrap();
    assert_eq!(peer.connection.room(1), 0);
    peer.say(&frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    peer.say(&frame(kind::WINDOW_UPDATE, 0, 0, &50_000_u32.to_be_bytes())).unwrap();
    assert_eq!(peer.connection.room(1), 0);
    peer.say(&frame(kind::WINDOW_UPDATE, 0, 1, &65_545_u32.to_be_bytes())).unwrap();
    assert_eq!(peer.connection.room(1), 20);
}

#[test]
fn content_is_let_go_once_it_is_said() {
    let mut peer = Peer::new();
    peer.opened(1);
    let memory = Arc::new(vec![1; 100]);
    let held = |memory: &Arc<Vec<u8>>| Arc::strong_count(memory) > 1;
    let mut content = Bytes::from_owner(Shared(memory.clone()));
    assert!(held(&memory));
    peer.connection.send(1, &mut content);
    assert!(content.is_empty() && !held(&memory));
}

/// Tells by its count whether it is held.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn windows_open_as_content_is_read() {
    let mut peer = Peer::new();
    peer.opened(1);
    let data = frame(kind::DATA, flag::PADDED, 1, &[[3].as_slice(), &[7; 16_380], &[0; 3]].concat());
    for _ in 0..3 {
        peer.say(&data).unwrap();
    }
    assert!(peer.heard().is_empty(), "nothing was read but padding");
    peer.connection.read(1, 3 * 16_380);
    let heard = peer.heard();
    let opened: Vec<_> = heard.iter().map(|(head, by)| (head.stream, frame::number(by).unwrap())).collect();
    assert_eq!(opened, [(1, 3 * 16_384), (0, 3 * 16_384)]);
    // Of a stream that is gone nothing stays unread.
    (0..3).for_each(|_| drop(peer.say(&data).unwrap()));
    peer.connection.reset(1, Code::Cancel);
    let heard = peer.heard();
    assert!(heard.iter().any(|(head, _)| head.kind == kind::WINDOW_UPDATE && head.stream == 0));
}

#[test]
fn more_than_a_window_is_refused() {
    let mut peer = Peer::new();
    peer.opened(1);
    let data = frame(kind::DATA, 0, 1, &[0; 16_000]);
    (0..4).for_each(|_| drop(peer.say(&data).unwrap()));
    assert_eq!(peer.fails(&data), Code::FlowControl);
}

#[test]
fn fields_longer_than_a_frame_are_continued() {
    let mut peer = Peer::new();
    peer.opened(1);
    let long = vec![b'x'; 40_000];
    peer.connection.send_fields(1, [(&b"grpc-message"[..], &long[..])], true);
    let heard = peer.heard();
    let kinds: Vec<_> = heard.iter().map(|(head, _)| (head.kind, head.flags)).collect();
    // The client had not said all: it is told that it need not.
    assert_eq!(kinds, [(1, 1), (9, 0), (9, 4), (3, 0)]);
}

/// Frames that are mostly well formed.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        Just(block(&HELLO)),
        prop::collection::vec(any::<u8>(), 0..40),
        (0..70_000u32).prop_map(|by| by.to_be_bytes().to_vec()),
    ];
    let one = (0..11u8, any::<u8>(), 0..8u32, payload)
        .prop_map(|(kind, flags, id, load)| frame(kind, flags, id, &load));
    prop::collection::vec(one, 0..40).prop_map(|frames| [start(), frames.concat()].concat())
}

proptest! {
    #[test]
    fn nothing_panics(bytes: Vec<u8>) {
        let mut peer = Peer::new();
        let _ = peer.say(&bytes);
    }

    /// However bytes are cut, the same comes out.
    #[test]
    fn pieces_do_not_matter(bytes in frames(), size in 1usize..50) {
        let now = Instant::now();
        let (mut whole, mut cut) = (Connection::default(), Connection::default());
        let all = whole.receive(&bytes, now);
        let mut events = Vec::new();
        let pieces = bytes.chunks(size).try_for_each(|piece| {
            events.extend(cut.receive(piece, now)?);
            Ok(())
        });
        prop_assert_eq!(all.as_ref().map(drop), pieces.as_ref().map(drop));
        prop_assert_eq!(whole.output(), cut.output());
        if let Ok(all) = all {
            prop_assert_eq!(all, events);
        }
        prop_assert!(cut.partial.len() <= HEAD + LARGEST);
    }

    /// Everything that was unread on a stream is given back when it ends: the connection never starves.
    #[test]
    fn windows_do_not_leak(bytes in frames()) {
        let mut connection = Connection::default();
        if connection.receive(&bytes, Instant::now()).is_ok() {
            let unread: u32 = connection.streams.iter().map(|stream| stream.inward.unread()).sum();
            prop_assert_eq!(connection.inward.unread(), unread);
            (0..8).for_each(|id| connection.reset(id, Code::Cancel));
            prop_assert_eq!(connection.inward.unread(), 0);
        }
    }
}
