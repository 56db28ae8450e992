//! Packets that came out of the tunnel become bursts for the TUN device (GRO), each for one gather write.
//!
//! What the kernel makes of a group by cutting it again are the packets that went in, byte for byte, save two things of no meaning:
//! IPv4 identifications that were all the same (legal with DF, RFC 6864) count up from the first, and UDP over IPv4 without checksum
//! gets one.

mod candidate;

use candidate::{Candidate, Class, Identification};

use super::vnet::{self, VnetHeader};
use crate::{
    checksum::{fold, pseudo_v4, pseudo_v6, sum},
    headers::{PSH, TCP, UDP, V6, length, put},
};

/// Most packets in a group of TCP; with the two headers their slices stay well below the 1,024 that one write gathers.
pub const MAX_SEGMENTS: usize = 255;
/// Most packets in a group of UDP: what the kernel's own GRO merges, so receivers are prepared for it (`UDP_GRO_CNT_MAX`).
pub const MAX_DATAGRAMS: usize = 64;
/// Longest group, headers included: the length field of IPv4.
const MAX_BYTES: usize = 65_535;

/// What to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// TCP segments.
    pub tcp: bool,
    /// UDP datagrams; needs a kernel that takes bursts of them (6.2 and later).
    pub udp: bool,
    /// Verify inner checksums first. Without, a packet that was damaged before it entered the tunnel becomes one with a good checksum.
    pub verify: bool,
    /// Merge UDP to the ports of VXLAN and Geneve too. Kernels before 6.8.5 lose such bursts.
    pub tunnels: bool,
}

impl Default for Rules {
    /// Everything, verified.
    fn default() -> Self {
        Self { tcp: true, udp: true, verify: true, tunnels: true }
    }
}

/// Open groups that are found again; one whose place is taken stays as it is.
const SLOTS: usize = 256;
/// End of a list of packets.
const END: usize = usize::MAX;

/// Merges batch after batch in memory that is reused.
#[derive(Debug)]
pub struct Merger {
    rules: Rules,
    groups: Vec<Entry>,
    /// For each packet of the batch, the next one in its group.
    next: Vec<usize>,
    heads: Vec<u8>,
    /// By flow hash: where the flow's open group is. Slots of an earlier epoch are empty.
    slots: Box<[Slot; SLOTS]>,
    epoch: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    epoch: u64,
    group: usize,
}

/// A group as it grows.
#[derive(Debug)]
struct Entry {
    /// Index of the first packet and of the last.
    first: usize,
    last: usize,
    count: usize,
    /// Bytes, headers once.
    total: usize,
    /// What the first packet is; `None` for one that stays alone.
    lead: Option<Candidate>,
    next_seq: u32,
    identification: Identification,
    /// PSH of the last.
    push: bool,
    /// Where its rewritten headers are; empty for a group of one.
    head: (usize, usize),
}

impl Merger {
    /// An empty one.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            groups: Vec::new(),
            next: Vec::new(),
            heads: Vec::new(),
            slots: Box::new([Slot::default(); SLOTS]),
            epoch: 0,
        }
    }

    /// Merges by other rules from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Groups a batch: `packets` in order of arrival, each cut to the length its IP header says. Every packet is in exactly one group,
    /// the packets of a flow are in their order, and nothing stays behind for the next batch.
    pub fn merge<'a, P: AsRef<[u8]>>(
        &'a mut self,
        packets: &'a [P],
    ) -> impl ExactSizeIterator<Item = Group<'a, P>> {
        self.groups.clear();
        self.heads.clear();
        self.next.clear();
        self.epoch += 1;
        for index in 0..packets.len() {
            self.next.push(END);
            self.place(packets, index);
        }
        self.finish(packets);
        let (next, heads) = (&self.next[..], &self.heads[..]);
        self.groups.iter().map(move |entry| Group::new(entry, packets, next, heads))
    }

    /// Puts a packet into its flow's group or into a new one.
    fn place<P: AsRef<[u8]>>(&mut self, packets: &[P], index: usize) {
        let packet = packets[index].as_ref();
        match Class::of(packet, self.rules) {
            Class::Alone => self.open(index, packet.len(), None),
            // It may belong to any flow, so nothing may be put before it any more.
            Class::Unknown => {
                self.epoch += 1;
                self.open(index, packet.len(), None);
            }
            Class::Last { flow } => {
                self.slots[slot(flow)].epoch = 0;
                self.open(index, packet.len(), None);
            }
            Class::Mergeable(candidate) => self.join(packets, index, candidate),
        }
    }

    fn open(&mut self, index: usize, total: usize, lead: Option<Candidate>) {
        self.groups.push(Entry {
            first: index,
            last: index,
            count: 1,
            total,
            lead,
            next_seq: lead.map_or(0, |lead| lead.next_seq()),
            identification: Identification::default(),
            push: false,
            head: (0, 0),
        });
    }

    fn join<P: AsRef<[u8]>>(&mut self, packets: &[P], index: usize, candidate: Candidate) {
        let packet = packets[index].as_ref();
        let slot = &mut self.slots[slot(candidate.flow)];
        let entry = (slot.epoch == self.epoch).then(|| &mut self.groups[slot.group]);
        if let Some(entry) = entry
            && entry.takes(packets[entry.first].as_ref(), packet, &candidate)
        {
            self.next[entry.last] = index;
            let ended = entry.add(index, &candidate);
            if ended {
                slot.epoch = 0;
            }
            return;
        }
        *slot = Slot { epoch: if candidate.push { 0 } else { self.epoch }, group: self.groups.len() };
        self.open(index, packet.len(), Some(candidate));
    }

    /// Writes the headers of the groups that are bursts.
    fn finish<P: AsRef<[u8]>>(&mut self, packets: &[P]) {
        for entry in &mut self.groups {
            if let Some(lead) = entry.lead.filter(|_| entry.count > 1) {
                let start = self.heads.len();
                self.heads.extend_from_slice(&packets[entry.first].as_ref()[..lead.headers]);
                rewrite(&mut self.heads[start..], &lead, entry);
                entry.head = (start, self.heads.len());
            }
        }
    }
}

fn slot(flow: u64) -> usize {
    usize::from(flow.to_le_bytes()[0])
}

impl Entry {
    /// True if the packet continues the group.
    fn takes(&self, first: &[u8], packet: &[u8], candidate: &Candidate) -> bool {
        let Some(lead) = &self.lead else { return false };
        let limit = if lead.protocol == TCP { MAX_SEGMENTS } else { MAX_DATAGRAMS };
        candidate.payload <= lead.payload
            && self.count < limit
            && self.total + candidate.payload <= MAX_BYTES
            && (lead.protocol == UDP || candidate.seq == self.next_seq)
            && lead.is_like(candidate, first, packet)
            && self.identification.step(self.count, lead, candidate).is_some()
    }

    /// Adds a packet it takes; true if it must be the last.
    fn add(&mut self, index: usize, candidate: &Candidate) -> bool {
        let lead = self.lead.as_ref().expect("only a group with a lead takes packets");
        if let Some(step) = self.identification.step(self.count, lead, candidate) {
            self.identification = step;
        }
        let shorter = candidate.payload < lead.payload;
        self.last = index;
        self.count += 1;
        self.total += candidate.payload;
        self.next_seq = candidate.next_seq();
        self.push = candidate.push;
        shorter || candidate.push
    }
}

/// Headers of a burst: lengths over all of it, the IPv4 checksum, PSH of the last packet, and where the transport checksum belongs the
/// folded sum of the pseudo header, which is what the kernel expects of a partial checksum.
fn rewrite(head: &mut [u8], lead: &Candidate, entry: &Entry) {
    let (ip, transport) = head.split_at_mut(lead.ip);
    let size = length(entry.total - lead.ip);
    let pseudo = if ip[0] >> 4 == 4 {
        put(ip, 2, length(entry.total));
        put(ip, 10, 0);
        put(ip, 10, !sum(ip));
        pseudo_v4(ip[12..20].first_chunk().expect("eight bytes"), lead.protocol, size)
    } else {
        put(ip, 4, length(entry.total - V6));
        pseudo_v6(ip[8..40].first_chunk().expect("32 bytes"), lead.protocol, size.into())
    };
    if lead.protocol == UDP {
        put(transport, 4, size);
    } else if entry.push {
        transport[13] |= PSH;
    }
    put(transport, usize::from(checksum_offset(lead.protocol)), fold(pseudo));
}

fn checksum_offset(protocol: u8) -> u16 {
    if protocol == TCP { 16 } else { 6 }
}

/// What one write to the TUN device carries: `vnet`, `head`, then the payloads.
#[derive(Debug)]
pub struct Group<'a, P> {
    /// The virtio header; all zero for a single packet.
    pub vnet: [u8; vnet::LENGTH],
    /// The rewritten headers, or the whole packet if it is a single one.
    pub head: &'a [u8],
    packets: &'a [P],
    next: &'a [usize],
    first: usize,
    count: usize,
    /// Headers in front of each payload.
    skip: usize,
}

impl<'a, P: AsRef<[u8]>> Group<'a, P> {
    fn new(entry: &Entry, packets: &'a [P], next: &'a [usize], heads: &'a [u8]) -> Self {
        let (first, count) = (entry.first, entry.count);
        let burst = entry.lead.filter(|_| count > 1);
        let (vnet, head, skip) = match burst {
            Some(lead) => (header(&lead), &heads[entry.head.0..entry.head.1], lead.headers),
            None => (VnetHeader::default(), packets[first].as_ref(), 0),
        };
        Self { vnet: vnet.encode(), head, packets, next, first, count, skip }
    }

    /// Packets in the group, at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The packets as they came, for when the kernel refuses the burst.
    pub fn packets(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, P> {
        let (packets, next) = (self.packets, self.next);
        let indices = std::iter::successors(Some(self.first), move |index| {
            Some(next[*index]).filter(|following| *following != END)
        });
        indices.map(|index| packets[index].as_ref())
    }

    /// What follows `head`, in order; nothing for a single packet.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, P> {
        let (skip, burst) = (self.skip, self.count > 1);
        self.packets().take_while(move |_| burst).map(move |packet| &packet[skip..])
    }
}

fn header(lead: &Candidate) -> VnetHeader {
    VnetHeader {
        flags: vnet::NEEDS_CSUM,
        gso_type: match (lead.protocol, lead.ip) {
            (UDP, _) => vnet::GSO_UDP_L4,
            (_, V6) => vnet::GSO_TCPV6,
            _ => vnet::GSO_TCPV4,
        },
        hdr_len: length(lead.headers),
        gso_size: length(lead.payload),
        csum_start: length(lead.ip),
        csum_offset: checksum_offset(lead.protocol),
    }
}

#[cfg(test)]
mod tests;
