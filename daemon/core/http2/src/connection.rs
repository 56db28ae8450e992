//! A connection: what arrives becomes events, what is answered becomes bytes.

use std::{mem, time::Instant};

use bytes::{Buf, Bytes};

use crate::{
    Allowance, Fault, Request,
    block::Block,
    frame::{self, Code, HEAD, Head, LARGEST, PREFACE, fault, flag, kind},
    hpack::{self, Decoder},
    request,
    settings::{self, STREAMS},
    stream::Stream,
    window::{self, Inward},
};

/// As much to be sent is enough.
const FULL: usize = 32 << 10;
/// The table of what we send has no room (RFC 7541 section 6.3): said once, so that a client may make its own smaller.
const NO_TABLE: u8 = 0x20;

/// Something for the one who answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A stream was opened.
    Request {
        /// Its number.
        stream: u32,
        /// What is asked.
        request: Request,
        /// There is no content.
        is_last: bool,
    },
    /// Content; call [`Connection::read`] when it was taken.
    Data {
        /// Of this stream.
        stream: u32,
        /// May be empty at the end.
        bytes: Vec<u8>,
        /// Nothing follows.
        is_last: bool,
    },
    /// The stream is gone; nothing can be said on it.
    Reset {
        /// Its number.
        stream: u32,
    },
}

/// The server's end of a connection.
#[derive(Debug)]
pub struct Connection {
    /// The beginning of a frame whose rest has not come.
    partial: Vec<u8>,
    out: Vec<u8>,
    decoder: Decoder,
    block: Option<Block>,
    streams: Vec<Stream>,
    /// The highest number of a stream so far.
    last: u32,
    /// What may be sent, over all streams and at first on each.
    window: i64,
    initial: i64,
    inward: Inward,
    allowance: Allowance,
    stage: Stage,
    has_sent_fields: bool,
    is_leaving: bool,
}

/// How far the beginning has come (RFC 9113 section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preface,
    Settings,
    Open,
}

impl Default for Connection {
    fn default() -> Self {
        let mut out = Vec::new();
        frame::write(&mut out, kind::SETTINGS, 0, 0, &settings::ours());
        let initial = i64::from(window::INITIAL);
        Self {
            partial: Vec::new(),
            out,
            decoder: Decoder::default(),
            block: None,
            streams: Vec::new(),
            last: 0,
            window: initial,
            initial,
            inward: Inward::default(),
            allowance: Allowance::default(),
            stage: Stage::Preface,
            has_sent_fields: false,
            is_leaving: false,
        }
    }
}

/// What arrives.
impl Connection {
    /// Takes what has arrived, in pieces of any size.
    ///
    /// # Errors
    /// When the connection is over: send what is in [`output`](Self::output), which tells the client why, and close it.
    pub fn receive(&mut self, bytes: &[u8], now: Instant) -> Result<Vec<Event>, Fault> {
        let mut events = Vec::new();
        let result = if self.partial.is_empty() {
            self.frames(bytes, now, &mut events).map(|used| self.partial = bytes[used..].to_vec())
        } else {
            let mut all = mem::take(&mut self.partial);
            all.extend_from_slice(bytes);
            self.frames(&all, now, &mut events).map(|used| {
                all.drain(..used);
                // What is empty keeps no room.
                self.partial = if all.is_empty() { Vec::new() } else { all };
            })
        };
        match result {
            Ok(()) => Ok(events),
            Err(fault) => {
                self.say_goodbye(fault.code, fault.what);
                Err(fault)
            }
        }
    }

    /// All whole frames; how many bytes they are.
    fn frames(&mut self, bytes: &[u8], now: Instant, events: &mut Vec<Event>) -> Result<usize, Fault> {
        let mut rest = bytes;
        if self.stage == Stage::Preface {
            let common = rest.len().min(PREFACE.len());
            if rest[..common] != PREFACE[..common] {
                return fault(Code::Protocol, "this is not HTTP/2");
            }
            if common < PREFACE.len() {
                return Ok(0);
            }
            (rest, self.stage) = (&rest[common..], Stage::Settings);
        }
        while let Some(head) = Head::parse(rest) {
            if head.length > LARGEST {
                return fault(Code::FrameSize, "a frame is too large");
            }
            let Some(payload) = rest.get(HEAD..HEAD + head.length) else { break };
            self.frame(&head, payload, now, events)?;
            rest = &rest[HEAD + head.length..];
        }
        Ok(bytes.len() - rest.len())
    }

    fn frame(
        &mut self,
        head: &Head,
        payload: &[u8],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        if self.stage == Stage::Settings {
            if head.kind != kind::SETTINGS || head.has(flag::ACK) {
                return fault(Code::Protocol, "the first frame is not SETTINGS");
            }
            self.stage = Stage::Open;
        }
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return fault(Code::Protocol, "a header block is interrupted, or continued before it began");
        }
        self.check_stream(head)?;
        match head.kind {
            kind::DATA => self.on_data(head, payload, now, events),
            kind::HEADERS => {
                self.block = Some(Block::new(head.stream, head.has(flag::END_STREAM)));
                self.on_block(head, frame::content(head, payload)?, now, events)
            }
            kind::CONTINUATION => self.on_block(head, payload, now, events),
            kind::PRIORITY if payload.len() != 5 => self.reject(head.stream, Code::FrameSize, now, events),
            kind::RST_STREAM => {
                frame::number(payload)?;
                self.spend(now)?;
                self.forget(head.stream, events);
                Ok(())
            }
            kind::SETTINGS => self.on_settings(head, payload),
            kind::PUSH_PROMISE => fault(Code::Protocol, "a client can't push"),
            kind::PING => self.on_ping(head, payload),
            kind::WINDOW_UPDATE => self.on_window(head, payload, now, events),
            // No use is made of priorities and of the reason why a client leaves; what is unknown is skipped (section 5.5).
            _ => Ok(()),
        }
    }

    /// Which frames are a stream's, and which the connection's (section 5.1 and 5.1.1).
    fn check_stream(&self, head: &Head) -> Result<(), Fault> {
        let id = head.stream;
        let is_wrong = match head.kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY => id != 0,
            kind::DATA | kind::RST_STREAM => id == 0 || id > self.last,
            kind::WINDOW_UPDATE => id > self.last,
            kind::HEADERS => id.is_multiple_of(2),
            kind::PRIORITY => id == 0,
            kind::CONTINUATION => self.block.as_ref().is_none_or(|block| block.stream != id),
            _ => false,
        };
        if is_wrong { fault(Code::Protocol, "a frame on a stream where it can't be") } else { Ok(()) }
    }

    fn on_data(
        &mut self,
        head: &Head,
        payload: &[u8],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let length = u32::try_from(payload.len()).expect("checked against the largest frame");
        if !self.inward.arrive(length) {
            return fault(Code::FlowControl, "more data than the connection's window");
        }
        let content = frame::content(head, payload)?;
        let (id, is_last) = (head.stream, head.has(flag::END_STREAM));
        if content.is_empty() && !is_last {
            self.spend(now)?;
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else {
            self.read_all(length);
            return self.reject(id, Code::StreamClosed, now, events);
        };
        let (code, is_counted) = if stream.is_heard {
            (Some(Code::StreamClosed), false)
        } else if !stream.inward.arrive(length) {
            (Some(Code::FlowControl), false)
        } else {
            stream.is_heard = is_last;
            ((!stream.count(content.len(), is_last)).then_some(Code::Protocol), true)
        };
        if let Some(code) = code {
            self.read_all(if is_counted { 0 } else { length });
            return self.reject(id, code, now, events);
        }
        self.read(id, payload.len() - content.len());
        events.push(Event::Data { stream: id, bytes: content.to_vec(), is_last });
        Ok(())
    }

    fn on_block(
        &mut self,
        head: &Head,
        piece: &[u8],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let block = self.block.as_mut().expect("there is one, or the frame was refused");
        block.add(piece)?;
        if !head.has(flag::END_HEADERS) {
            return Ok(());
        }
        let Some(block) = self.block.take() else { return Ok(()) };
        let fields = self.decoder.decode(block.bytes())?;
        if block.stream > self.last {
            self.last = block.stream;
            return self.on_request(&block, fields, now, events);
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == block.stream) else {
            return self.reject(block.stream, Code::StreamClosed, now, events);
        };
        let is_sound = block.is_last && request::are_trailers(&fields) && stream.count(0, true);
        if stream.is_heard || !is_sound {
            let code = if stream.is_heard { Code::StreamClosed } else { Code::Protocol };
            return self.reject(block.stream, code, now, events);
        }
        stream.is_heard = true;
        events.push(Event::Data { stream: block.stream, bytes: Vec::new(), is_last: true });
        Ok(())
    }

    fn on_request(
        &mut self,
        block: &Block,
        fields: Vec<crate::Field>,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let (id, is_last) = (block.stream, block.is_last);
        let request = Request::new(fields).and_then(|request| Some((request.length()?, request)));
        let Some((declared, request)) = request else { return self.reject(id, Code::Protocol, now, events) };
        let mut stream =
            Stream { id, window: self.initial, inward: Inward::default(), is_heard: is_last, declared };
        if !stream.count(0, is_last) {
            return self.reject(id, Code::Protocol, now, events);
        }
        if self.streams.len() >= STREAMS || self.is_leaving {
            return self.reject(id, Code::RefusedStream, now, events);
        }
        // Exactly: most connections have one, for hours.
        self.streams.reserve_exact(1);
        self.streams.push(stream);
        events.push(Event::Request { stream: id, request, is_last });
        Ok(())
    }

    fn on_settings(&mut self, head: &Head, payload: &[u8]) -> Result<(), Fault> {
        if head.has(flag::ACK) {
            let sound = Err(Fault { code: Code::FrameSize, what: "an acknowledgement with settings" });
            return if payload.is_empty() { Ok(()) } else { sound };
        }
        if let Some(initial) = settings::initial_window(payload)? {
            let by = initial - mem::replace(&mut self.initial, initial);
            self.streams.iter_mut().try_for_each(|stream| window::grow(&mut stream.window, by))?;
        }
        frame::write(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn on_ping(&mut self, head: &Head, payload: &[u8]) -> Result<(), Fault> {
        if payload.len() != 8 {
            return fault(Code::FrameSize, "a PING has eight bytes");
        }
        if !head.has(flag::ACK) {
            frame::write(&mut self.out, kind::PING, flag::ACK, 0, payload);
        }
        Ok(())
    }

    fn on_window(
        &mut self,
        head: &Head,
        payload: &[u8],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let by = i64::from(frame::number(payload)? & (u32::MAX >> 1));
        if head.stream == 0 {
            return match by {
                0 => fault(Code::Protocol, "a window grows by nothing"),
                by => window::grow(&mut self.window, by),
            };
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == head.stream) else {
            return Ok(());
        };
        match by {
            0 => self.reject(head.stream, Code::Protocol, now, events),
            by if window::grow(&mut stream.window, by).is_err() => {
                self.reject(head.stream, Code::FlowControl, now, events)
            }
            _ => Ok(()),
        }
    }

    /// Ends a stream for what the client did, which it may not do all day.
    fn reject(&mut self, id: u32, code: Code, now: Instant, events: &mut Vec<Event>) -> Result<(), Fault> {
        self.spend(now)?;
        self.forget(id, events);
        self.write_reset(id, code);
        Ok(())
    }

    fn spend(&mut self, now: Instant) -> Result<(), Fault> {
        if self.allowance.take(now) {
            Ok(())
        } else {
            fault(Code::EnhanceYourCalm, "too much of what serves nothing")
        }
    }

    fn forget(&mut self, id: u32, events: &mut Vec<Event>) {
        if self.remove(id).is_some() {
            events.push(Event::Reset { stream: id });
        }
    }
}

/// What is answered. On a stream that is gone, all of it does nothing.
impl Connection {
    /// Header fields: the first, or the last of all. Names are lower case.
    pub fn send_fields<'a>(
        &mut self,
        stream: u32,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        is_last: bool,
    ) {
        if self.find(stream).is_none() {
            return;
        }
        let mut block = Vec::new();
        if !mem::replace(&mut self.has_sent_fields, true) {
            block.push(NO_TABLE);
        }
        fields.into_iter().for_each(|(name, value)| hpack::encode(&mut block, name, value));
        self.write_block(stream, &block, if is_last { flag::END_STREAM } else { 0 });
        if is_last {
            self.close(stream);
        }
    }

    fn write_block(&mut self, stream: u32, block: &[u8], mut flags: u8) {
        let (mut kind, mut rest) = (kind::HEADERS, block);
        while rest.len() > LARGEST {
            let (piece, behind) = rest.split_at(LARGEST);
            frame::write(&mut self.out, kind, flags, stream, piece);
            (kind, rest, flags) = (kind::CONTINUATION, behind, 0);
        }
        frame::write(&mut self.out, kind, flags | flag::END_HEADERS, stream, rest);
    }

    /// As much content as the client has room for; the rest stays in `content`.
    pub fn send(&mut self, stream: u32, content: &mut Bytes) {
        loop {
            let room = self.room(stream).min(content.len()).min(LARGEST);
            let is_enough = room == 0 || self.is_full();
            let Some(open) = self.streams.iter_mut().find(|open| open.id == stream && !is_enough) else {
                break;
            };
            let taken = i64::try_from(room).expect("at most 16 KiB");
            (open.window, self.window) = (open.window - taken, self.window - taken);
            frame::write(&mut self.out, kind::DATA, 0, stream, &content[..room]);
            content.advance(room);
        }
        if content.is_empty() {
            // An empty rest would keep the memory of the whole.
            *content = Bytes::new();
        }
    }

    /// How much content may be sent on a stream now.
    pub fn room(&self, stream: u32) -> usize {
        let room = self.find(stream).map_or(0, |open| open.window.min(self.window));
        usize::try_from(room).unwrap_or(0)
    }

    /// Ends a stream behind its content.
    pub fn finish(&mut self, stream: u32) {
        if self.find(stream).is_some() {
            frame::write(&mut self.out, kind::DATA, flag::END_STREAM, stream, &[]);
            self.close(stream);
        }
    }

    /// Cuts a stream off.
    pub fn reset(&mut self, stream: u32, code: Code) {
        if self.remove(stream).is_some() {
            self.write_reset(stream, code);
        }
    }

    /// So much content of a stream was taken.
    pub fn read(&mut self, stream: u32, bytes: usize) {
        let Some(open) = self.streams.iter_mut().find(|open| open.id == stream) else { return };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(open.inward.unread());
        let by = open.inward.read(bytes).filter(|_| !open.is_heard);
        if let Some(by) = by {
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
        }
        self.read_all(bytes);
    }

    fn read_all(&mut self, bytes: u32) {
        if let Some(by) = self.inward.read(bytes) {
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, 0, &by.to_be_bytes());
        }
    }

    /// No more streams: those that are open go on.
    pub fn leave(&mut self) {
        if !mem::replace(&mut self.is_leaving, true) {
            self.say_goodbye(Code::NoError, "");
        }
    }

    /// There is so much to be sent that nothing more should be read or made.
    pub fn is_full(&self) -> bool {
        self.out.len() >= FULL
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// So much of it was sent.
    pub fn sent(&mut self, bytes: usize) {
        if bytes >= self.out.len() {
            self.out = Vec::new();
        } else {
            self.out.drain(..bytes);
        }
    }

    fn find(&self, id: u32) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }

    /// We have said all. The client need not say more (section 8.1).
    fn close(&mut self, id: u32) {
        if self.remove(id).is_some_and(|stream| !stream.is_heard) {
            self.write_reset(id, Code::NoError);
        }
    }

    fn remove(&mut self, id: u32) -> Option<Stream> {
        let at = self.streams.iter().position(|stream| stream.id == id)?;
        let stream = self.streams.swap_remove(at);
        self.read_all(stream.inward.unread());
        Some(stream)
    }

    fn write_reset(&mut self, id: u32, code: Code) {
        frame::write(&mut self.out, kind::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
    }

    fn say_goodbye(&mut self, code: Code, why: &str) {
        let payload = [&self.last.to_be_bytes()[..], &(code as u32).to_be_bytes(), why.as_bytes()].concat();
        frame::write(&mut self.out, kind::GOAWAY, 0, 0, &payload);
    }
}

#[cfg(test)]
mod tests;
