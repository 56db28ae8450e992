//! Frames (RFC 9113 section 4 and 6) and error codes (section 7).

/// Bytes of a frame before its payload.
pub(crate) const HEAD: usize = 9;
/// Largest payload that is taken, and the largest that is sent: the smallest that anybody may demand.
pub(crate) const LARGEST: usize = 16_384;
/// What a client sends first (section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Error codes (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Code {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Cancel = 8,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// Why a connection is over. The client is at fault, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client broke HTTP/2: {what} ({code:?})")]
pub struct Fault {
    /// What the client is told.
    pub code: Code,
    /// For people.
    pub what: &'static str,
}

/// Shorter to write where it is found.
pub(crate) fn fault<T>(code: Code, what: &'static str) -> Result<T, Fault> {
    Err(Fault { code, what })
}

/// What stands before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    /// `None`: not all of it is there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<HEAD>()?;
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let stream = u32::from_be_bytes(*stream) & (u32::MAX >> 1);
        Some(Self { length, kind: *kind, flags: *flags, stream })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a frame whose payload is at most [`LARGEST`].
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a payload is at most 16 KiB").to_be_bytes();
    // Most of what is written is a single frame, and is sent before the next.
    if out.is_empty() {
        out.reserve_exact(HEAD + payload.len());
    }
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A payload without its padding (section 6.1); what is said about priority is skipped (section 6.2).
pub(crate) fn content<'a>(head: &Head, mut payload: &'a [u8]) -> Result<&'a [u8], Fault> {
    let short = Fault { code: Code::FrameSize, what: "a frame ends before its fields" };
    if head.has(flag::PADDED) {
        let (padding, rest) = payload.split_first().ok_or(short)?;
        let left = rest.len().checked_sub(usize::from(*padding));
        let left = left.ok_or(Fault { code: Code::Protocol, what: "a frame is all padding and more" })?;
        payload = &rest[..left];
    }
    if head.kind == kind::HEADERS && head.has(flag::PRIORITY) {
        payload = payload.get(5..).ok_or(short)?;
    }
    Ok(payload)
}

/// Four bytes and no other number of them.
pub(crate) fn number(payload: &[u8]) -> Result<u32, Fault> {
    let bytes = payload.try_into();
    bytes
        .map(u32::from_be_bytes)
        .map_err(|_| Fault { code: Code::FrameSize, what: "a frame of four bytes has another length" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_was_written() {
        let mut out = Vec::new();
        write(&mut out, kind::DATA, flag::END_STREAM, 7, b"abc");
        let head = Head { length: 3, kind: kind::DATA, flags: 1, stream: 7 };
        assert_eq!(Head::parse(&out), Some(head));
        assert_eq!(Head::parse(&out[..8]), None);
    }

    #[test]
    fn padding_and_priority_are_cut_off() {
        let head = |flags| Head { length: 0, kind: kind::HEADERS, flags, stream: 1 };
        assert_eq!(content(&head(flag::PADDED), &[2, 7, 8, 0, 0]), Ok(&[7, 8][..]));
        assert_eq!(content(&head(flag::PADDED | flag::PRIORITY), &[1, 0, 0, 0, 0, 0, 9, 0]), Ok(&[9][..]));
        assert_eq!(content(&head(flag::PADDED), &[]).map_err(|fault| fault.code), Err(Code::FrameSize));
        assert_eq!(content(&head(flag::PADDED), &[3, 0, 0]).map_err(|fault| fault.code), Err(Code::Protocol));
        assert_eq!(content(&head(flag::PRIORITY), &[0; 4]).map_err(|fault| fault.code), Err(Code::FrameSize));
    }
}
