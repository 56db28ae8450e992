//! The wire format: framing, messages, and what to do about broken ones.
//!
//! Decoding is in two steps. [`frame`] cuts one message out of a byte stream; the message's own `decode` turns its body into a
//! type. A decoder answers a session-ending error with the [`Notification`] that must be sent; lesser faults in an UPDATE
//! (RFC 7606) come back inside [`Update`]. Encoders append to a buffer and fail rather than cut a length short.

mod as_path;
mod attribute_rules;
mod attributes;
mod encode;
mod encode_attributes;
mod nlri;
mod notification;
mod notification_text;
mod open;
mod reader;
mod refresh;
mod role;
mod update;
mod words;

pub use as_path::AsPath;
pub use attributes::{Aggregator, Attributes, Community, LargeCommunity, Opaque, Origin, Rare};
pub use encode::{Encoding, encode_announcement, encode_end_of_rib, encode_withdrawal};
pub use encode_attributes::EncodedAttributes;
pub use nlri::Nlri;
pub(crate) use nlri::encode as encode_nlri;
pub use notification::{Notification, code};
pub use open::{AddPathMode, Capability, Open, RestartFamily};
pub use refresh::RouteRefresh;
pub use role::Role;
pub use update::{Announcement, Disposition, Fault, Peering, Update, UpdateContext};

/// Length of the message header (RFC 4271 section 4.1).
pub const HEADER_LENGTH: usize = 19;
/// Longest message; the extension of RFC 8654 is not offered, so this holds for every message.
pub const MAX_MESSAGE_LENGTH: usize = 4096;

const MARKER: [u8; 16] = [0xff; 16];

/// What could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {length} bytes does not fit into {limit}")]
pub struct EncodeError {
    /// The part that is too long.
    pub what: &'static str,
    /// Its length in bytes.
    pub length: usize,
    /// The most that fits.
    pub limit: usize,
}

/// Message types (RFC 4271 section 4.1, RFC 2918).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// Type 1.
    Open,
    /// Type 2.
    Update,
    /// Type 3.
    Notification,
    /// Type 4.
    Keepalive,
    /// Type 5.
    RouteRefresh,
}

impl MessageType {
    fn code(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Update => 2,
            Self::Notification => 3,
            Self::Keepalive => 4,
            Self::RouteRefresh => 5,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Open, Self::Update, Self::Notification, Self::Keepalive, Self::RouteRefresh]
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    fn accepts(self, length: usize) -> bool {
        match self {
            Self::Open => length >= 29,
            Self::Update => length >= 23,
            Self::Notification => length >= 21,
            Self::Keepalive => length == HEADER_LENGTH,
            // What a wrong length means depends on the subtype and on what was negotiated (RFC 7313 section 5): its decoder says.
            Self::RouteRefresh => length >= HEADER_LENGTH,
        }
    }
}

/// One message of a stream, its body not yet looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Message type.
    pub kind: MessageType,
    /// Everything after the header.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// Length with the header.
    pub fn wire_length(&self) -> usize {
        HEADER_LENGTH + self.body.len()
    }
}

/// The first message of `stream`; `None` while it is incomplete (at most [`MAX_MESSAGE_LENGTH`] bytes are ever needed).
///
/// # Errors
/// The NOTIFICATION of RFC 4271 section 6.1 when the header is wrong.
pub fn frame(stream: &[u8]) -> Result<Option<Frame<'_>>, Notification> {
    let seen = stream.len().min(MARKER.len());
    if stream[..seen] != MARKER[..seen] {
        return Err(Notification::new(code::HEADER, code::header::NOT_SYNCHRONIZED));
    }
    let Some((header, body)) = stream.split_first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
    let [.., high, low, kind_code] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let kind = MessageType::from_code(kind_code)
        .ok_or_else(|| Notification::with_data(code::HEADER, code::header::BAD_TYPE, vec![kind_code]))?;
    if !kind.accepts(length) || length > MAX_MESSAGE_LENGTH {
        return Err(Notification::with_data(code::HEADER, code::header::BAD_LENGTH, vec![high, low]));
    }
    Ok(body.get(..length - HEADER_LENGTH).map(|body| Frame { kind, body }))
}

/// Appends a KEEPALIVE.
pub fn encode_keepalive(out: &mut Vec<u8>) {
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&[0, 19, MessageType::Keepalive.code()]);
}

/// Appends header and body.
fn encode_message(kind: MessageType, body: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode_header(kind, body.len(), out)?;
    out.extend_from_slice(body);
    Ok(())
}

/// Appends the header of a message whose body will have this length.
fn encode_header(kind: MessageType, body: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let length = HEADER_LENGTH + body;
    let field = u16::try_from(length).ok().filter(|_| length <= MAX_MESSAGE_LENGTH);
    let field = field.ok_or(EncodeError { what: "message", length, limit: MAX_MESSAGE_LENGTH })?;
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&field.to_be_bytes());
    out.push(kind.code());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: u16, kind: u8) -> Vec<u8> {
        let mut bytes = MARKER.to_vec();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.push(kind);
        bytes
    }

    #[test]
    fn header_rules() {
        type Outcome = Result<bool, (u8, u8, Vec<u8>)>;
        let cases: &[(Vec<u8>, Outcome)] = &[
            (vec![], Ok(false)),
            (vec![0xff; 18], Ok(false)),
            (header(19, 4), Ok(true)),
            (header(29, 1), Ok(false)),
            (vec![0xff, 0xfe], Err((1, 1, vec![]))),
            (header(18, 4), Err((1, 2, vec![0, 18]))),
            (header(20, 4), Err((1, 2, vec![0, 20]))),
            (header(28, 1), Err((1, 2, vec![0, 28]))),
            (header(22, 2), Err((1, 2, vec![0, 22]))),
            (header(18, 5), Err((1, 2, vec![0, 18]))),
            (header(19, 5), Ok(true)),
            (header(24, 5), Ok(false)),
            (header(4097, 2), Err((1, 2, vec![0x10, 0x01]))),
            (header(19, 0), Err((1, 3, vec![0]))),
            (header(19, 6), Err((1, 3, vec![6]))),
        ];
        for (bytes, expected) in cases {
            let got = frame(bytes).map(|f| f.is_some()).map_err(|n| (n.code, n.subcode, n.data));
            assert_eq!(&got, expected, "{bytes:x?}");
        }
    }

    #[test]
    fn keepalive_is_framed_as_written() {
        let mut bytes = Vec::new();
        encode_keepalive(&mut bytes);
        bytes.push(0xff);
        let frame = frame(&bytes).unwrap().unwrap();
        assert_eq!((frame.kind, frame.wire_length()), (MessageType::Keepalive, 19));
    }

    #[test]
    fn too_long_is_an_error_not_a_short_length() {
        let mut out = Vec::new();
        assert!(encode_message(MessageType::Update, &[0; 4078], &mut out).is_err());
        assert!(out.is_empty());
        assert!(encode_message(MessageType::Update, &[0; 4077], &mut out).is_ok());
    }
}
