//! Which packets can be part of a burst, and which go together.

use super::Rules;
use crate::{
    checksum::{fold, pseudo_v4, pseudo_v6, sum},
    headers::{ACK, DONT_FRAGMENT, MORE_FRAGMENTS, OFFSET, PSH, TCP, UDP, V4, V6, length, word},
    packet::mix,
};

/// UDP ports of VXLAN (IANA and what Linux used before) and Geneve.
const TUNNEL_PORTS: [u16; 3] = [4789, 8472, 6081];

/// IPv6 extension headers, behind which any flow may hide.
const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];

/// What merging makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Belongs to no flow that is merged.
    Alone,
    /// Belongs to a flow that cannot be told: a fragment, IP options, or what is no packet at all.
    Unknown,
    /// Of this flow, but not mergeable.
    Last {
        /// Hash of addresses and ports.
        flow: u64,
    },
    /// May lead or continue a burst.
    Mergeable(Candidate),
}

/// A packet that may be part of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Hash of addresses and ports.
    pub flow: u64,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// Length of the IP header.
    pub ip: usize,
    /// Length of IP and transport header.
    pub headers: usize,
    /// Bytes behind them, at least one.
    pub payload: usize,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP PSH.
    pub push: bool,
    /// UDP without checksum.
    pub zero: bool,
    /// IPv4 identification.
    pub id: u16,
    /// IPv4 DF, or IPv6.
    pub whole: bool,
}

/// How the IPv4 identifications of a group go on; known once it has two packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Identification {
    /// One by one, as the kernel numbers what it cuts.
    #[default]
    Counting,
    /// All the same, which is legal only while nobody may fragment.
    Constant,
}

impl Identification {
    /// What the identifications are if `next` follows `count` packets from `lead` on; `None` if it does not continue them.
    pub(super) fn step(self, count: usize, lead: &Candidate, next: &Candidate) -> Option<Self> {
        if lead.ip == V6 {
            return Some(self);
        }
        let distance = next.id.wrapping_sub(lead.id);
        let counting = distance == length(count);
        let constant = distance == 0 && lead.whole;
        match self {
            Self::Counting if counting => Some(Self::Counting),
            Self::Counting if count == 1 && constant => Some(Self::Constant),
            Self::Constant if constant => Some(Self::Constant),
            _ => None,
        }
    }
}

impl Candidate {
    /// The sequence number that continues it.
    pub(super) fn next_seq(&self) -> u32 {
        self.seq.wrapping_add(u32::from(length(self.payload)))
    }

    /// True if two packets agree in all that a burst has only once: addresses, ports, TTL, TOS, DF, flow label, acknowledgement,
    /// window, options.
    pub(super) fn is_like(&self, other: &Self, mine: &[u8], others: &[u8]) -> bool {
        let same = |from: usize, to: usize| mine[from..to] == others[from..to];
        let ip = self.ip;
        if (ip, self.headers, self.protocol) != (other.ip, other.headers, other.protocol) {
            return false;
        }
        let network =
            if ip == V6 { same(0, 4) && same(6, 44) } else { same(0, 2) && same(6, 10) && same(12, 24) };
        network
            && match self.protocol {
                TCP => same(ip + 8, ip + 13) && same(ip + 14, ip + 16) && same(ip + 18, self.headers),
                _ => self.zero == other.zero,
            }
    }
}

impl Class {
    /// Judges a packet, which is cut to the length its IP header says.
    pub(super) fn of(packet: &[u8], rules: Rules) -> Self {
        match packet.first().map(|first| first >> 4) {
            Some(4) => Self::of_v4(packet, rules),
            Some(6) => Self::of_v6(packet, rules),
            _ => Self::Unknown,
        }
    }

    fn of_v4(packet: &[u8], rules: Rules) -> Self {
        let Some(header) = packet.first_chunk::<V4>() else { return Self::Unknown };
        let fragment = word(header, 6);
        let plain = header[0] == 0x45 && fragment & (MORE_FRAGMENTS | OFFSET) == 0;
        if !plain || usize::from(word(header, 2)) != packet.len() {
            return Self::Unknown;
        }
        let (id, whole) = (word(header, 4), fragment & DONT_FRAGMENT != 0);
        let base = Candidate { ip: V4, protocol: header[9], id, whole, ..Candidate::EMPTY };
        Self::of_transport(packet, base, rules, sum(header) == 0xffff)
    }

    fn of_v6(packet: &[u8], rules: Rules) -> Self {
        let Some(header) = packet.first_chunk::<V6>() else { return Self::Unknown };
        if EXTENSIONS.contains(&header[6]) || V6 + usize::from(word(header, 4)) != packet.len() {
            return Self::Unknown;
        }
        let base = Candidate { ip: V6, protocol: header[6], whole: true, ..Candidate::EMPTY };
        Self::of_transport(packet, base, rules, true)
    }

    /// `sound`: the IP header is right.
    fn of_transport(packet: &[u8], base: Candidate, rules: Rules, sound: bool) -> Self {
        let merged = match base.protocol {
            TCP => rules.tcp,
            UDP => rules.udp,
            _ => false,
        };
        if !merged {
            return Self::Alone;
        }
        let transport = &packet[base.ip..];
        let Some(ports) = transport.first_chunk::<4>() else { return Self::Unknown };
        if base.protocol == UDP && !rules.tunnels && TUNNEL_PORTS.contains(&word(ports, 2)) {
            return Self::Alone;
        }
        let flow = flow(packet, base.ip, *ports);
        let candidate = match base.protocol {
            TCP => tcp(transport, base),
            _ => udp(transport, base),
        };
        let fits = |it: &Candidate| sound && (it.zero || !rules.verify || is_verified(packet, it));
        match candidate.filter(fits) {
            Some(candidate) => Self::Mergeable(Candidate { flow, ..candidate }),
            None => Self::Last { flow },
        }
    }
}

impl Candidate {
    const EMPTY: Self = Self {
        flow: 0,
        protocol: 0,
        ip: 0,
        headers: 0,
        payload: 0,
        seq: 0,
        push: false,
        zero: false,
        id: 0,
        whole: false,
    };
}

/// Data with no flags that mean something for this segment alone.
fn tcp(transport: &[u8], base: Candidate) -> Option<Candidate> {
    let header = transport.first_chunk::<20>()?;
    let size = usize::from(header[12] >> 4) * 4;
    let plain = size >= header.len() && size < transport.len() && header[13] & !PSH == ACK;
    plain.then(|| Candidate {
        headers: base.ip + size,
        payload: transport.len() - size,
        seq: u32::from(word(header, 4)) << 16 | u32::from(word(header, 6)),
        push: header[13] & PSH != 0,
        ..base
    })
}

/// Data with a length that is right. Without a checksum only over IPv4, where that needs nobody's consent.
fn udp(transport: &[u8], base: Candidate) -> Option<Candidate> {
    let header = transport.first_chunk::<8>()?;
    let zero = word(header, 6) == 0;
    let plain =
        usize::from(word(header, 4)) == transport.len() && transport.len() > 8 && !(zero && base.ip == V6);
    plain.then(|| Candidate { headers: base.ip + 8, payload: transport.len() - 8, zero, ..base })
}

fn is_verified(packet: &[u8], candidate: &Candidate) -> bool {
    let transport = &packet[candidate.ip..];
    let size = length(transport.len());
    let pseudo = match packet[8..].first_chunk() {
        Some(addresses) if candidate.ip == V6 => pseudo_v6(addresses, candidate.protocol, size.into()),
        _ => pseudo_v4(packet[12..].first_chunk().expect("a whole IP header"), candidate.protocol, size),
    };
    fold(pseudo + u64::from(sum(transport))) == 0xffff
}

/// Addresses and ports of a flow in 64 bits; that two flows share them costs a merge, not a packet.
fn flow(packet: &[u8], ip: usize, ports: [u8; 4]) -> u64 {
    let addresses = if ip == V6 { &packet[8..40] } else { &packet[12..20] };
    let (words, _) = addresses.as_chunks::<8>();
    let state = u64::from(u32::from_ne_bytes(ports));
    words.iter().fold(state, |state, word| mix(state ^ u64::from_ne_bytes(*word)))
}
