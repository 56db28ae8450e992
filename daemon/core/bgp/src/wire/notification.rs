//! NOTIFICATION: why a session ends, in numbers for the peer and in words for a person.

use std::fmt;

use super::{EncodeError, MessageType, encode_message, notification_text};
use crate::Family;

/// Error codes and subcodes, as registered with IANA.
pub mod code {
    /// Message Header Error.
    pub const HEADER: u8 = 1;
    /// OPEN Message Error.
    pub const OPEN: u8 = 2;
    /// UPDATE Message Error.
    pub const UPDATE: u8 = 3;
    /// Hold Timer Expired.
    pub const HOLD_TIMER: u8 = 4;
    /// Finite State Machine Error.
    pub const FSM: u8 = 5;
    /// Cease.
    pub const CEASE: u8 = 6;
    /// ROUTE-REFRESH Message Error (RFC 7313).
    pub const REFRESH: u8 = 7;
    /// Send Hold Timer Expired (RFC 9687).
    pub const SEND_HOLD_TIMER: u8 = 8;

    /// Subcodes of [`HEADER`].
    pub mod header {
        /// Connection Not Synchronized.
        pub const NOT_SYNCHRONIZED: u8 = 1;
        /// Bad Message Length.
        pub const BAD_LENGTH: u8 = 2;
        /// Bad Message Type.
        pub const BAD_TYPE: u8 = 3;
    }

    /// Subcodes of [`OPEN`].
    pub mod open {
        /// Unspecific.
        pub const UNSPECIFIC: u8 = 0;
        /// Unsupported Version Number.
        pub const VERSION: u8 = 1;
        /// Bad Peer AS.
        pub const BAD_PEER_AS: u8 = 2;
        /// Bad BGP Identifier.
        pub const BAD_IDENTIFIER: u8 = 3;
        /// Unsupported Optional Parameter.
        pub const PARAMETER: u8 = 4;
        /// Unacceptable Hold Time.
        pub const HOLD_TIME: u8 = 6;
        /// Unsupported Capability (RFC 5492).
        pub const CAPABILITY: u8 = 7;
        /// Role Mismatch (RFC 9234).
        pub const ROLE_MISMATCH: u8 = 11;
    }

    /// Subcodes of [`UPDATE`].
    pub mod update {
        /// Malformed Attribute List.
        pub const ATTRIBUTE_LIST: u8 = 1;
        /// Missing Well-known Attribute.
        pub const MISSING: u8 = 3;
        /// Optional Attribute Error.
        pub const OPTIONAL_ATTRIBUTE: u8 = 9;
        /// Invalid Network Field.
        pub const NETWORK_FIELD: u8 = 10;
    }

    /// Subcodes of [`CEASE`] (RFC 4486).
    pub mod cease {
        /// Maximum Number of Prefixes Reached.
        pub const MAX_PREFIXES: u8 = 1;
        /// Administrative Shutdown.
        pub const SHUTDOWN: u8 = 2;
        /// Peer De-configured.
        pub const DECONFIGURED: u8 = 3;
        /// Administrative Reset.
        pub const RESET: u8 = 4;
        /// Connection Rejected.
        pub const REJECTED: u8 = 5;
        /// Other Configuration Change.
        pub const CONFIGURATION: u8 = 6;
        /// Connection Collision Resolution.
        pub const COLLISION: u8 = 7;
        /// Out of Resources.
        pub const OUT_OF_RESOURCES: u8 = 8;
        /// Hard Reset (RFC 8538).
        pub const HARD_RESET: u8 = 9;
        /// BFD Down (RFC 9384).
        pub const BFD_DOWN: u8 = 10;
    }

    /// Subcodes of [`REFRESH`].
    pub mod refresh {
        /// Invalid Message Length.
        pub const LENGTH: u8 = 1;
    }
}

/// A NOTIFICATION message (RFC 4271 section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Error code.
    pub code: u8,
    /// Error subcode.
    pub subcode: u8,
    /// What the code needs to be understood.
    pub data: Vec<u8>,
}

impl Notification {
    /// Without data.
    pub fn new(code: u8, subcode: u8) -> Self {
        Self::with_data(code, subcode, Vec::new())
    }

    /// With data.
    pub fn with_data(code: u8, subcode: u8, data: Vec<u8>) -> Self {
        Self { code, subcode, data }
    }

    /// Cease with a sentence for the far side's operator (RFC 9003), cut to the 255 bytes that fit.
    pub fn shutdown(subcode: u8, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(255)];
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        Self::with_data(code::CEASE, subcode, [&[length], text.as_bytes()].concat())
    }

    /// Cease/1 with the limit that was passed (RFC 4486 section 4).
    pub fn max_prefixes(family: Family, limit: u32) -> Self {
        let mut data = family.afi().to_be_bytes().to_vec();
        data.push(family.safi());
        data.extend_from_slice(&limit.to_be_bytes());
        Self::with_data(code::CEASE, code::cease::MAX_PREFIXES, data)
    }

    /// Decodes a message body.
    ///
    /// # Errors
    /// Bad Message Length when it has no code and subcode; nothing is sent in answer to a NOTIFICATION, the connection just closes.
    pub fn decode(body: &[u8]) -> Result<Self, Self> {
        match body {
            [code, subcode, data @ ..] => Ok(Self::with_data(*code, *subcode, data.to_vec())),
            _ => Err(Self::new(code::HEADER, code::header::BAD_LENGTH)),
        }
    }

    /// Appends the message.
    ///
    /// # Errors
    /// Data longer than a message can hold.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let body = [&[self.code, self.subcode], self.data.as_slice()].concat();
        encode_message(MessageType::Notification, &body, out)
    }

    /// Cease/9 around the reason why everything is forgotten (RFC 8538 section 3).
    pub fn hard_reset(reason: &Self) -> Self {
        let data = [&[reason.code, reason.subcode], reason.data.as_slice()].concat();
        Self::with_data(code::CEASE, code::cease::HARD_RESET, data)
    }

    /// True for a Hard Reset: routes are not kept, whatever was negotiated.
    pub fn is_hard_reset(&self) -> bool {
        (self.code, self.subcode) == (code::CEASE, code::cease::HARD_RESET)
    }

    /// The reason inside a Hard Reset, if the sender gave one.
    pub fn reset_reason(&self) -> Option<Self> {
        self.is_hard_reset().then(|| Self::decode(&self.data).ok()).flatten()
    }

    /// Name of the code, as IANA has it.
    pub fn code_name(&self) -> &'static str {
        notification_text::code_name(self.code)
    }

    /// Name of the subcode; `None` for zero and for unknown ones.
    pub fn subcode_name(&self) -> Option<&'static str> {
        notification_text::subcode_name(self.code, self.subcode)
    }

    /// What the data says, safe on a terminal; in hexadecimal where we cannot read it.
    pub fn explanation(&self) -> Option<String> {
        notification_text::explanation(self)
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code_name())?;
        match self.subcode_name() {
            Some(name) => write!(f, "/{name}")?,
            None if self.subcode != 0 || self.code_name().starts_with("unknown") => {
                write!(f, " ({}/{})", self.code, self.subcode)?;
            }
            None => {}
        }
        self.explanation().map_or(Ok(()), |text| write!(f, ": {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_it_means() {
        let cases = [
            (Notification::shutdown(2, "back at 10"), "Cease/Administrative Shutdown: \"back at 10\""),
            (Notification::shutdown(2, ""), "Cease/Administrative Shutdown"),
            (
                Notification::max_prefixes(Family::Ipv4Unicast, 100),
                "Cease/Maximum Number of Prefixes Reached: limit 100 of ipv4-unicast",
            ),
            (Notification::new(4, 0), "Hold Timer Expired"),
            (
                Notification::with_data(2, 1, vec![0, 4]),
                "OPEN Message Error/Unsupported Version Number: wants version 4",
            ),
            (Notification::with_data(6, 77, vec![1]), "Cease (6/77): data 01"),
            (Notification::new(99, 0), "unknown error code (99/0)"),
            (Notification::new(6, 8), "Cease/Out of Resources"),
            (Notification::new(6, 10), "Cease/BFD Down"),
            (Notification::new(2, 11), "OPEN Message Error/Role Mismatch"),
            (Notification::new(8, 0), "Send Hold Timer Expired"),
            (
                Notification::with_data(2, 2, vec![0, 1, 0x11, 0x70]),
                "OPEN Message Error/Bad Peer AS: AS 70000",
            ),
            (Notification::with_data(2, 2, vec![0xfd, 0xe9]), "OPEN Message Error/Bad Peer AS: AS 65001"),
            (
                Notification::with_data(2, 3, vec![10, 0, 0, 1]),
                "OPEN Message Error/Bad BGP Identifier: 10.0.0.1",
            ),
            (Notification::with_data(2, 6, vec![0, 2]), "OPEN Message Error/Unacceptable Hold Time: 2 s"),
            (
                Notification::with_data(2, 7, vec![1, 4, 0, 2, 0, 1, 65, 4, 0, 1, 0x11, 0x70, 2, 0, 200, 0]),
                "OPEN Message Error/Unsupported Capability: multiprotocol ipv6-unicast, 4-octet AS number 70000, \
                 route refresh, capability 200",
            ),
            (
                Notification::with_data(2, 7, vec![1, 4, 0]),
                "OPEN Message Error/Unsupported Capability: data 010400",
            ),
            (
                Notification::with_data(3, 5, vec![0x80, 4, 3, 1, 2, 3]),
                "UPDATE Message Error/Attribute Length Error: MULTI_EXIT_DISC (4) with flags 0x80, 3 octets, \
                 data 010203",
            ),
            (
                Notification::with_data(3, 3, vec![3]),
                "UPDATE Message Error/Missing Well-known Attribute: NEXT_HOP (3)",
            ),
            (
                Notification::with_data(5, 3, vec![1]),
                "Finite State Machine Error/Unexpected Message in Established State: it was OPEN",
            ),
            (Notification::new(6, 9), "Cease/Hard Reset"),
            (
                Notification::hard_reset(&Notification::shutdown(4, "new keys")),
                "Cease/Hard Reset: Cease/Administrative Reset: \"new keys\"",
            ),
            (
                Notification::hard_reset(&Notification::hard_reset(&Notification::new(4, 0))),
                "Cease/Hard Reset: data 06090400",
            ),
            (
                Notification::with_data(6, 4, vec![7, b'a', 0xe2, 0x80, 0xae, b'b', 0xff, b'c']),
                "Cease/Administrative Reset: \"a b\u{fffd}c\"",
            ),
            (Notification::with_data(6, 2, vec![9, b'a']), "Cease/Administrative Shutdown: data 0961"),
            (
                Notification::with_data(6, 2, vec![3, b'a', 0x1b, b'b']),
                "Cease/Administrative Shutdown: \"a b\"",
            ),
        ];
        for (notification, text) in cases {
            assert_eq!(notification.to_string(), text);
        }
    }

    #[test]
    fn hard_reset_holds_its_reason() {
        let reason = Notification::max_prefixes(Family::Ipv6Unicast, 7);
        let reset = Notification::hard_reset(&reason);
        assert_eq!((reset.code, reset.subcode), (6, 9));
        assert_eq!(reset.reset_reason(), Some(reason.clone()));
        assert_eq!(reason.reset_reason(), None);
        assert_eq!(Notification::new(6, 9).reset_reason(), None, "a bare one is one all the same");
        assert!(Notification::new(6, 9).is_hard_reset());
    }

    #[test]
    fn max_prefixes_data_is_what_cloud_gateways_send() {
        assert_eq!(Notification::max_prefixes(Family::Ipv4Unicast, 100).data, [0, 1, 1, 0, 0, 0, 100]);
    }

    #[test]
    fn long_shutdown_text_is_cut_at_a_character() {
        let notification = Notification::shutdown(2, &"ü".repeat(200));
        assert_eq!(notification.data[0], 254);
        assert_eq!(notification.data.len(), 255);
        assert!(notification.explanation().unwrap().starts_with("\"ü"));
    }
}
