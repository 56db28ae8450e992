use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use proptest::prelude::*;

use super::*;
use crate::{
    rib::Change,
    wire::{MessageType, Opaque, Peering, Update, UpdateContext, frame},
};

const CONTEXT: UpdateContext = UpdateContext {
    four_octet: true,
    peering: Peering::Internal,
    families: Families::ALL,
    add_path: Families::NONE,
    extended_next_hop: false,
};

/// A table of at most one path for each prefix, one peer that is told of it, and what that peer knows.
struct World {
    table: BTreeMap<IpNet, Arc<Attributes>>,
    changes: Changes,
    out: AdjOut,
    /// How often the table was asked.
    asked: usize,
    heard: BTreeMap<IpNet, Option<u32>>,
}

#[derive(Debug, PartialEq)]
enum Said {
    Announced(usize),
    Withdrawn(Vec<IpNet>),
    EndOfRib(Family),
    Refresh(u8),
}

fn net(n: u16) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x0a00_0000 | u32::from(n) << 8).into(), 24).unwrap()
}

fn with_med(med: u32) -> Arc<Attributes> {
    let mut attributes = Attributes::originated("10.0.0.1".parse().unwrap());
    attributes.med = Some(med);
    Arc::new(attributes)
}

impl World {
    fn new(format: Format, table: BTreeMap<IpNet, Arc<Attributes>>) -> Self {
        let changes = Changes::default();
        let prefixes = table.keys().copied().collect();
        let out = AdjOut::new(format, None, prefixes, changes.end(), Seed::new(1));
        Self { table, changes, out, asked: 0, heard: BTreeMap::new() }
    }

    /// With its first, empty dump behind it.
    fn quiet() -> Self {
        let mut world = Self::new(FORMAT, BTreeMap::new());
        world.drain();
        world
    }

    /// Equal attributes are interned, as the table does it.
    fn set(&mut self, prefix: IpNet, attributes: Option<Arc<Attributes>>) {
        let known = self.table.values().find(|known| Some(*known) == attributes.as_ref()).cloned();
        let attributes = known.or(attributes);
        let change = match attributes {
            Some(attributes) => self.table.insert(prefix, attributes).map_or(Change::Best, |_| Change::Best),
            None => self.table.remove(&prefix).map_or(Change::None, |_| Change::Lost),
        };
        self.changes.push(prefix, change);
    }

    fn prefixes(&self) -> Arc<[IpNet]> {
        self.table.keys().copied().collect()
    }

    /// The next message.
    fn next(&mut self) -> Result<Option<Said>, EncodeError> {
        let mut bytes = Vec::new();
        let Self { table, changes, out, asked, .. } = self;
        let mut wanted = |prefix: IpNet, paths: &mut Vec<Sent>| {
            *asked += 1;
            paths.extend(table.get(&prefix).map(|attributes| (0, Arc::clone(attributes))));
        };
        if !out.encode_next(changes, &mut wanted, &mut bytes)? {
            return Ok(None);
        }
        Ok(Some(self.hear(&bytes)))
    }

    fn hear(&mut self, bytes: &[u8]) -> Said {
        let message = frame(bytes).unwrap().unwrap();
        if message.kind == MessageType::RouteRefresh {
            return Said::Refresh(message.body[2]);
        }
        let update = Update::decode(message.body, &CONTEXT).unwrap();
        let withdrawn: Vec<_> = update.withdrawn.iter().map(|nlri| nlri.prefix).collect();
        for prefix in &withdrawn {
            assert!(self.heard.remove(prefix).is_some(), "withdrawn without having been announced");
        }
        let mut announced = 0;
        for announcement in update.announced {
            announced += announcement.prefixes.len();
            for nlri in announcement.prefixes {
                self.heard.insert(nlri.prefix, announcement.attributes.med);
            }
        }
        match (update.end_of_rib, announced) {
            (Some(family), _) => Said::EndOfRib(family),
            (None, 0) => Said::Withdrawn(withdrawn),
            (None, count) => Said::Announced(count),
        }
    }

    fn drain(&mut self) -> Vec<Said> {
        std::iter::from_fn(|| self.next().unwrap()).collect()
    }

    fn wanted(&self) -> BTreeMap<IpNet, Option<u32>> {
        self.table.iter().map(|(prefix, attributes)| (*prefix, attributes.med)).collect()
    }
}

const FORMAT: Format =
    Format { families: Families::ALL, encoding: Encoding::FOUR_OCTET, enhanced_refresh: true };

#[test]
fn the_first_dump_is_packed_and_ends_with_end_of_rib() {
    let (one, two) = (with_med(1), with_med(2));
    let table = (0..100).map(|n| (net(n), Arc::clone(if n % 2 == 0 { &one } else { &two })));
    let mut world = World::new(FORMAT, table.collect());
    assert!(world.out.is_pending(&world.changes));
    let end = [Family::Ipv4Unicast, Family::Ipv6Unicast].map(Said::EndOfRib);
    let [v4, v6] = end;
    assert_eq!(world.drain(), [Said::Announced(50), Said::Announced(50), v4, v6]);
    assert!(!world.out.is_pending(&world.changes));
    assert_eq!(world.heard, world.wanted());
}

#[test]
fn withdraws_exactly_what_was_advertised_and_first() {
    let mut world = World::quiet();
    world.set(net(1), Some(with_med(1)));
    world.set(net(2), Some(with_med(1)));
    world.set(net(2), None);
    assert_eq!(world.drain(), [Said::Announced(1)], "of the other it never heard");
    world.set(net(3), Some(with_med(1)));
    world.set(net(1), None);
    assert_eq!(world.drain(), [Said::Withdrawn(vec![net(1)]), Said::Announced(1)]);
}

#[test]
fn a_withdrawal_overtakes_announcements_that_wait_for_room() {
    let mut world = World::quiet();
    world.set(net(0), Some(with_med(0)));
    world.drain();
    (1..50).for_each(|n| world.set(net(n), Some(with_med(n.into()))));
    assert_eq!(world.next().unwrap(), Some(Said::Announced(1)), "the window is looked at now");
    world.set(net(0), None);
    world.set(net(40), None);
    assert_eq!(world.next().unwrap(), Some(Said::Withdrawn(vec![net(0)])));
    world.drain();
    assert_eq!(world.heard, world.wanted());
    assert!(!world.heard.contains_key(&net(40)), "which was announced to nobody");
}

#[test]
fn what_is_known_already_is_not_sent_again() {
    let mut world = World::quiet();
    world.set(net(1), Some(with_med(1)));
    world.drain();
    world.set(net(1), Some(with_med(2)));
    world.set(net(1), Some(with_med(1)));
    world.out.review(world.prefixes());
    assert!(world.drain().is_empty());
}

#[test]
fn nothing_is_looked_at_before_there_is_room() {
    let mut world = World::quiet();
    for med in 0..100 {
        world.set(net(1), Some(with_med(med)));
    }
    assert_eq!(world.asked, 0);
    assert_eq!(world.drain(), [Said::Announced(1)]);
    assert_eq!(world.heard[&net(1)], Some(99));
}

#[test]
fn a_refresh_sends_what_is_known_between_its_marks() {
    let mut world = World::quiet();
    (0..3).for_each(|n| world.set(net(n), Some(with_med(1))));
    world.drain();
    world.out.refresh(Family::Ipv4Unicast, world.prefixes());
    world.out.refresh(Family::Ipv4Unicast, world.prefixes());
    assert_eq!(world.next().unwrap(), Some(Said::Refresh(1)), "asked twice before it began: once");
    world.set(net(9), None);
    world.set(net(0), None);
    assert_eq!(world.drain(), [Said::Withdrawn(vec![net(0)]), Said::Announced(2), Said::Refresh(2)]);
    world.out.refresh(Family::Ipv6Unicast, world.prefixes());
    assert_eq!(world.drain(), [Said::Refresh(1), Said::Refresh(2)]);
    let mut plain = World::new(Format { enhanced_refresh: false, ..FORMAT }, world.table.clone());
    plain.drain();
    plain.out.refresh(Family::Ipv4Unicast, plain.prefixes());
    assert_eq!(plain.drain(), [Said::Announced(2)]);
}

#[test]
fn who_is_too_far_behind_looks_at_everything() {
    let mut world = World::quiet();
    (0..10).for_each(|n| world.set(net(n), Some(with_med(1))));
    world.drain();
    (0..5).for_each(|n| world.set(net(n), None));
    (20..30).for_each(|n| world.set(net(n), Some(with_med(2))));
    world.out.catch_up(world.prefixes(), world.changes.end());
    world.changes.forget([world.out.cursor()].into_iter());
    let gone: BTreeSet<_> = (0..5).map(net).collect();
    let Some(Said::Withdrawn(first)) = world.next().unwrap() else { panic!("withdrawals first") };
    assert_eq!(first.into_iter().collect::<BTreeSet<_>>(), gone);
    assert_eq!(world.drain(), [Said::Announced(10)]);
    assert_eq!(world.heard, world.wanted());
}

#[test]
fn a_limit_holds_back_until_there_is_room() {
    let mut world = World::quiet();
    world.out.set_limit(Some(3));
    (0..5).for_each(|n| world.set(net(n), Some(with_med(1))));
    assert_eq!(world.drain(), [Said::Announced(3)]);
    assert_eq!(world.out.held_back(), Some(Family::Ipv4Unicast));
    world.set(net(0), Some(with_med(2)));
    assert_eq!(world.drain(), [Said::Announced(1)], "what it holds may change");
    assert!(!world.out.has_room_again());
    world.set(net(1), None);
    world.drain();
    assert!(world.out.has_room_again());
    world.out.review(world.prefixes());
    assert_eq!(world.drain(), [Said::Announced(1)]);
    assert_eq!((world.out.advertised(), world.out.held_back()), (3, Some(Family::Ipv4Unicast)));
    world.out.set_limit(None);
    world.out.review(world.prefixes());
    world.drain();
    assert_eq!((world.heard.clone(), world.out.held_back()), (world.wanted(), None));
}

#[test]
fn attributes_that_fit_nowhere_withdraw_what_was_there() {
    let mut world = World::quiet();
    world.set(net(1), Some(with_med(1)));
    world.drain();
    let mut large = Attributes::clone(&with_med(1));
    large.change_rare(|rare| rare.opaque.push(Opaque { flags: 0xe0, code: 99, value: vec![0; 4070] }));
    world.set(net(1), Some(Arc::new(large)));
    world.set(net(2), Some(with_med(1)));
    assert!(world.next().is_err());
    assert_eq!(world.drain(), [Said::Withdrawn(vec![net(1)]), Said::Announced(1)]);
    assert_eq!(world.out.advertised(), 1);
}

proptest! {
    /// However changes, questions and sending interleave, a listener ends with what is in the table, and never hears a withdrawal of what
    /// it does not hold.
    #[test]
    fn listener_converges(steps in prop::collection::vec((0u16..8, prop::option::of(0u32..3), 0u8..8), 0..80)) {
        let attributes: Vec<_> = (0..3).map(with_med).collect();
        let mut world = World::quiet();
        for (n, med, then) in steps {
            world.set(net(n), med.map(|med| Arc::clone(&attributes[usize::try_from(med).unwrap()])));
            match then {
                0 => world.out.refresh(Family::Ipv4Unicast, world.prefixes()),
                1 => world.out.review(world.prefixes()),
                2 => world.out.catch_up(world.prefixes(), world.changes.end()),
                3 | 4 => drop(world.next().unwrap()),
                5 => drop(world.drain()),
                _ => world.changes.forget([world.out.cursor()].into_iter()),
            }
        }
        world.drain();
        prop_assert_eq!(&world.heard, &world.wanted());
        prop_assert_eq!(world.out.advertised(), world.heard.len());
        prop_assert!(!world.out.is_pending(&world.changes));
    }
}
