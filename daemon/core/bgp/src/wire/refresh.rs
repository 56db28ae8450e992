//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use super::{Notification, code, reader::Reader};

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
        assert!(RouteRefresh::decode(&[0, 2, 0]).is_err());
        assert!(RouteRefresh::decode(&[0, 2, 0, 1, 0]).is_err());
    }
}
