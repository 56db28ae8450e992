//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use super::{EncodeError, MessageType, Notification, code, encode_message};
use crate::Family;

/// Octets of the body.
const LENGTH: usize = 4;

/// A request to send a family again, or a mark around such a sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRefresh {
    /// Address family identifier, known to us or not.
    pub afi: u16,
    /// [`RouteRefresh::REQUEST`], [`RouteRefresh::BEGIN`], [`RouteRefresh::END`]; others are to be ignored (RFC 7313 section 5).
    pub subtype: u8,
    /// Subsequent address family identifier.
    pub safi: u8,
}

impl RouteRefresh {
    /// Send the family again.
    pub const REQUEST: u8 = 0;
    /// BoRR: from here on everything comes again.
    pub const BEGIN: u8 = 1;
    /// EoRR: what has not come again by now is gone.
    pub const END: u8 = 2;

    /// A message about a family of ours.
    pub fn new(family: Family, subtype: u8) -> Self {
        Self { afi: family.afi(), subtype, safi: family.safi() }
    }

    /// The family, if it is one of ours.
    pub fn family(&self) -> Option<Family> {
        Family::from_codes(self.afi, self.safi)
    }

    /// Decodes a message body; `enhanced`: both sides sent the capability of RFC 7313, without which its section 5 does not apply.
    ///
    /// # Errors
    /// Not four octets: 7/1 with the whole message for BoRR and EoRR, else Bad Message Length. But a subtype that RFC 7313 does not know
    /// is to be ignored however long it is, and so never an error; what it lacks is zero.
    pub fn decode(body: &[u8], enhanced: bool) -> Result<Self, Notification> {
        match *body {
            [high, low, subtype, safi] => Ok(Self { afi: u16::from_be_bytes([high, low]), subtype, safi }),
            [_, _, Self::BEGIN | Self::END, ..] if enhanced => Err(wrong_length(body)),
            [high, low, subtype, ref rest @ ..] if enhanced && subtype != Self::REQUEST => {
                let safi = rest.first().copied().unwrap_or_default();
                Ok(Self { afi: u16::from_be_bytes([high, low]), subtype, safi })
            }
            _ => Err(bad_length(body)),
        }
    }

    /// Appends the message.
    ///
    /// # Errors
    /// None in practice: it always fits.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let [high, low] = self.afi.to_be_bytes();
        let body: [u8; LENGTH] = [high, low, self.subtype, self.safi];
        encode_message(MessageType::RouteRefresh, &body, out)
    }
}

fn wrong_length(body: &[u8]) -> Notification {
    let mut message = Vec::new();
    // A longer one came in a message and fits into one, but beside the NOTIFICATION's own two octets it may not.
    let body = &body[..body.len().min(super::MAX_MESSAGE_LENGTH - 2 * super::HEADER_LENGTH - 2)];
    match encode_message(MessageType::RouteRefresh, body, &mut message) {
        Ok(()) => Notification::with_data(code::REFRESH, code::refresh::LENGTH, message),
        Err(_) => Notification::new(code::REFRESH, code::refresh::LENGTH),
    }
}

fn bad_length(body: &[u8]) -> Notification {
    let length = u16::try_from(super::HEADER_LENGTH + body.len()).unwrap_or(u16::MAX);
    Notification::with_data(code::HEADER, code::header::BAD_LENGTH, length.to_be_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame;

    #[test]
    fn round_trip() {
        for (family, subtype) in [(Family::Ipv4Unicast, RouteRefresh::REQUEST), (Family::Ipv6Unicast, 2)] {
            let mut bytes = Vec::new();
            let refresh = RouteRefresh::new(family, subtype);
            refresh.encode(&mut bytes).unwrap();
            let body = frame(&bytes).unwrap().unwrap().body;
            assert_eq!(RouteRefresh::decode(body, true), Ok(refresh));
            assert_eq!(RouteRefresh::decode(body, false), Ok(refresh));
            assert_eq!(refresh.family(), Some(family));
        }
    }

    #[test]
    fn four_octets_exactly() {
        let refused = |body: &[u8], enhanced| {
            let refused = RouteRefresh::decode(body, enhanced).unwrap_err();
            (refused.code, refused.subcode, refused.data)
        };
        for enhanced in [false, true] {
            assert_eq!(
                RouteRefresh::decode(&[0, 2, 0, 1], enhanced),
                Ok(RouteRefresh { afi: 2, subtype: 0, safi: 1 })
            );
            assert_eq!(refused(&[], enhanced), (1, 2, vec![0, 19]));
            assert_eq!(refused(&[0, 2, 0], enhanced), (1, 2, vec![0, 22]));
            assert_eq!(refused(&[0, 2, 0, 1, 0], enhanced), (1, 2, vec![0, 24]));
        }
        let short = [&[0xff; 16][..], &[0, 22, 5, 0, 2, 2]].concat();
        assert_eq!(refused(&[0, 2, 2], true), (7, 1, short));
        let long = [&[0xff; 16][..], &[0, 24, 5, 0, 2, 1, 1, 0]].concat();
        assert_eq!(refused(&[0, 2, 1, 1, 0], true), (7, 1, long));
        let text = RouteRefresh::decode(&[0, 2, 2, 1, 0], true).unwrap_err().to_string();
        assert!(text.ends_with("24 octets, subtype 2 of ipv6-unicast"), "{text}");
    }

    #[test]
    fn section_5_of_rfc_7313_is_for_those_who_agreed_on_it() {
        let mark = [0, 2, RouteRefresh::BEGIN, 1, 0];
        assert_eq!(RouteRefresh::decode(&mark, false).unwrap_err().code, code::HEADER);
        assert_eq!(RouteRefresh::decode(&mark, true).unwrap_err().code, code::REFRESH);
        for unknown in [&[0, 1, 3][..], &[0, 1, 255, 1, 9, 9]] {
            assert_eq!(RouteRefresh::decode(unknown, true).unwrap().subtype, unknown[2], "to be ignored");
            assert_eq!(RouteRefresh::decode(unknown, false).unwrap_err().code, code::HEADER);
        }
    }

    #[test]
    fn the_refusal_of_the_longest_message_fits_into_one() {
        let refused = RouteRefresh::decode(&[1; 4077], true).unwrap_err();
        let mut out = Vec::new();
        refused.encode(&mut out).unwrap();
        assert_eq!(frame(&out).unwrap().unwrap().wire_length(), 4096);
    }
}
