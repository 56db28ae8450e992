//! Which paths BFD watches, and what follows from what it sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::stages::Stages;
use crate::{
    bfd::{self, Event, Route, SessionConfig, State},
    bgp,
    config::Config,
    lifecycle::CancellationToken,
    tunnel,
};

/// UDP port of single-hop BFD, inside a tunnel too (RFC 5881 section 4).
const PORT: u16 = 3784;

/// Starts BFD where there is something that it could watch, now or after a reload.
pub(super) async fn start(
    config: &Config,
    tunnel: Option<&tunnel::Handle>,
    bgp: Option<&bgp::Handle>,
    stages: &mut Stages,
) -> anyhow::Result<Option<bfd::Handle>> {
    if tunnel.is_none() && bgp.is_none() {
        return Ok(None);
    }
    let carry: bfd::Carry = match tunnel.map(tunnel::Handle::injector) {
        Some(mut injector) => Box::new(move |peer, packet| injector.send(peer, packet)),
        None => Box::new(|_, _| false),
    };
    let token = CancellationToken::new();
    let hook = hook(tunnel.cloned(), bgp.cloned());
    let (handle, task) = bfd::start(wanted(config), carry, hook, token.clone()).await?;
    stages.push("bfd", token, task);
    if let Some(tunnel) = tunnel {
        let taker = handle.clone();
        tunnel.tap(PORT, Arc::new(move |peer, packet| taker.deliver(peer, packet)));
    }
    Ok(Some(handle))
}

/// First the bit of the data plane, then BGP; others read the events.
fn hook(tunnel: Option<tunnel::Handle>, bgp: Option<bgp::Handle>) -> bfd::Hook {
    let mut failed = Failed::default();
    Box::new(move |event| {
        if let (Some(tunnel), Some(peer)) = (&tunnel, event.session.route.tunnel_peer()) {
            match failed.judge(event, peer) {
                Some(true) => drop(tunnel.hold_down(peer, Some(&format!("BFD: {}", event.reason())))),
                Some(false) => drop(tunnel.hold_down(peer, None)),
                None => {}
            }
        }
        for (bgp, neighbor) in
            bgp.iter().flat_map(|bgp| event.session.neighbors.iter().map(move |name| (bgp, name)))
        {
            match event.change {
                change if change.is_failure() => bgp.path_failed(neighbor, event.reason()),
                change if change.to == State::Up => bgp.path_proved(neighbor),
                _ => {}
            }
        }
    })
}

/// The sessions through each tunnel peer that have failed: a peer is held down while there is one.
#[derive(Default)]
struct Failed(BTreeMap<Arc<str>, BTreeSet<Route>>);

impl Failed {
    /// `Some`: hold the peer down, or no longer. `None`: what was, stays.
    fn judge(&mut self, event: &Event, peer: &Arc<str>) -> Option<bool> {
        let failed = self.0.entry(Arc::clone(peer)).or_default();
        let was_held = !failed.is_empty();
        if event.change.is_failure() {
            failed.insert(event.session.route.clone());
        } else if event.change.is_relief() {
            failed.remove(&event.session.route);
        }
        let is_held = !failed.is_empty();
        if !is_held {
            self.0.remove(peer);
        }
        (is_held != was_held).then_some(is_held)
    }
}

/// The sessions that a configuration asks for, one for each path: a BGP neighbor and its tunnel peer share one.
pub(super) fn wanted(config: &Config) -> Vec<SessionConfig> {
    let mut all: BTreeMap<Route, SessionConfig> = BTreeMap::new();
    for neighbor in config.bgp.iter().flat_map(|bgp| &bgp.neighbors) {
        if let Some(timing) = neighbor.bfd {
            let name = Arc::clone(&neighbor.peer.name);
            let interface = neighbor.place.interface.as_deref();
            let at = (neighbor.place.address, interface.map_or(0, bgp::interface_index));
            let session = session(config, Arc::clone(&name), at, timing, vec![name]);
            all.insert(session.route.clone(), session);
        }
    }
    for (peer, timing) in peers(config).filter_map(|peer| Some((peer, peer.bfd?))) {
        let hosts = peer.allowed_ips.iter().filter(|net| net.prefix_len() == net.max_prefix_len());
        let Some(remote) = hosts.map(IpNet::addr).next() else { continue };
        let session = session(config, peer.name.as_str().into(), (remote, 0), timing, Vec::new());
        all.entry(session.route.clone()).or_insert(session);
    }
    let mut all: Vec<_> = all.into_values().collect();
    make_names_unique(&mut all);
    all
}

fn session(
    config: &Config,
    name: Arc<str>,
    (remote, scope): (IpAddr, u32),
    timing: crate::config::Bfd,
    neighbors: Vec<Arc<str>>,
) -> SessionConfig {
    let peer = peer_of(config, remote).filter(|_| !timing.multihop);
    let route = match peer {
        Some(peer) => Route::Tunnel { peer: peer.name.as_str().into(), remote },
        None if timing.multihop => Route::Multihop { remote },
        None => Route::Direct { remote, scope },
    };
    let local = peer.and_then(|_| own_address(config, remote));
    SessionConfig { name, route, local, timing, neighbors }
}

/// The tunnel peer that owns an address, by the longest prefix.
fn peer_of(config: &Config, address: IpAddr) -> Option<&tunnel::PeerConfig> {
    let owners = peers(config).flat_map(|peer| peer.allowed_ips.iter().map(move |net| (net, peer)));
    let owner = owners.filter(|(net, _)| net.contains(&address)).max_by_key(|(net, _)| net.prefix_len());
    owner.map(|(_, peer)| peer)
}

fn peers(config: &Config) -> impl Iterator<Item = &tunnel::PeerConfig> {
    config.tunnel.iter().flat_map(|tunnel| &tunnel.peers)
}

/// Our overlay address towards a peer's: one of the same subnet, else the first of the family.
fn own_address(config: &Config, remote: IpAddr) -> Option<IpAddr> {
    let tunnel = config.tunnel.as_ref()?;
    let same = tunnel.addresses.iter().filter(|net| net.addr().is_ipv4() == remote.is_ipv4());
    let mut same = same.collect::<Vec<_>>();
    same.sort_by_key(|net| !net.contains(&remote));
    same.first().map(|net| net.addr())
}

/// A tunnel peer and a BGP neighbor elsewhere may have one name; its address tells the session apart then.
fn make_names_unique(all: &mut [SessionConfig]) {
    let mut seen = BTreeSet::new();
    for session in all {
        if !seen.insert(Arc::clone(&session.name)) {
            session.name = format!("{} {}", session.name, session.route.remote()).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use isthmus_bfd::{Change, Diagnostic};

    use super::*;

    const TUNNEL: &str = r#"
[tunnel]
addresses = ["10.99.0.1/24", "fd7a::1/64"]
[[tunnel.peer]]
name = "azure"
public_key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
allowed_ips = ["10.20.0.0/16", "10.99.0.2/32", "fd7a::2/128"]
bfd = { interval = "100ms" }
[[tunnel.peer]]
name = "quiet"
public_key = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
allowed_ips = ["10.99.0.3/32"]
[bgp]
asn = 64512
"#;

    fn parse(neighbors: &str) -> Vec<SessionConfig> {
        let text = format!("{TUNNEL}{neighbors}");
        wanted(&crate::config::parse(Path::new("/nonexistent/c.toml"), &text).unwrap())
    }

    fn neighbor(name: &str, address: &str, bfd: &str) -> String {
        format!("[[bgp.neighbor]]\nname = {name:?}\naddress = {address:?}\nasn = 64513\nbfd = {bfd}\n")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_tunnel_peer_is_watched_without_bgp() {
        let all = parse("");
        assert_eq!(all.len(), 1);
        let route = Route::Tunnel { peer: "azure".into(), remote: address("10.99.0.2") };
        assert_eq!((&all[0].route, all[0].local), (&route, Some(address("10.99.0.1"))));
        assert_eq!(all[0].timing.interval.as_millis(), 100);
    }

    #[test]
    fn a_neighbor_behind_a_peer_shares_its_path() {
        let all = parse(&neighbor("r1", "10.99.0.2", "{ interval = \"50ms\", multiplier = 5 }"));
        assert_eq!(all.len(), 1);
        assert_eq!((&*all[0].name, all[0].neighbors.len()), ("r1", 1));
        assert_eq!(all[0].timing.interval.as_millis(), 50);
        let all = parse(&neighbor("r1", "fd7a::2", "{}"));
        let six = all.iter().find(|session| &*session.name == "r1").unwrap();
        assert_eq!(six.local, Some(address("fd7a::1")));
        assert_eq!(six.route.tunnel_peer().map(|peer| &**peer), Some("azure"));
    }

    #[test]
    fn neighbors_elsewhere_are_direct_or_multihop() {
        let two =
            neighbor("near", "192.0.2.1", "{}") + &neighbor("azure", "192.0.2.9", "{ multihop = true }");
        let all = parse(&two);
        let route = |name: &str| &all.iter().find(|session| &*session.name == name).unwrap().route;
        assert_eq!(*route("near"), Route::Direct { remote: address("192.0.2.1"), scope: 0 });
        assert_eq!(*route("azure"), Route::Tunnel { peer: "azure".into(), remote: address("10.99.0.2") });
        assert_eq!(*route("azure 192.0.2.9"), Route::Multihop { remote: address("192.0.2.9") });
    }

    #[test]
    fn several_hops_of_bgp_are_several_of_bfd_unless_it_says_otherwise() {
        let of = |bfd: &str| {
            let all = parse(&(neighbor("far", "192.0.2.1", bfd) + "multihop = 3\n"));
            all.iter().find(|session| &*session.name == "far").unwrap().route.clone()
        };
        let remote = address("192.0.2.1");
        assert_eq!(of("{}"), Route::Multihop { remote });
        assert_eq!(of("{ multihop = false }"), Route::Direct { remote, scope: 0 });
    }

    #[test]
    fn a_peer_is_held_down_while_one_of_its_sessions_has_failed() {
        let sessions = parse(&neighbor("six", "fd7a::2", "{}"));
        let mut failed = Failed::default();
        let mut judge = |session: &SessionConfig, from, to, remote| {
            let change = Change { from, to, diagnostic: Diagnostic::NONE, remote, at: Instant::now() };
            let event = Event { session: Arc::new(session.clone()), change };
            failed.judge(&event, &"azure".into())
        };
        use State::{AdminDown, Down, Init, Up};
        let [four, six] = &sessions[..] else { panic!("two sessions") };
        assert_eq!(judge(four, Down, Init, Some(Down)), None, "it was never up");
        assert_eq!(judge(four, Init, Down, None), None, "nor is that a failure");
        assert_eq!(judge(four, Up, Down, None), Some(true));
        assert_eq!(judge(six, Up, Down, None), None);
        assert_eq!(judge(four, Down, Up, Some(Init)), None);
        assert_eq!(judge(six, Down, Down, Some(AdminDown)), Some(false));
    }
}
