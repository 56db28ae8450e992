//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use super::{EncodeError, MessageType, Notification, code, encode_message, reader::Reader};
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

    /// Decodes a message body.
    ///
    /// # Errors
    /// Unless it has exactly four octets: 7/1 with the whole message for BoRR and EoRR (RFC 7313 section 5), else Bad Message Length.
    pub fn decode(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader::new(body);
        let fields = (reader.u16(), reader.u8(), reader.u8());
        match fields {
            (Some(afi), Some(subtype), Some(safi)) if reader.is_empty() => Ok(Self { afi, subtype, safi }),
            (_, Some(Self::BEGIN | Self::END), _) => Err(wrong_length(body)),
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
            assert_eq!(RouteRefresh::decode(frame(&bytes).unwrap().unwrap().body), Ok(refresh));
            assert_eq!(refresh.family(), Some(family));
        }
    }

    #[test]
    fn four_octets_exactly() {
        let refused = |body: &[u8]| {
            let refused = RouteRefresh::decode(body).unwrap_err();
            (refused.code, refused.subcode, refused.data)
        };
        assert_eq!(RouteRefresh::decode(&[0, 2, 0, 1]), Ok(RouteRefresh { afi: 2, subtype: 0, safi: 1 }));
        assert_eq!(refused(&[0, 2, 0]), (1, 2, vec![0, 22]));
        assert_eq!(refused(&[0, 2, 0, 1, 0]), (1, 2, vec![0, 24]));
        let whole = [&[0xff; 16][..], &[0, 24, 5, 0, 2, 1, 1, 0]].concat();
        assert_eq!(refused(&[0, 2, 1, 1, 0]), (7, 1, whole));
        let text = RouteRefresh::decode(&[0, 2, 2, 1, 0]).unwrap_err().to_string();
        assert!(text.ends_with("24 octets, subtype 2 of ipv6-unicast"), "{text}");
    }

    #[test]
    fn the_refusal_of_the_longest_message_fits_into_one() {
        let refused = RouteRefresh::decode(&[1; 4077]).unwrap_err();
        let mut out = Vec::new();
        refused.encode(&mut out).unwrap();
        assert_eq!(frame(&out).unwrap().unwrap().wire_length(), 4096);
    }
}
