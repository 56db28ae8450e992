//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use super::{EncodeError, MessageType, Notification, code, encode_message, reader::Reader};
use crate::Family;

/// A request to send a family again, or a mark around such a sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRefresh {
    /// Address family identifier, known to us or not.
    pub afi: u16,
    /// 0 request, 1 begin, 2 end (RFC 7313 section 4).
    pub subtype: u8,
    /// Subsequent address family identifier.
    pub safi: u8,
}

impl RouteRefresh {
    /// A request for a family, or a mark (RFC 7313 section 3.2).
    pub fn new(family: Family, subtype: u8) -> Self {
        Self { afi: family.afi(), subtype, safi: family.safi() }
    }

    /// Appends the message.
    ///
    /// # Errors
    /// None in practice: it always fits.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let [high, low] = self.afi.to_be_bytes();
        encode_message(MessageType::RouteRefresh, &[high, low, self.subtype, self.safi], out)
    }

    /// Decodes a message body.
    ///
    /// # Errors
    /// Bad Message Length unless it has exactly four octets.
    pub fn decode(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader::new(body);
        let fields = (reader.u16(), reader.u8(), reader.u8());
        match fields {
            (Some(afi), Some(subtype), Some(safi)) if reader.is_empty() => Ok(Self { afi, subtype, safi }),
            _ => Err(Notification::new(code::HEADER, code::header::BAD_LENGTH)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_octets_exactly() {
        assert_eq!(RouteRefresh::decode(&[0, 2, 0, 1]), Ok(RouteRefresh { afi: 2, subtype: 0, safi: 1 }));
        let begin = RouteRefresh::new(Family::Ipv6Unicast, 1);
        let mut bytes = Vec::new();
        begin.encode(&mut bytes).unwrap();
        assert_eq!(bytes[16..], [0, 23, 5, 0, 2, 1, 1]);
        assert_eq!(RouteRefresh::decode(&bytes[19..]), Ok(begin));
        assert!(RouteRefresh::decode(&[0, 2, 0]).is_err());
        assert!(RouteRefresh::decode(&[0, 2, 0, 1, 0]).is_err());
    }
}
