//! The four messages on the wire (WireGuard paper, section 5.4). All integers are little-endian.

/// Length of an initiation in bytes.
pub(crate) const INITIATION: usize = 148;
/// Length of a response in bytes.
pub(crate) const RESPONSE: usize = 92;
/// Length of a cookie reply in bytes.
pub(crate) const COOKIE_REPLY: usize = 64;
/// Bytes in front of the ciphertext of a transport message.
pub(crate) const HEADER: usize = 16;
/// A transport message of an empty packet: a keepalive.
pub(crate) const KEEPALIVE: usize = HEADER + super::aead::TAG;

/// Type bytes, each followed by three zeros.
pub(crate) mod kind {
    pub(crate) const INITIATION: [u8; 4] = [1, 0, 0, 0];
    pub(crate) const RESPONSE: [u8; 4] = [2, 0, 0, 0];
    pub(crate) const COOKIE_REPLY: [u8; 4] = [3, 0, 0, 0];
    pub(crate) const DATA: [u8; 4] = [4, 0, 0, 0];
}

/// A datagram that has the form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Initiation(&'a [u8; INITIATION]),
    Response(&'a [u8; RESPONSE]),
    CookieReply(&'a [u8; COOKIE_REPLY]),
    /// The rest is ciphertext.
    Data {
        receiver: u32,
        counter: u64,
    },
}

impl<'a> Message<'a> {
    /// `None`: no message; its length or its first four bytes are wrong.
    pub(crate) fn parse(datagram: &'a [u8]) -> Option<Self> {
        match *datagram.first_chunk()? {
            kind::INITIATION => datagram.try_into().ok().map(Self::Initiation),
            kind::RESPONSE => datagram.try_into().ok().map(Self::Response),
            kind::COOKIE_REPLY => datagram.try_into().ok().map(Self::CookieReply),
            kind::DATA if datagram.len() >= KEEPALIVE => {
                let counter = datagram.get(8..)?.first_chunk()?;
                Some(Self::Data { receiver: word(datagram, 4)?, counter: u64::from_le_bytes(*counter) })
            }
            _ => None,
        }
    }

    /// The index that the receiver of a message gave to its session; an initiation has none.
    pub(crate) fn receiver(&self) -> Option<u32> {
        match self {
            Self::Initiation(_) => None,
            Self::Response(message) => word(*message, 8),
            Self::CookieReply(message) => word(*message, 4),
            Self::Data { receiver, .. } => Some(*receiver),
        }
    }
}

/// The integer at this offset.
pub(crate) fn word(message: &[u8], at: usize) -> Option<u32> {
    message.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The index of the session that a handshake message is to begin, at its sender.
pub(crate) fn sender(message: &[u8]) -> Option<u32> {
    word(message, 4)
}

/// Writes the header of a transport message.
pub(crate) fn write_header(into: &mut [u8; HEADER], receiver: u32, counter: u64) {
    into[..4].copy_from_slice(&kind::DATA);
    into[4..8].copy_from_slice(&receiver.to_le_bytes());
    into[8..].copy_from_slice(&counter.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_of_every_type() {
        for length in 0..200 {
            for first in 0..6 {
                let mut datagram = vec![0; length];
                if let Some(byte) = datagram.first_mut() {
                    *byte = first;
                }
                let sound = matches!((first, length), (1, 148) | (2, 92) | (3, 64) | (4, 32..));
                assert_eq!(Message::parse(&datagram).is_some(), sound, "type {first}, length {length}");
                if sound {
                    datagram[3] = 1;
                    assert_eq!(Message::parse(&datagram), None, "the reserved bytes are zero");
                }
            }
        }
    }

    #[test]
    fn header_comes_back() {
        let mut datagram = [0; KEEPALIVE];
        write_header(datagram.first_chunk_mut().unwrap(), 0x0102_0304, u64::MAX - 1);
        let message = Message::parse(&datagram).unwrap();
        assert_eq!(message, Message::Data { receiver: 0x0102_0304, counter: u64::MAX - 1 });
        assert_eq!(message.receiver(), Some(0x0102_0304));
        assert_eq!(datagram[4..8], [4, 3, 2, 1]);
    }
}
