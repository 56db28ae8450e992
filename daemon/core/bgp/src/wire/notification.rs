//! NOTIFICATION: why a session ends, in numbers for the peer and in words for a person.

use std::fmt;

use super::{EncodeError, MessageType, encode_message, reader::Reader};
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
    }

    /// Subcodes of [`UPDATE`].
    pub mod update {
        /// Malformed Attribute List.
        pub const ATTRIBUTE_LIST: u8 = 1;
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
        /// BFD Down (RFC 9384).
        pub const BFD_DOWN: u8 = 10;
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

    /// Name of the code, as IANA has it.
    pub fn code_name(&self) -> &'static str {
        match self.code {
            1 => "Message Header Error",
            2 => "OPEN Message Error",
            3 => "UPDATE Message Error",
            4 => "Hold Timer Expired",
            5 => "Finite State Machine Error",
            6 => "Cease",
            7 => "ROUTE-REFRESH Message Error",
            8 => "Send Hold Timer Expired",
            _ => "unknown error code",
        }
    }

    /// Name of the subcode; `None` for zero and for unknown ones.
    pub fn subcode_name(&self) -> Option<&'static str> {
        let names: &[&str] = match self.code {
            1 => &["Connection Not Synchronized", "Bad Message Length", "Bad Message Type"],
            2 => &[
                "Unsupported Version Number",
                "Bad Peer AS",
                "Bad BGP Identifier",
                "Unsupported Optional Parameter",
                "Authentication Failure",
                "Unacceptable Hold Time",
                "Unsupported Capability",
                "",
                "",
                "",
                "Role Mismatch",
            ],
            3 => &[
                "Malformed Attribute List",
                "Unrecognized Well-known Attribute",
                "Missing Well-known Attribute",
                "Attribute Flags Error",
                "Attribute Length Error",
                "Invalid ORIGIN Attribute",
                "",
                "Invalid NEXT_HOP Attribute",
                "Optional Attribute Error",
                "Invalid Network Field",
                "Malformed AS_PATH",
            ],
            5 => &[
                "Unexpected Message in OpenSent State",
                "Unexpected Message in OpenConfirm State",
                "Unexpected Message in Established State",
            ],
            6 => &[
                "Maximum Number of Prefixes Reached",
                "Administrative Shutdown",
                "Peer De-configured",
                "Administrative Reset",
                "Connection Rejected",
                "Other Configuration Change",
                "Connection Collision Resolution",
                "Out of Resources",
                "Hard Reset",
                "BFD Down",
            ],
            7 => &["Invalid Message Length"],
            _ => &[],
        };
        names.get(usize::from(self.subcode).checked_sub(1)?).copied().filter(|name| !name.is_empty())
    }

    /// What the data says, where we know how to read it.
    pub fn explanation(&self) -> Option<String> {
        match (self.code, self.subcode) {
            (code::CEASE, code::cease::SHUTDOWN | code::cease::RESET) => shutdown_text(&self.data),
            (code::CEASE, code::cease::MAX_PREFIXES) => max_prefixes_text(&self.data),
            (code::OPEN, code::open::VERSION) => {
                Some(format!("wants version {}", Reader::new(&self.data).u16()?))
            }
            (code::OPEN, code::open::BAD_PEER_AS) => None,
            (code::HEADER, code::header::BAD_LENGTH) => {
                Some(format!("length {}", Reader::new(&self.data).u16()?))
            }
            _ if self.data.is_empty() => None,
            _ => Some(format!("data {}", hex(&self.data))),
        }
    }
}

/// RFC 9003 section 2: one length octet, then UTF-8. Control characters would write over an operator's terminal.
fn shutdown_text(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(Reader::new(data).short_block()?).ok()?;
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    (!clean.trim().is_empty()).then(|| format!("\"{}\"", clean.trim()))
}

fn max_prefixes_text(data: &[u8]) -> Option<String> {
    let mut reader = Reader::new(data);
    let (afi, safi, limit) = (reader.u16()?, reader.u8()?, reader.u32()?);
    let family = Family::from_codes(afi, safi).map_or(format!("AFI {afi} SAFI {safi}"), |f| f.to_string());
    Some(format!("limit {limit} of {family}"))
}

fn hex(data: &[u8]) -> String {
    let shown = data.iter().take(32).map(|byte| format!("{byte:02x}")).collect::<String>();
    if data.len() > 32 { format!("{shown}... ({} bytes)", data.len()) } else { shown }
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
