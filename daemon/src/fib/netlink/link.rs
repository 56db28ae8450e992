//! Interfaces as the kernel tells of them: `struct ifinfomsg` and the name.

use rtnetlink::packet_core::NlasIterator;

const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const IFLA_IFNAME: u16 = 3;
/// Messages of this family tell of ports of a bridge.
const AF_UNSPEC: u8 = 0;
/// `sizeof(struct ifinfomsg)`.
const HEADER: usize = 16;

/// What was said about one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkNews {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Set up, and with carrier.
    pub(crate) up: bool,
}

/// Reads RTM_NEWLINK, or RTM_DELLINK (`gone`); `None` for what is none.
pub(super) fn read(payload: &[u8], gone: bool) -> Option<LinkNews> {
    let (header, attributes) = payload.split_at_checked(HEADER)?;
    let number = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (index, flags) = (number(4)?, number(8)?);
    if header[0] != AF_UNSPEC {
        return None;
    }
    let name = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == IFLA_IFNAME);
    let name = name.map(|name| String::from_utf8_lossy(name.value()).trim_end_matches('\0').to_owned());
    let carries = flags & IFF_UP != 0 && flags & IFF_LOWER_UP != 0;
    Some(LinkNews { index, name: name.unwrap_or_default(), up: carries && !gone })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_link_is_up_with_carrier_only() {
        for (flags, gone, up) in [
            (IFF_UP | IFF_LOWER_UP, false, true),
            (IFF_UP, false, false),
            (IFF_LOWER_UP, false, false),
            (IFF_UP | IFF_LOWER_UP, true, false),
        ] {
            let mut payload = vec![0; HEADER];
            payload[4..8].copy_from_slice(&7_u32.to_ne_bytes());
            payload[8..12].copy_from_slice(&flags.to_ne_bytes());
            payload.extend(9_u16.to_ne_bytes());
            payload.extend(IFLA_IFNAME.to_ne_bytes());
            payload.extend(b"eth0\0\0\0\0");
            assert_eq!(read(&payload, gone), Some(LinkNews { index: 7, name: "eth0".into(), up }));
            payload[0] = 7;
            assert_eq!(read(&payload, gone), None, "a bridge's word");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            read(&bytes, false);
        }
    }
}
