//! Interfaces: which carry something, and what lies behind them.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;

use crate::routes::DownLink;

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// False: set down, or without carrier.
    pub up: bool,
    /// What is directly connected by it.
    pub subnets: Vec<IpNet>,
}

/// Every interface by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    interfaces: HashMap<u32, Interface>,
}

impl Links {
    /// Notes an interface's name and whether it carries something. Returns whether the latter is news.
    pub fn set(&mut self, index: u32, name: String, up: bool) -> bool {
        let interface =
            self.interfaces.entry(index).or_insert_with(|| Interface { up: true, ..Interface::default() });
        let news = interface.up != up;
        (interface.name, interface.up) = (name, up);
        news
    }

    /// Notes what is directly connected by an interface.
    pub fn add_subnet(&mut self, index: u32, subnet: IpNet) {
        self.interfaces.entry(index).or_default().subnets.push(subnet.trunc());
    }

    /// The interface with this index.
    pub fn get(&self, index: u32) -> Option<&Interface> {
        self.interfaces.get(&index)
    }

    /// The interface whose subnet is the longest that contains the address.
    pub fn of(&self, address: IpAddr) -> Option<u32> {
        let subnets = self.interfaces.iter().flat_map(|(index, interface)| {
            interface.subnets.iter().map(move |subnet| (*index, interface.up, subnet))
        });
        let behind = subnets.filter(|(_, _, subnet)| subnet.contains(&address));
        // Of two interfaces with one subnet the kernel takes one that works, and so do we.
        behind.max_by_key(|(index, up, subnet)| (subnet.prefix_len(), *up, *index)).map(|(index, ..)| index)
    }

    /// Those that carry nothing though something is connected by them, by index.
    pub fn down(&self) -> Vec<DownLink> {
        let down = self.interfaces.iter().filter(|(_, link)| !link.up && !link.subnets.is_empty());
        let mut down: Vec<DownLink> = down
            .map(|(index, link)| DownLink {
                interface: *index,
                name: link.name.clone(),
                subnets: link.subnets.clone(),
                elsewhere: self.that_work_within(&link.subnets),
            })
            .collect();
        down.sort_by_key(|link| link.interface);
        down
    }

    /// Subnets of interfaces that work, inside these.
    fn that_work_within(&self, subnets: &[IpNet]) -> Vec<IpNet> {
        let working = self.interfaces.values().filter(|link| link.up).flat_map(|link| &link.subnets);
        let mut within: Vec<IpNet> =
            working.filter(|inner| subnets.iter().any(|subnet| subnet.contains(*inner))).copied().collect();
        within.sort_unstable();
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        let mut links = Links::default();
        for (index, subnet) in
            [(2, "192.0.2.1/24"), (3, "192.0.2.129/25"), (4, "198.51.100.1/24"), (5, "198.51.100.2/24")]
        {
            links.set(index, format!("eth{index}"), true);
            links.add_subnet(index, subnet.parse().unwrap());
        }
        links
    }

    #[test]
    fn the_longest_subnet_that_works_counts() {
        let mut links = links();
        let of = |links: &Links, address: &str| links.of(address.parse().unwrap());
        assert_eq!(of(&links, "192.0.2.7"), Some(2));
        assert_eq!(of(&links, "192.0.2.200"), Some(3));
        assert_eq!(of(&links, "203.0.113.1"), None);
        assert!(links.set(3, "eth3".into(), false));
        assert_eq!(of(&links, "192.0.2.200"), Some(3), "the kernel does not look elsewhere either");
        assert!(links.set(5, "eth5".into(), false));
        assert!(!links.set(5, "eth5".into(), false), "known already");
        assert_eq!(of(&links, "198.51.100.9"), Some(4));
        let down = links.down();
        assert_eq!(down.iter().map(|link| link.interface).collect::<Vec<_>>(), [3, 5]);
        let has = |link: usize, address: &str| down[link].has(address.parse().unwrap());
        assert!(has(0, "192.0.2.200") && !has(0, "192.0.2.7"));
        assert!(!has(1, "198.51.100.9"), "another interface leads there");
        assert!(links.set(2, "eth2".into(), false) && links.set(3, "eth3".into(), true));
        let wide = links.down().remove(0);
        assert!(wide.has("192.0.2.7".parse().unwrap()) && !wide.has("192.0.2.200".parse().unwrap()));
    }
}
