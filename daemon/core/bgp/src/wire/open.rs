//! OPEN (RFC 4271 section 4.2), its capabilities (RFC 5492), and the long form of its parameters (RFC 9072).

use std::net::Ipv4Addr;

use super::{EncodeError, MessageType, Notification, code, encode_message, reader::Reader};
use crate::{AS_TRANS, Families, Family};

const VERSION: u8 = 4;
const PARAMETER_CAPABILITIES: u8 = 2;
/// Seconds that fit into the graceful restart capability (RFC 4724 section 3).
const LONGEST_RESTART: u16 = 0x0fff;
/// Length and type octets that announce the long form (RFC 9072 section 2).
const EXTENDED: u8 = 255;

/// What a speaker can do (RFC 5492).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Code 1: an address family, known to us or not (RFC 4760 section 8).
    MultiProtocol {
        /// Address family identifier.
        afi: u16,
        /// Subsequent address family identifier.
        safi: u8,
    },
    /// Code 65: AS numbers of four octets, and the speaker's own (RFC 6793).
    FourOctetAsn(u32),
    /// Code 2: sends a family again when asked (RFC 2918).
    RouteRefresh,
    /// Code 70: marks begin and end of such a sending (RFC 7313).
    EnhancedRouteRefresh,
    /// Code 5: families whose next hops may be of another address family, as (AFI, SAFI, AFI of the next hop) (RFC 8950).
    ExtendedNextHop(Vec<(u16, u16, u16)>),
    /// Code 9 (RFC 9234): what the sender is to its neighbor; a number, for unknown ones must be told from known ones.
    Role(u8),
    /// Code 64 (RFC 4724, RFC 8538).
    GracefulRestart {
        /// R: the sender has just restarted, and waits for no End-of-RIB of those that have too.
        restarting: bool,
        /// N: it also keeps routes when the session ends with a NOTIFICATION, unless that is a Hard Reset (RFC 8538 section 2).
        notification: bool,
        /// How long its routes should be kept, in seconds; at most 4095.
        time: u16,
        /// Families that it keeps forwarding, or can.
        families: Vec<RestartFamily>,
    },
    /// Code 69: families with several paths to a prefix (RFC 7911).
    AddPath(Vec<(u16, u8, AddPathMode)>),
    /// Any other, as it came.
    Other {
        /// Capability code.
        code: u8,
        /// At most 255 bytes.
        value: Vec<u8>,
    },
}

/// A family in the graceful restart capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartFamily {
    /// Address family identifier.
    pub afi: u16,
    /// Subsequent address family identifier.
    pub safi: u8,
    /// F: forwarding went on while the sender restarted.
    pub forwarding: bool,
}

/// Who sends several paths (RFC 7911 section 4), as the capability's sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddPathMode {
    /// It can receive them.
    Receive,
    /// It can send them.
    Send,
    /// Both.
    Both,
}

impl AddPathMode {
    fn code(self) -> u8 {
        match self {
            Self::Receive => 1,
            Self::Send => 2,
            Self::Both => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Receive, Self::Send, Self::Both].into_iter().find(|mode| mode.code() == code)
    }
}

impl Capability {
    /// The capability to carry a family.
    pub fn family(family: Family) -> Self {
        Self::MultiProtocol { afi: family.afi(), safi: family.safi() }
    }

    pub(super) fn decode(code: u8, value: &[u8]) -> Option<Self> {
        Some(match (code, value) {
            (1, [high, low, _, safi]) => {
                Self::MultiProtocol { afi: u16::from_be_bytes([*high, *low]), safi: *safi }
            }
            (65, [a, b, c, d]) => Self::FourOctetAsn(u32::from_be_bytes([*a, *b, *c, *d])),
            (2, []) => Self::RouteRefresh,
            (70, []) => Self::EnhancedRouteRefresh,
            (5, _) => Self::ExtendedNextHop(triples(value)?),
            (9, [role]) => Self::Role(*role),
            (64, [flags, time, families @ ..]) => restart(*flags, *time, families)?,
            (69, _) => Self::AddPath(add_paths(value)?),
            (1 | 2 | 9 | 64 | 65 | 70, _) => return None,
            _ => Self::Other { code, value: value.to_vec() },
        })
    }

    /// Code, length and value.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (code, value) = match self {
            Self::MultiProtocol { afi, safi } => (1, [&afi.to_be_bytes()[..], &[0, *safi]].concat()),
            Self::FourOctetAsn(asn) => (65, asn.to_be_bytes().to_vec()),
            Self::RouteRefresh => (2, Vec::new()),
            Self::EnhancedRouteRefresh => (70, Vec::new()),
            Self::ExtendedNextHop(all) => {
                let octets = |(afi, safi, next): &(u16, u16, u16)| [afi, safi, next].map(|n| n.to_be_bytes());
                (5, all.iter().flat_map(octets).flatten().collect())
            }
            Self::Role(role) => (9, vec![*role]),
            Self::GracefulRestart { restarting, notification, time, families } => {
                let flags = u16::from(*restarting) << 15 | u16::from(*notification) << 14;
                let head = (flags | (*time).min(LONGEST_RESTART)).to_be_bytes();
                (64, head.into_iter().chain(families.iter().flat_map(RestartFamily::octets)).collect())
            }
            Self::AddPath(all) => {
                let octets = |(afi, safi, mode): &(u16, u8, AddPathMode)| {
                    let [high, low] = afi.to_be_bytes();
                    [high, low, *safi, mode.code()]
                };
                (69, all.iter().flat_map(octets).collect())
            }
            Self::Other { code, value } => (*code, value.clone()),
        };
        let length = u8::try_from(value.len());
        let length =
            length.map_err(|_| EncodeError { what: "capability", length: value.len(), limit: 255 })?;
        Ok([&[code, length], value.as_slice()].concat())
    }
}

impl RestartFamily {
    fn octets(&self) -> [u8; 4] {
        let [high, low] = self.afi.to_be_bytes();
        [high, low, self.safi, u8::from(self.forwarding) << 7]
    }
}

fn triples(value: &[u8]) -> Option<Vec<(u16, u16, u16)>> {
    let (chunks, rest) = value.as_chunks::<6>();
    let number = |high, low| u16::from_be_bytes([high, low]);
    let all = chunks.iter().map(|[a, b, c, d, e, f]| (number(*a, *b), number(*c, *d), number(*e, *f)));
    rest.is_empty().then(|| all.collect())
}

fn restart(flags: u8, time: u8, families: &[u8]) -> Option<Capability> {
    let (chunks, rest) = families.as_chunks::<4>();
    let family = |[high, low, safi, flags]: &[u8; 4]| RestartFamily {
        afi: u16::from_be_bytes([*high, *low]),
        safi: *safi,
        forwarding: flags & 0x80 != 0,
    };
    rest.is_empty().then(|| Capability::GracefulRestart {
        restarting: flags & 0x80 != 0,
        notification: flags & 0x40 != 0,
        time: u16::from_be_bytes([flags & 0x0f, time]),
        families: chunks.iter().map(family).collect(),
    })
}

/// Entries with a mode that no RFC has are ignored (RFC 7911 section 4).
fn add_paths(value: &[u8]) -> Option<Vec<(u16, u8, AddPathMode)>> {
    let (chunks, rest) = value.as_chunks::<4>();
    let entry = |[high, low, safi, mode]: &[u8; 4]| {
        Some((u16::from_be_bytes([*high, *low]), *safi, AddPathMode::from_code(*mode)?))
    };
    rest.is_empty().then(|| chunks.iter().filter_map(entry).collect())
}

/// What a capability is called; just "capability" if we do not know.
pub(super) fn capability_name(code: u8) -> &'static str {
    match code {
        1 => "multiprotocol",
        2 => "route refresh",
        5 => "extended next hop",
        6 => "extended message",
        9 => "role",
        64 => "graceful restart",
        65 => "4-octet AS number",
        69 => "add-path",
        70 => "enhanced route refresh",
        71 => "long-lived graceful restart",
        73 => "FQDN",
        _ => "capability",
    }
}

/// An OPEN message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The two-octet field; AS_TRANS where the number does not fit.
    pub my_as: u16,
    /// Hold time in seconds, as offered.
    pub hold_time: u16,
    /// BGP identifier, as offered.
    pub router_id: Ipv4Addr,
    /// In the order of the message.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// An OPEN of ours. A number that fits into two octets is never hidden behind AS_TRANS: some routers refuse that.
    pub fn new(asn: u32, hold_time: u16, router_id: Ipv4Addr, families: Families) -> Self {
        let my_as = u16::try_from(asn).or_else(|_| u16::try_from(AS_TRANS)).unwrap_or(u16::MAX);
        let mut capabilities: Vec<_> = families.iter().map(Capability::family).collect();
        capabilities.push(Capability::FourOctetAsn(asn));
        Self { my_as, hold_time, router_id, capabilities }
    }

    /// The sender's AS number: the capability's, or else the two-octet field.
    pub fn asn(&self) -> u32 {
        self.four_octet_asn().unwrap_or_else(|| self.my_as.into())
    }

    /// The number in the four-octet capability, if there is one.
    pub fn four_octet_asn(&self) -> Option<u32> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::FourOctetAsn(asn) => Some(*asn),
            _ => None,
        })
    }

    /// Families offered; without any multiprotocol capability that is IPv4 unicast (RFC 4760 section 8).
    pub fn families(&self) -> Families {
        let offered = self.capabilities.iter().filter_map(|capability| match capability {
            Capability::MultiProtocol { afi, safi } => Some(Family::from_codes(*afi, *safi)),
            _ => None,
        });
        let offered: Vec<_> = offered.collect();
        if offered.is_empty() {
            return Families::from_iter([Family::Ipv4Unicast]);
        }
        offered.into_iter().flatten().collect()
    }

    /// Decodes a message body.
    ///
    /// # Errors
    /// The NOTIFICATION that RFC 4271 section 6.2 asks for: wrong version, unknown parameter, or lengths that do not add up.
    pub fn decode(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader::new(body);
        let version = reader.u8().ok_or_else(malformed)?;
        if version != VERSION {
            return Err(Notification::with_data(code::OPEN, code::open::VERSION, vec![0, VERSION]));
        }
        let my_as = reader.u16().ok_or_else(malformed)?;
        let hold_time = reader.u16().ok_or_else(malformed)?;
        let router_id = Ipv4Addr::from(reader.u32().ok_or_else(malformed)?);
        let capabilities = decode_parameters(reader)?;
        Ok(Self { my_as, hold_time, router_id, capabilities })
    }

    /// Appends the message, in the long form only when it does not fit the short one.
    ///
    /// # Errors
    /// A capability over 255 bytes, or a message over 4096.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let capabilities: Vec<_> =
            self.capabilities.iter().map(Capability::encode).collect::<Result<_, _>>()?;
        let mut body = vec![VERSION];
        body.extend_from_slice(&self.my_as.to_be_bytes());
        body.extend_from_slice(&self.hold_time.to_be_bytes());
        body.extend_from_slice(&self.router_id.octets());
        match short_parameters(&capabilities) {
            Some(parameters) => body.extend(parameters),
            None => body.extend(long_parameters(&capabilities)?),
        }
        encode_message(MessageType::Open, &body, out)
    }
}

fn malformed() -> Notification {
    Notification::new(code::OPEN, code::open::UNSPECIFIC)
}

fn decode_parameters(mut reader: Reader<'_>) -> Result<Vec<Capability>, Notification> {
    let length = reader.u8().ok_or_else(malformed)?;
    let extended = length != 0 && reader.first() == Some(EXTENDED);
    let block = if extended {
        reader.u8();
        reader.long_block()
    } else {
        reader.take(length.into())
    };
    let mut parameters = Reader::new(block.filter(|_| reader.is_empty()).ok_or_else(malformed)?);
    let mut capabilities = Vec::new();
    while let Some(kind) = parameters.u8() {
        let value = if extended { parameters.long_block() } else { parameters.short_block() };
        let value = value.ok_or_else(malformed)?;
        if kind != PARAMETER_CAPABILITIES {
            return Err(Notification::new(code::OPEN, code::open::PARAMETER));
        }
        decode_capabilities(value, &mut capabilities)?;
    }
    Ok(capabilities)
}

fn decode_capabilities(block: &[u8], capabilities: &mut Vec<Capability>) -> Result<(), Notification> {
    let mut reader = Reader::new(block);
    while let Some(code) = reader.u8() {
        let value = reader.short_block().ok_or_else(malformed)?;
        capabilities.push(Capability::decode(code, value).ok_or_else(malformed)?);
    }
    Ok(())
}

fn short_parameters(capabilities: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut parameters = vec![0];
    for capability in capabilities {
        parameters.extend([PARAMETER_CAPABILITIES, u8::try_from(capability.len()).ok()?]);
        parameters.extend_from_slice(capability);
    }
    parameters[0] = u8::try_from(parameters.len() - 1).ok()?;
    Some(parameters)
}

fn long_parameters(capabilities: &[Vec<u8>]) -> Result<Vec<u8>, EncodeError> {
    let field = |what, length| u16::try_from(length).map_err(|_| EncodeError { what, length, limit: 65_535 });
    let mut parameters = Vec::new();
    for capability in capabilities {
        parameters.push(PARAMETER_CAPABILITIES);
        parameters.extend(field("capability parameter", capability.len())?.to_be_bytes());
        parameters.extend_from_slice(capability);
    }
    let mut block = vec![EXTENDED, EXTENDED];
    block.extend(field("optional parameters", parameters.len())?.to_be_bytes());
    block.extend(parameters);
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MAX_MESSAGE_LENGTH, frame};
    use proptest::prelude::*;

    fn body(tail: &[u8]) -> Vec<u8> {
        [&[4, 0xfd, 0xe8, 0, 9, 10, 0, 0, 1], tail].concat()
    }

    #[test]
    fn parameters_parse_exactly_or_not_at_all() {
        let cases: &[(&[u8], Result<usize, u8>)] = &[
            (&[0], Ok(0)),
            (&[8, 2, 6, 65, 4, 0, 1, 0, 0], Ok(1)),
            (&[2, 2, 0], Ok(0)),
            (&[12, 2, 4, 70, 0, 71, 0, 2, 4, 72, 2, 1, 2], Ok(3)),
            // the long form, with any short length but zero
            (&[255, 255, 0, 9, 2, 0, 6, 65, 4, 0, 1, 0, 0], Ok(1)),
            (&[1, 255, 0, 9, 2, 0, 6, 65, 4, 0, 1, 0, 0], Ok(1)),
            // 255 without the marker is a plain length, and here it lies
            (&[255, 2, 6, 65, 4, 0, 1, 0, 0], Err(0)),
            (&[255, 255, 0, 8, 2, 0, 6, 65, 4, 0, 1, 0, 0], Err(0)),
            (&[7, 2, 6, 65, 4, 0, 1, 0, 0], Err(0)),
            (&[9, 2, 6, 65, 4, 0, 1, 0, 0], Err(0)),
            // a capability cut short must not cost the peer its AS number in silence
            (&[5, 2, 3, 65, 1, 0], Err(0)),
            (&[5, 2, 3, 65, 4, 0], Err(0)),
            (&[5, 2, 3, 1, 1, 0], Err(0)),
            (&[3, 2, 1, 65], Err(0)),
            (&[2, 1, 0], Err(4)),
            (&[1, 2], Err(0)),
            (&[], Err(0)),
        ];
        for (tail, expected) in cases {
            let got = Open::decode(&body(tail));
            let got = got.map(|open| open.capabilities.len()).map_err(|n| {
                assert_eq!(n.code, code::OPEN);
                n.subcode
            });
            assert_eq!(&got, expected, "{tail:?}");
        }
    }

    #[test]
    fn wrong_version_names_ours() {
        let refused = Open::decode(&[3, 0, 1, 0, 9, 10, 0, 0, 1, 0]).unwrap_err();
        assert_eq!(refused, Notification::with_data(2, 1, vec![0, 4]));
    }

    #[test]
    fn as_trans_only_where_the_number_does_not_fit() {
        let id = Ipv4Addr::new(10, 0, 0, 1);
        let small = Open::new(65_001, 9, id, Families::ALL);
        let large = Open::new(4_200_000_001, 9, id, Families::ALL);
        assert_eq!((small.my_as, small.asn()), (65_001, 65_001));
        assert_eq!((large.my_as, large.asn()), (23_456, 4_200_000_001));
    }

    #[test]
    fn no_multiprotocol_capability_means_ipv4() {
        let mut open = Open::new(1, 9, Ipv4Addr::new(1, 1, 1, 1), Families::NONE);
        assert_eq!(open.families().iter().collect::<Vec<_>>(), [Family::Ipv4Unicast]);
        open.capabilities.push(Capability::MultiProtocol { afi: 25, safi: 70 });
        assert!(open.families().is_empty());
    }

    /// Every kind, as long as one may be.
    fn capability() -> impl Strategy<Value = Capability> {
        let mode = prop::sample::select(vec![AddPathMode::Receive, AddPathMode::Send, AddPathMode::Both]);
        let kept = any::<(u16, u8, bool)>().prop_map(|(afi, safi, forwarding)| RestartFamily {
            afi,
            safi,
            forwarding,
        });
        let others = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..=255));
        prop_oneof![
            any::<(u16, u8)>().prop_map(|(afi, safi)| Capability::MultiProtocol { afi, safi }),
            any::<u32>().prop_map(Capability::FourOctetAsn),
            Just(Capability::RouteRefresh),
            Just(Capability::EnhancedRouteRefresh),
            prop::collection::vec(any::<(u16, u16, u16)>(), 0..=42).prop_map(Capability::ExtendedNextHop),
            any::<u8>().prop_map(Capability::Role),
            (any::<(bool, bool)>(), 0u16..=4095, prop::collection::vec(kept, 0..=63)).prop_map(
                |((restarting, notification), time, families)| Capability::GracefulRestart {
                    restarting,
                    notification,
                    time,
                    families
                }
            ),
            prop::collection::vec((any::<u16>(), any::<u8>(), mode), 0..=63).prop_map(Capability::AddPath),
            others
                .prop_filter("is typed", |(code, _)| ![1, 2, 5, 9, 64, 65, 69, 70].contains(code))
                .prop_map(|(code, value)| Capability::Other { code, value }),
        ]
    }

    #[test]
    fn a_capability_of_more_than_255_octets_is_refused() {
        let long = [
            Capability::ExtendedNextHop(vec![(1, 1, 2); 43]),
            Capability::AddPath(vec![(1, 1, AddPathMode::Both); 64]),
            Capability::Other { code: 200, value: vec![0; 256] },
        ];
        for capability in long {
            assert!(capability.encode().is_err(), "{capability:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(my_as: u16, hold_time: u16, id: u32, capabilities in prop::collection::vec(capability(), 0..12)) {
            let open = Open { my_as, hold_time, router_id: id.into(), capabilities };
            let mut bytes = Vec::new();
            open.encode(&mut bytes).unwrap();
            prop_assert!(bytes.len() <= MAX_MESSAGE_LENGTH);
            let frame = frame(&bytes).unwrap().unwrap();
            prop_assert_eq!(Open::decode(frame.body).unwrap(), open);
        }

        #[test]
        fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Open::decode(&tail);
            let _ = Open::decode(&body(&tail));
        }
    }
}
