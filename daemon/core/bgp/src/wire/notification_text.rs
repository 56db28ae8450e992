//! A NOTIFICATION in words: names as IANA has them, and what the data says.

use std::net::Ipv4Addr;

use super::{
    HEADER_LENGTH, Notification, attribute_rules,
    attributes::Field,
    code,
    open::{Capability, capability_name},
    reader::Reader,
};
use crate::Family;

/// Bytes of unknown data that are shown.
const SHOWN: usize = 32;

pub(super) fn code_name(code: u8) -> &'static str {
    match code {
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

/// Names by code, from subcode 1; empty where there is none.
pub(super) fn subcode_name(code: u8, subcode: u8) -> Option<&'static str> {
    let names: &[&str] = match code {
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
            "AS Routing Loop",
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
    names.get(usize::from(subcode).checked_sub(1)?).copied().filter(|name| !name.is_empty())
}

/// What the data says; in hexadecimal where we cannot read it, nothing where there is nothing to say.
pub(super) fn explanation(notification: &Notification) -> Option<String> {
    let data = notification.data.as_slice();
    let known = match notification.code {
        code::HEADER => header(notification.subcode, data),
        code::OPEN => open(notification.subcode, data),
        code::UPDATE => attribute(notification.subcode, data),
        code::FSM => data.first().map(|kind| format!("it was {}", message_name(*kind))),
        code::CEASE => return cease(notification),
        code::REFRESH => refresh(data),
        _ => None,
    };
    known.or_else(|| hex(data))
}

fn header(subcode: u8, data: &[u8]) -> Option<String> {
    match subcode {
        code::header::BAD_LENGTH => Some(format!("length {}", Reader::new(data).u16()?)),
        code::header::BAD_TYPE => Some(format!("type {}", data.first()?)),
        _ => None,
    }
}

fn open(subcode: u8, data: &[u8]) -> Option<String> {
    let mut reader = Reader::new(data);
    match subcode {
        code::open::VERSION => Some(format!("wants version {}", reader.u16()?)),
        // RFC 4271 asks for no data here, but much is sent: the number, two octets wide or four.
        code::open::BAD_PEER_AS => match data.len() {
            2 => Some(format!("AS {}", reader.u16()?)),
            _ => Some(format!("AS {}", reader.u32().filter(|_| reader.is_empty())?)),
        },
        code::open::BAD_IDENTIFIER => {
            Some(Ipv4Addr::from(reader.u32().filter(|_| reader.is_empty())?).to_string())
        }
        code::open::HOLD_TIME => Some(format!("{} s", reader.u16().filter(|_| reader.is_empty())?)),
        code::open::CAPABILITY => capabilities(reader),
        _ => None,
    }
}

/// The capabilities that the sender missed, or could not use (RFC 5492 section 5).
fn capabilities(mut reader: Reader<'_>) -> Option<String> {
    let mut names = Vec::new();
    while let Some(code) = reader.u8() {
        names.push(capability(code, reader.short_block()?));
    }
    (!names.is_empty()).then(|| names.join(", "))
}

fn capability(code: u8, value: &[u8]) -> String {
    let name = capability_name(code);
    match Capability::decode(code, value) {
        Some(Capability::MultiProtocol { afi, safi }) => format!("{name} {}", family(afi, safi)),
        Some(Capability::FourOctetAsn(asn)) => format!("{name} {asn}"),
        _ if name == "capability" => format!("{name} {code}"),
        _ => name.into(),
    }
}

/// The attribute that an UPDATE was refused for (RFC 4271 section 6.3), or the type code of one that it lacked.
fn attribute(subcode: u8, data: &[u8]) -> Option<String> {
    if subcode == code::update::MISSING {
        let code = data.first().filter(|_| data.len() == 1)?;
        return Some(format!("{} ({code})", attribute_rules::name(*code)));
    }
    let field = Field::new(data);
    let raw = field.iter().next().filter(|_| field.complete && field.count == 1)?;
    let head = format!("{} ({}) with flags {:#04x}", attribute_rules::name(raw.code), raw.code, raw.flags);
    Some(match hex(raw.value) {
        Some(value) => format!("{head}, {} octets, {value}", raw.value.len()),
        None => format!("{head}, empty"),
    })
}

fn cease(notification: &Notification) -> Option<String> {
    let data = notification.data.as_slice();
    match notification.subcode {
        code::cease::SHUTDOWN | code::cease::RESET => match Reader::new(data).short_block() {
            Some(text) => quoted(text),
            None => hex(data),
        },
        code::cease::MAX_PREFIXES => max_prefixes(data).or_else(|| hex(data)),
        code::cease::HARD_RESET => match notification.reset_reason() {
            // One inside the other says nothing more, and could go on for a whole message.
            Some(inner) if !inner.is_hard_reset() => Some(inner.to_string()),
            _ => hex(data),
        },
        _ => hex(data),
    }
}

/// RFC 9003 section 2. What is not UTF-8 is shown as far as it is.
fn quoted(text: &[u8]) -> Option<String> {
    let clean = clean(&String::from_utf8_lossy(text));
    (!clean.trim().is_empty()).then(|| format!("\"{}\"", clean.trim()))
}

/// Text for a terminal: a space for everything that would drive it or turn the line around.
fn clean(text: &str) -> String {
    text.chars().map(|character| if is_hostile(character) { ' ' } else { character }).collect()
}

/// Controls, direction marks, characters without a shape, and line breaks of every kind.
fn is_hostile(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn max_prefixes(data: &[u8]) -> Option<String> {
    let mut reader = Reader::new(data);
    let (afi, safi, limit) = (reader.u16()?, reader.u8()?, reader.u32()?);
    Some(format!("limit {limit} of {}", family(afi, safi)))
}

/// The whole message that had the wrong length (RFC 7313 section 5).
fn refresh(data: &[u8]) -> Option<String> {
    let mut reader = Reader::new(data.get(HEADER_LENGTH..)?);
    let (afi, subtype, safi) = (reader.u16()?, reader.u8()?, reader.u8()?);
    Some(format!("{} octets, subtype {subtype} of {}", data.len(), family(afi, safi)))
}

fn family(afi: u16, safi: u8) -> String {
    Family::from_codes(afi, safi)
        .map_or_else(|| format!("AFI {afi} SAFI {safi}"), |family| family.to_string())
}

fn message_name(kind: u8) -> String {
    let names = ["OPEN", "UPDATE", "NOTIFICATION", "KEEPALIVE", "ROUTE-REFRESH"];
    let name = usize::from(kind).checked_sub(1).and_then(|index| names.get(index));
    name.map_or_else(|| format!("message type {kind}"), |name| (*name).into())
}

fn hex(data: &[u8]) -> Option<String> {
    let shown: String = data.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    match data.len() {
        0 => None,
        length if length > SHOWN => Some(format!("data {shown}... ({length} bytes)")),
        _ => Some(format!("data {shown}")),
    }
}
