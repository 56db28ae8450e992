//! What two Isthmus nodes say to each other about their path, as authenticated inner payloads.
//!
//! ```text
//!  0       1       2       3       4               8       10              16
//! +-------+-------+-------+-------+---------------+-------+---------------+- - - -
//! | 0xf1  |version| kind  |   0   |  id           | size  |       0       | padding
//! +-------+-------+-------+-------+---------------+-------+---------------+- - - -
//! ```
//! Numbers are big-endian. The first nibble, where an IP packet has its version, is 15: reserved in IANA's registry of IP version
//! numbers, so it will never be a packet's, and other implementations drop it. `size` counts the bytes of a payload, padding included:
//! that of this message in a HELLO and a PROBE, and in an ACK that of the message which arrived. The two ends may see different outer
//! headers (NAT64), but never a different payload.

use thiserror::Error;

/// First byte of every message.
pub const MAGIC: u8 = 0xf1;
/// Bytes without padding; the length of all messages but probes. A multiple of 16, so that a tunnel pads nothing.
pub const LENGTH: usize = 16;
const VERSION: u8 = 1;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// "This is Isthmus; are you?" As small as it gets.
    Hello,
    /// "Does this size arrive?"
    Probe,
    /// "A message with this identifier arrived, and it had this size."
    Ack,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is for.
    pub kind: Kind,
    /// Chosen at random by who asks, repeated by who answers.
    pub id: u32,
    /// Bytes of payload: of this message, or for [`Kind::Ack`] of the one that arrived.
    pub size: u16,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Does not begin with [`MAGIC`]: an IP packet, or something of another implementation.
    #[error("not a path message")]
    Magic,
    /// Ends within the header.
    #[error("{0} bytes, but a path message has at least {LENGTH}")]
    Short(usize),
    /// A version from the future.
    #[error("path message of version {0}, this node speaks {VERSION}; one of the two nodes is older")]
    Version(u8),
    /// A kind that this version does not have.
    #[error("path message of unknown kind {0}")]
    Kind(u8),
}

impl Message {
    /// Reads a payload as it came out of the tunnel.
    ///
    /// # Errors
    /// When it is none of ours.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        if payload.first() != Some(&MAGIC) {
            return Err(Malformed::Magic);
        }
        let header: &[u8; LENGTH] = payload.first_chunk().ok_or(Malformed::Short(payload.len()))?;
        let [_, version, kind, _, a, b, c, d, high, low, ..] = *header;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let kind = Kind::from_code(kind).ok_or(Malformed::Kind(kind))?;
        Ok(Self { kind, id: u32::from_be_bytes([a, b, c, d]), size: u16::from_be_bytes([high, low]) })
    }

    /// Bytes of payload that the message takes: a probe is as long as it says.
    pub fn length(&self) -> usize {
        match self.kind {
            Kind::Probe => usize::from(self.size).max(LENGTH),
            Kind::Hello | Kind::Ack => LENGTH,
        }
    }

    /// Writes the payload.
    ///
    /// # Panics
    /// If `into` does not have exactly [`Message::length`] bytes.
    pub fn encode(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.length(), "a message has one length");
        let (header, padding) = into.split_at_mut(LENGTH);
        let ([a, b, c, d], [high, low]) = (self.id.to_be_bytes(), self.size.to_be_bytes());
        header.copy_from_slice(&[
            MAGIC,
            VERSION,
            self.kind.code(),
            0,
            a,
            b,
            c,
            d,
            high,
            low,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        padding.fill(0);
    }

    /// What to answer to a message that arrived with `arrived` bytes of payload: nothing to an ACK. An answer is never longer than
    /// what it answers.
    pub fn reply(&self, arrived: usize) -> Option<Self> {
        let size = u16::try_from(arrived).ok()?;
        (self.kind != Kind::Ack).then_some(Self { kind: Kind::Ack, id: self.id, size })
    }
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Probe => 2,
            Self::Ack => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Hello, Self::Probe, Self::Ack].into_iter().find(|kind| kind.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(message: Message) -> Vec<u8> {
        let mut bytes = vec![0xff; message.length()];
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn format_is_fixed() {
        let probe = encoded(Message { kind: Kind::Probe, id: 0x0102_0304, size: 1420 });
        assert_eq!(probe[..16], [0xf1, 1, 2, 0, 1, 2, 3, 4, 0x05, 0x8c, 0, 0, 0, 0, 0, 0]);
        assert_eq!((probe.len(), probe.iter().skip(16).all(|byte| *byte == 0)), (1420, true));
        assert_eq!(encoded(Message { kind: Kind::Ack, id: 1, size: 1420 }).len(), 16);
        assert_eq!(encoded(Message { kind: Kind::Probe, id: 1, size: 3 }).len(), 16);
    }

    #[test]
    fn faults_are_told_apart() {
        let good = encoded(Message { kind: Kind::Hello, id: 7, size: 16 });
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Message::decode(&bytes)
        };
        assert_eq!(with(0, 0x45), Err(Malformed::Magic));
        assert_eq!(with(1, 2), Err(Malformed::Version(2)));
        assert_eq!(with(2, 0), Err(Malformed::Kind(0)));
        assert_eq!(with(2, 4), Err(Malformed::Kind(4)));
        assert_eq!(Message::decode(&good[..15]), Err(Malformed::Short(15)));
        assert_eq!(Message::decode(&[]), Err(Malformed::Magic));
    }

    #[test]
    fn answers_tell_what_arrived_and_are_not_answered() {
        let probe = Message { kind: Kind::Probe, id: 9, size: 1420 };
        let ack = probe.reply(1300).unwrap();
        assert_eq!(ack, Message { kind: Kind::Ack, id: 9, size: 1300 });
        assert_eq!(ack.reply(16), None);
        assert_eq!(probe.reply(70_000), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), ours in any::<bool>()) {
            if let (true, Some(first)) = (ours, bytes.first_mut()) {
                *first = MAGIC;
            }
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&encoded(message)), Ok(message));
                prop_assert!(message.reply(bytes.len()).is_none_or(|reply| reply.length() <= bytes.len()));
            }
        }

        #[test]
        fn what_is_written_is_read(kind in prop_oneof![Just(Kind::Hello), Just(Kind::Probe), Just(Kind::Ack)], id: u32, size: u16) {
            let message = Message { kind, id, size };
            prop_assert_eq!(Message::decode(&encoded(message)), Ok(message));
        }
    }
}
