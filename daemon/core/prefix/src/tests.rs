use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use proptest::prelude::*;

use super::{PrefixTable, Seed};

#[derive(Clone, Debug)]
enum Step {
    Insert(IpNet, u32),
    GetOrInsert(IpNet, u32),
    Remove(IpNet),
    TakeIfEven(IpNet),
    RetainEven,
    Shrink,
    Clear,
}

/// Addresses that are close to each other, so that prefixes meet.
fn address() -> impl Strategy<Value = IpAddr> {
    let near = prop_oneof![Just(0u8), Just(1), Just(128), Just(255)];
    let octets = proptest::collection::vec(near, 4);
    (octets, any::<bool>()).prop_map(|(octets, v4)| {
        let address = u32::from_be_bytes(octets.try_into().unwrap());
        if v4 { Ipv4Addr::from(address).into() } else { Ipv6Addr::from(u128::from(address) << 64).into() }
    })
}

fn prefix() -> impl Strategy<Value = IpNet> {
    (address(), 0..=128u8).prop_map(|(address, length)| {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        IpNet::new(address, length.min(longest)).unwrap()
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prefix(), any::<u32>()).prop_map(|(prefix, value)| Step::Insert(prefix, value)),
        4 => (prefix(), any::<u32>()).prop_map(|(prefix, value)| Step::GetOrInsert(prefix, value)),
        4 => prefix().prop_map(Step::Remove),
        4 => prefix().prop_map(Step::TakeIfEven),
        1 => Just(Step::RetainEven),
        1 => Just(Step::Shrink),
        1 => Just(Step::Clear),
    ]
}

fn take(step: Step, table: &mut PrefixTable<u32>, model: &mut BTreeMap<IpNet, u32>) {
    match step {
        Step::Insert(prefix, value) => {
            assert_eq!(table.insert(prefix, value), model.insert(prefix.trunc(), value));
        }
        Step::GetOrInsert(prefix, value) => {
            let expected = *model.entry(prefix.trunc()).or_insert(value);
            assert_eq!(*table.get_or_insert_with(prefix, || value), expected);
        }
        Step::Remove(prefix) => assert_eq!(table.remove(prefix), model.remove(&prefix.trunc())),
        Step::TakeIfEven(prefix) => {
            let even = |value: &mut u32| value.is_multiple_of(2);
            let expected = if model.get(&prefix.trunc()).is_some_and(|value| value.is_multiple_of(2)) {
                model.remove(&prefix.trunc())
            } else {
                None
            };
            assert_eq!(table.take_if(prefix, even), expected);
        }
        Step::RetainEven => {
            table.retain(|_, value| value.is_multiple_of(2));
            model.retain(|_, value| value.is_multiple_of(2));
        }
        Step::Shrink => table.shrink(),
        Step::Clear => {
            table.clear();
            model.clear();
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_an_ordered_map(steps in proptest::collection::vec(step(), 0..80), asked in proptest::collection::vec(prefix(), 8)) {
        let mut table = PrefixTable::new(Seed::new(7));
        let mut model = BTreeMap::new();
        for step in steps {
            take(step, &mut table, &mut model);
            prop_assert_eq!(table.len(), model.len());
        }
        let shown: Vec<(IpNet, u32)> = table.sorted().into_iter().map(|(p, v)| (p, *v)).collect();
        prop_assert_eq!(shown, model.clone().into_iter().collect::<Vec<_>>());
        for prefix in asked {
            let mut covering: Vec<_> = model.iter().filter(|(net, _)| net.contains(&prefix)).map(|(p, v)| (*p, v)).collect();
            covering.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
            prop_assert_eq!(table.covering(prefix), covering);
            prop_assert_eq!(table.get(prefix), model.get(&prefix.trunc()));
            let longest = model.iter().filter(|(net, _)| net.contains(&prefix.addr())).max_by_key(|(net, _)| net.prefix_len());
            prop_assert_eq!(table.lookup(prefix.addr()), longest.map(|(net, value)| (*net, value)));
        }
    }
}

#[test]
fn families_are_apart() {
    let mut table = PrefixTable::new(Seed::new(1));
    table.insert("0.0.0.0/0".parse().unwrap(), 4);
    table.insert("::/0".parse().unwrap(), 6);
    assert_eq!(table.lookup("10.0.0.1".parse().unwrap()), Some(("0.0.0.0/0".parse().unwrap(), &4)));
    assert_eq!(table.lookup("2001:db8::1".parse().unwrap()), Some(("::/0".parse().unwrap(), &6)));
    assert_eq!(table.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [4, 6]);
}

#[test]
fn values_change_in_place() {
    let mut table = PrefixTable::new(Seed::new(1));
    let prefix: IpNet = "10.0.0.0/8".parse().unwrap();
    table.insert(prefix, 1);
    *table.get_mut(prefix).unwrap() += 1;
    table.iter_mut().for_each(|(_, value)| *value *= 10);
    assert_eq!(table.get(prefix), Some(&20));
}

#[test]
fn an_entry_is_no_larger_than_it_must_be() {
    assert_eq!(size_of::<(super::key::V4, std::sync::Arc<()>)>(), 16);
    assert_eq!(size_of::<super::key::V4>(), 5);
    assert_eq!(size_of::<super::key::V6>(), 17);
}

/// Prefixes that an outsider would choose: the same low bits, or only them different.
#[test]
fn chosen_prefixes_spread_under_every_seed() {
    for entropy in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
        let hasher = Seed::new(entropy).hasher();
        for shift in [0, 8, 16] {
            let mut buckets = [0u32; 256];
            for n in 0..4096u32 {
                let prefix = IpNet::new(Ipv4Addr::from(n << shift).into(), 32).unwrap();
                let super::key::Either::V4(key) = prefix.into() else { panic!("it is IPv4") };
                let hash = std::hash::BuildHasher::hash_one(&hasher, key);
                buckets[usize::from(hash.to_le_bytes()[0])] += 1;
            }
            assert!(buckets.iter().all(|count| *count < 64), "16 each are expected: {buckets:?}");
        }
    }
}
