//! The difference between two configurations, in work to do and in words.

use std::collections::HashMap;

use ipnet::IpNet;

use super::{Config, Error, Offload, PeerConfig};

/// What to do to get from one configuration to another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes<'a> {
    pub(super) added: Vec<&'a PeerConfig>,
    pub(super) removed: Vec<&'a str>,
    /// Same session, other settings.
    pub(super) changed: Vec<&'a PeerConfig>,
    /// Another key: the old session is worth nothing.
    pub(super) replaced: Vec<&'a PeerConfig>,
    pub(super) addresses_added: Vec<IpNet>,
    pub(super) addresses_removed: Vec<IpNet>,
    /// Offloads to switch.
    pub(super) offloads: Vec<(Offload, bool)>,
    /// One line each, for a person.
    pub(super) words: Vec<String>,
}

/// Compares.
///
/// # Errors
/// When something differs that a running tunnel cannot change.
pub(super) fn between<'a>(old: &'a Config, new: &'a Config) -> Result<Changes<'a>, Error> {
    refuse(old, new)?;
    let mut changes = Changes {
        addresses_added: missing(&new.addresses, &old.addresses),
        addresses_removed: missing(&old.addresses, &new.addresses),
        offloads: switched(old, new),
        ..Changes::default()
    };
    let words = changes.addresses_added.iter().map(|address| format!("address {address} added"));
    let words =
        words.chain(changes.addresses_removed.iter().map(|address| format!("address {address} removed")));
    let switches = changes.offloads.iter().map(|(offload, on)| {
        format!("offload {} switched {}", offload.as_str(), if *on { "on" } else { "off" })
    });
    changes.words = words.chain(switches).collect();
    compare_peers(&old.peers, &new.peers, &mut changes);
    Ok(changes)
}

/// Names the first thing that needs a restart.
fn refuse(old: &Config, new: &Config) -> Result<(), Error> {
    let fail = |text: String| Err(Error::NeedsRestart(text));
    if old.interface != new.interface {
        return fail(format!("interface changed from {:?} to {:?}", old.interface, new.interface));
    }
    if old.listen != new.listen {
        return fail(format!("listen changed from {} to {}", old.listen, new.listen));
    }
    if old.mtu != new.mtu {
        return fail(format!("mtu changed from {} to {}", old.mtu, new.mtu));
    }
    if old.workers != new.workers {
        let say = |workers: Option<u8>| workers.map_or("automatic".to_owned(), |number| number.to_string());
        return fail(format!("workers changed from {} to {}", say(old.workers), say(new.workers)));
    }
    if new.private_key.is_none() {
        return fail(format!("the private key file {} is gone", new.private_key_file.display()));
    }
    if old.private_key != new.private_key {
        return fail(format!("the private key in {} changed", new.private_key_file.display()));
    }
    Ok(())
}

/// What the configuration changes; what was switched by hand stays where the configuration did not change.
fn switched(old: &Config, new: &Config) -> Vec<(Offload, bool)> {
    let changed =
        |offload: &Offload| old.offloads_off.contains(offload) != new.offloads_off.contains(offload);
    let offloads = Offload::ALL.into_iter().filter(changed);
    offloads.map(|offload| (offload, !new.offloads_off.contains(&offload))).collect()
}

fn missing(these: &[IpNet], from: &[IpNet]) -> Vec<IpNet> {
    these.iter().filter(|address| !from.contains(address)).copied().collect()
}

fn compare_peers<'a>(old: &'a [PeerConfig], new: &'a [PeerConfig], changes: &mut Changes<'a>) {
    let mut gone: HashMap<&str, &PeerConfig> = old.iter().map(|peer| (peer.name.as_str(), peer)).collect();
    for peer in new {
        match gone.remove(peer.name.as_str()) {
            None => {
                changes.added.push(peer);
                changes.words.push(format!("peer {} added", peer.name));
            }
            Some(before) => compare_peer(before, peer, changes),
        }
    }
    for peer in old.iter().filter(|peer| gone.contains_key(peer.name.as_str())) {
        changes.removed.push(&peer.name);
        changes.words.push(format!("peer {} removed", peer.name));
    }
}

fn compare_peer<'a>(old: &PeerConfig, new: &'a PeerConfig, changes: &mut Changes<'a>) {
    let keys = [
        (old.public_key != new.public_key, "public_key"),
        (old.preshared_key != new.preshared_key, "preshared_key"),
    ];
    let rest = [
        (old.endpoint != new.endpoint, "endpoint"),
        (old.allowed_ips != new.allowed_ips, "allowed_ips"),
        (old.persistent_keepalive != new.persistent_keepalive, "persistent_keepalive"),
    ];
    let fields: Vec<&str> =
        keys.iter().chain(&rest).filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
    if fields.is_empty() {
        return;
    }
    let list =
        if keys.iter().any(|(differs, _)| *differs) { &mut changes.replaced } else { &mut changes.changed };
    list.push(new);
    changes.words.push(format!("peer {} changed: {}", new.name, fields.join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{secret::Secret32, tunnel::Endpoint};

    fn peer(name: &str, key: u8) -> PeerConfig {
        PeerConfig {
            name: name.into(),
            public_key: [key; 32],
            preshared_key: None,
            endpoint: None,
            allowed_ips: vec![],
            persistent_keepalive: None,
            bfd: None,
        }
    }

    fn config(peers: Vec<PeerConfig>) -> Config {
        Config {
            interface: "isthmus0".into(),
            listen: 51820,
            private_key_file: "/k".into(),
            private_key: Some(Secret32::new([1; 32])),
            addresses: vec!["10.99.0.1/24".parse().unwrap()],
            mtu: 1420,
            workers: None,
            offloads_off: vec![],
            peers,
        }
    }

    #[test]
    fn equal_configurations_need_nothing() {
        let one = config(vec![peer("a", 1)]);
        assert_eq!(between(&one, &one.clone()).unwrap(), Changes::default());
    }

    #[test]
    fn difference_is_told_in_words() {
        let old = config(vec![peer("a", 1), peer("b", 2), peer("c", 3), peer("d", 4)]);
        let mut new = config(vec![peer("a", 1), peer("b", 9), peer("c", 3), peer("e", 5)]);
        new.peers[2].endpoint = Some(Endpoint::Name("c.example".into(), 51820));
        new.peers[2].allowed_ips = vec!["10.3.0.0/16".parse().unwrap()];
        new.addresses = vec!["10.99.0.7/24".parse().unwrap()];
        new.offloads_off = vec![Offload::UdpGso];
        let changes = between(&old, &new).unwrap();
        assert_eq!(
            changes.words,
            [
                "address 10.99.0.7/24 added",
                "address 10.99.0.1/24 removed",
                "offload udp-gso switched off",
                "peer b changed: public_key",
                "peer c changed: endpoint, allowed_ips",
                "peer e added",
                "peer d removed",
            ]
        );
        let names = |peers: &[&PeerConfig]| peers.iter().map(|peer| peer.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&changes.replaced), ["b"]);
        assert_eq!(names(&changes.changed), ["c"]);
        assert_eq!(names(&changes.added), ["e"]);
        assert_eq!(changes.removed, ["d"]);
    }

    #[test]
    fn what_needs_a_restart_says_so() {
        let old = config(vec![]);
        type Change = fn(&mut Config);
        let table: [(Change, &str); 6] = [
            (|c| c.workers = Some(4), "workers changed from automatic to 4"),
            (|c| c.interface = "x".into(), "interface changed"),
            (|c| c.listen = 1, "listen changed from 51820 to 1"),
            (|c| c.mtu = 1300, "mtu changed"),
            (|c| c.private_key = Some(Secret32::new([2; 32])), "private key in /k changed"),
            (|c| c.private_key = None, "/k is gone"),
        ];
        for (change, expected) in table {
            let mut new = config(vec![peer("a", 1)]);
            change(&mut new);
            let text = between(&old, &new).unwrap_err().to_string();
            assert!(text.contains(expected) && text.contains("restart"), "{text}");
        }
    }
}
