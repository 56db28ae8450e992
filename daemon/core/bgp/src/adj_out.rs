//! What one peer was told and what it has still to be told (Adj-RIB-Out).
//!
//! Of several changes to a prefix only the last is sent. Withdrawals go first. Announcements are packed by shared attributes. Nothing is
//! encoded before the transport has room ([`AdjOut::encode_next`]), so a slow peer costs one pending entry for each prefix and no more.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;

use crate::{
    Families, Family,
    wire::{Attributes, EncodeError, encode_announcement, encode_end_of_rib, encode_withdrawal},
};

/// Prefixes offered to one message; a message holds fewer unless they are very short.
const BATCH: usize = 1500;

/// One peer's Adj-RIB-Out.
#[derive(Debug, Default)]
pub struct AdjOut {
    advertised: JointPrefixMap<IpNet, Arc<Attributes>>,
    withdrawals: BTreeSet<IpNet>,
    /// Announcements by attributes, oldest group first.
    groups: BTreeMap<u64, Group>,
    /// The group that a prefix waits in.
    waiting: HashMap<IpNet, u64>,
    /// The group for attributes, by address: groups keep their attributes alive, so an address means one set of them.
    by_attributes: HashMap<usize, u64>,
    next_group: u64,
    end_of_rib: Families,
}

#[derive(Debug)]
struct Group {
    attributes: Arc<Attributes>,
    prefixes: BTreeSet<IpNet>,
}

impl AdjOut {
    /// For a new session: nothing advertised, End-of-RIB due for these families once the first dump is out.
    pub fn new(families: Families) -> Self {
        Self { end_of_rib: families, ..Self::default() }
    }

    /// What the peer should know about a prefix from now on; `None`: nothing. Attributes should be interned, prefixes truncated.
    pub fn set(&mut self, prefix: IpNet, attributes: Option<Arc<Attributes>>) {
        self.cancel(&prefix);
        let told = self.advertised.get(&prefix);
        match attributes {
            None if told.is_some() => {
                self.withdrawals.insert(prefix);
            }
            Some(attributes) if told != Some(&attributes) => self.enqueue(prefix, attributes),
            _ => {}
        }
    }

    /// Number of prefixes that the peer has been told and still holds.
    pub fn advertised(&self) -> usize {
        self.advertised.len()
    }

    /// What the peer was told about a prefix and still holds.
    pub fn told(&self, prefix: &IpNet) -> Option<&Arc<Attributes>> {
        self.advertised.get(prefix)
    }

    /// Prefixes that the peer was told and still holds.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.advertised.keys()
    }

    /// Everything that the peer was told is to be sent once more, where nothing newer waits.
    pub fn again(&mut self) {
        let told: Vec<_> = self.advertised.iter().map(|(prefix, told)| (prefix, Arc::clone(told))).collect();
        for (prefix, attributes) in told {
            if !self.withdrawals.contains(&prefix) && !self.waiting.contains_key(&prefix) {
                self.enqueue(prefix, attributes);
            }
        }
    }

    /// True if [`AdjOut::encode_next`] has something to write.
    pub fn is_pending(&self) -> bool {
        !self.withdrawals.is_empty() || !self.groups.is_empty() || !self.end_of_rib.is_empty()
    }

    /// Appends the next message. False: there was none.
    ///
    /// # Errors
    /// Attributes that fit into no message; their prefixes are dropped, and withdrawn if the peer held them.
    pub fn encode_next(&mut self, four_octet: bool, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        if !self.withdrawals.is_empty() {
            return self.encode_withdrawals(out).map(|()| true);
        }
        if let Some(number) = self.groups.keys().next().copied() {
            return self.encode_group(number, four_octet, out).map(|()| true);
        }
        let Some(family) = self.end_of_rib.iter().next() else { return Ok(false) };
        self.end_of_rib.remove(family);
        encode_end_of_rib(family, out).map(|()| true)
    }

    fn encode_withdrawals(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let batch = one_family(&self.withdrawals);
        let count = encode_withdrawal(&batch, out)?;
        for prefix in &batch[..count] {
            self.withdrawals.remove(prefix);
            self.advertised.remove(prefix);
        }
        Ok(())
    }

    fn encode_group(&mut self, number: u64, four_octet: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let Some(group) = self.groups.get(&number) else { return Ok(()) };
        let attributes = Arc::clone(&group.attributes);
        let batch = one_family(&group.prefixes);
        let encoded = encode_announcement(&attributes, &batch, four_octet, out);
        let done = &batch[..*encoded.as_ref().unwrap_or(&batch.len())];
        for prefix in done {
            self.cancel(prefix);
            if encoded.is_ok() {
                self.advertised.insert(*prefix, Arc::clone(&attributes));
            } else if self.advertised.contains_key(prefix) {
                self.withdrawals.insert(*prefix);
            }
        }
        encoded.map(|_| ())
    }

    fn enqueue(&mut self, prefix: IpNet, attributes: Arc<Attributes>) {
        let address = Arc::as_ptr(&attributes).addr();
        let number = *self.by_attributes.entry(address).or_insert_with(|| {
            self.next_group += 1;
            self.next_group
        });
        let group = self.groups.entry(number);
        group.or_insert_with(|| Group { attributes, prefixes: BTreeSet::new() }).prefixes.insert(prefix);
        self.waiting.insert(prefix, number);
    }

    /// Takes back whatever waits to be sent about a prefix.
    fn cancel(&mut self, prefix: &IpNet) {
        self.withdrawals.remove(prefix);
        let Some(number) = self.waiting.remove(prefix) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.prefixes.remove(prefix);
        if group.prefixes.is_empty() {
            self.by_attributes.remove(&Arc::as_ptr(&group.attributes).addr());
            self.groups.remove(&number);
        }
    }
}

/// The leading prefixes of one family.
fn one_family(prefixes: &BTreeSet<IpNet>) -> Vec<IpNet> {
    let family = prefixes.first().map(Family::of);
    prefixes.iter().take_while(|prefix| Some(Family::of(prefix)) == family).take(BATCH).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Opaque, Peering, Update, UpdateContext, frame};
    use proptest::prelude::*;

    const CONTEXT: UpdateContext = UpdateContext {
        four_octet: true,
        peering: Peering::Internal,
        families: Families::ALL,
        add_path: Families::NONE,
        extended_next_hop: false,
    };

    fn net(n: u16) -> IpNet {
        IpNet::new(std::net::Ipv4Addr::from(0x0a00_0000 | u32::from(n) << 8).into(), 24).unwrap()
    }

    fn with_med(med: u32) -> Arc<Attributes> {
        let mut attributes = Attributes::originated("10.0.0.1".parse().unwrap());
        attributes.med = Some(med);
        Arc::new(attributes)
    }

    fn drain(out: &mut AdjOut) -> Vec<Update> {
        let mut updates = Vec::new();
        let mut bytes = Vec::new();
        while out.encode_next(true, &mut bytes).unwrap() {
            updates.push(Update::decode(frame(&bytes).unwrap().unwrap().body, &CONTEXT).unwrap());
            bytes.clear();
        }
        updates
    }

    #[test]
    fn packs_by_attributes_and_ends_with_end_of_rib() {
        let mut out = AdjOut::new(Families::ALL);
        let (one, two) = (with_med(1), with_med(2));
        for n in 0..100 {
            out.set(net(n), Some(Arc::clone(if n % 2 == 0 { &one } else { &two })));
        }
        let updates = drain(&mut out);
        assert_eq!(updates.len(), 4);
        assert_eq!(updates[0].announced[0].prefixes.len(), 50);
        assert_eq!(updates[2].end_of_rib, Some(Family::Ipv4Unicast));
        assert_eq!(updates[3].end_of_rib, Some(Family::Ipv6Unicast));
        assert!(!out.is_pending());
    }

    #[test]
    fn withdraws_exactly_what_was_advertised_and_first() {
        let mut out = AdjOut::new(Families::NONE);
        out.set(net(1), Some(with_med(1)));
        out.set(net(2), Some(with_med(1)));
        out.set(net(2), None);
        assert_eq!(drain(&mut out).len(), 1);
        out.set(net(9), None);
        assert!(!out.is_pending(), "it never knew this one");
        out.set(net(3), Some(with_med(1)));
        out.set(net(1), None);
        let updates = drain(&mut out);
        assert_eq!(updates[0].withdrawn, [net(1)]);
        assert_eq!(updates[1].announced[0].prefixes, [net(3)]);
    }

    #[test]
    fn what_is_known_already_is_not_sent_again() {
        let mut out = AdjOut::new(Families::NONE);
        out.set(net(1), Some(with_med(1)));
        drain(&mut out);
        out.set(net(1), Some(with_med(2)));
        out.set(net(1), Some(with_med(1)));
        assert!(!out.is_pending());
    }

    #[test]
    fn attributes_that_fit_nowhere_withdraw_what_was_there() {
        let mut out = AdjOut::new(Families::NONE);
        out.set(net(1), Some(with_med(1)));
        drain(&mut out);
        let mut large = Attributes::clone(&with_med(1));
        large.change_rare(|rare| rare.opaque.push(Opaque { flags: 0xe0, code: 99, value: vec![0; 4070] }));
        out.set(net(1), Some(Arc::new(large)));
        assert!(out.encode_next(true, &mut Vec::new()).is_err());
        assert_eq!(drain(&mut out)[0].withdrawn, [net(1)]);
        assert_eq!(out.advertised(), 0);
    }

    proptest! {
        /// However changes and sending interleave, a listener ends with what was set last.
        #[test]
        fn listener_converges(steps in prop::collection::vec((0u16..8, prop::option::of(0u32..3), any::<bool>()), 0..80)) {
            let attributes: Vec<_> = (0..3).map(with_med).collect();
            let mut out = AdjOut::new(Families::NONE);
            let mut wanted = BTreeMap::new();
            let mut heard = BTreeMap::new();
            let mut listen = |out: &mut AdjOut| {
                for update in drain(out) {
                    for prefix in update.withdrawn {
                        assert!(heard.remove(&prefix).is_some(), "withdrawn without having been announced");
                    }
                    for announcement in update.announced {
                        for prefix in announcement.prefixes {
                            heard.insert(prefix, announcement.attributes.med.unwrap());
                        }
                    }
                }
                heard.clone()
            };
            for (n, med, send) in steps {
                out.set(net(n), med.map(|med| Arc::clone(&attributes[usize::try_from(med).unwrap()])));
                match med {
                    Some(med) => wanted.insert(net(n), med),
                    None => wanted.remove(&net(n)),
                };
                if send {
                    listen(&mut out);
                }
            }
            prop_assert_eq!(listen(&mut out), wanted);
        }
    }
}
