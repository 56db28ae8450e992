//! Routes between the table, the peers and the driver.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Weak},
    time::Instant,
};

use ipnet::IpNet;

use super::{AddPathSelection, ConnectionId, Event, Peer, PeerId, Speaker, Up};
use crate::{
    Families, Family,
    adj_out::{AdjOut, Changes, Cursor, Format, Sent},
    fsm::Negotiated,
    refresh::Refresh,
    rib::{Change, ExportCache, ExportTarget, Neighbor, Rib, Source, Verdict},
    wire::{Attributes, Encoding, Peering},
};

/// Bytes after which [`Speaker::poll_transmit`] leaves the rest for the next call: more than most windows of the Adj-RIB-Out take, since
/// what is left of a window may have to be looked at again.
const TRANSMIT_BATCH: usize = 64 * 1024;
/// Lines of the journal that a peer may leave unread, whatever the size of the table.
const JOURNAL: usize = 16 * 1024;

/// All prefixes at one place of the journal, in the order of their attributes, so that they pack well. Peers that come up together share
/// one.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    prefixes: Option<Weak<[IpNet]>>,
    at: Cursor,
}

impl Snapshot {
    fn take(&mut self, rib: &Rib, changes: &Changes) -> (Arc<[IpNet]>, Cursor) {
        let known = self.prefixes.as_ref().and_then(Weak::upgrade).filter(|_| self.at == changes.end());
        let prefixes = known.unwrap_or_else(|| by_attributes(rib));
        (self.prefixes, self.at) = (Some(Arc::downgrade(&prefixes)), changes.end());
        (prefixes, self.at)
    }
}

fn by_attributes(rib: &Rib) -> Arc<[IpNet]> {
    let best = |paths: &[crate::rib::Path]| {
        paths.iter().find(|path| path.verdict() == Verdict::Best).map(|path| Arc::as_ptr(path.bundle()))
    };
    let mut all: Vec<_> = rib.iter().map(|(prefix, paths)| (best(paths), prefix)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, prefix)| prefix).collect()
}

impl Speaker {
    /// Prefixes whose paths changed since the last call, in the order in which they did; some perhaps twice. None while
    /// [`Speaker::defers`], and none after [`Speaker::suspend`].
    pub fn take_changed(&mut self) -> Vec<IpNet> {
        if self.deferral.defers() || self.departure.is_suspended() {
            return Vec::new();
        }
        self.changed_distinct = 0;
        std::mem::take(&mut self.changed)
    }

    /// Appends whole messages for a connection whose transport has room; false: nothing to send.
    pub fn poll_transmit(&mut self, connection: ConnectionId, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let Some(id) = self.owners.get(&connection).copied() else { return false };
        let Some(peer) = self.peers.get_mut(&id) else { return false };
        let control = peer.link(connection).map(|link| std::mem::take(&mut link.control));
        out.extend(control.unwrap_or_default());
        if !self.deferral.defers() && peer.up.as_ref().is_some_and(|up| up.connection == connection) {
            self.transmit_routes(id, out);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.session.handle_sent(connection);
            peer.sent.count(&out[before..]);
        }
        out.len() > before
    }

    fn transmit_routes(&mut self, id: PeerId, out: &mut Vec<u8>) {
        let Self { peers, rib, changes, config, departure, .. } = self;
        let Some(peer) = peers.get_mut(&id) else { return };
        let target = peer.export_target(config, departure.is_draining());
        let (Some(target), Some(up)) = (target, peer.up.as_mut()) else { return };
        let held_back = up.out.held_back();
        let Up { out: adj_out, exports, negotiated, .. } = up;
        let send = negotiated.add_path.send;
        let mut exporter = Exporter { rib, exports, target: &target, send, selection: peer.config.add_path };
        while out.len() < TRANSMIT_BATCH {
            match adj_out.encode_next(changes, &mut |prefix, paths| exporter.wanted(prefix, paths), out) {
                Ok(true) => {}
                Ok(false) => {
                    exporter.exports.clear();
                    break;
                }
                Err(error) => self.events.push_back(Event::Unsendable {
                    peer: Arc::clone(&peer.config.name),
                    error: error.to_string(),
                }),
            }
        }
        self.after_transmit(id, held_back);
    }

    /// Says when a limit begins to hold something back, and sends it when there is room again.
    fn after_transmit(&mut self, id: PeerId, held_back: Option<Family>) {
        let Some(peer) = self.peers.get(&id) else { return };
        let (Some(up), limit) = (&peer.up, peer.config.max_prefixes_out) else { return };
        if let (None, Some(family), Some(limit)) = (held_back, up.out.held_back(), limit) {
            self.events.push_back(Event::ExportLimit { peer: Arc::clone(&peer.config.name), family, limit });
        }
        if up.out.has_room_again() {
            self.review_exports(id);
        }
    }

    pub(super) fn up(
        &mut self,
        id: PeerId,
        connection: ConnectionId,
        negotiated: Arc<Negotiated>,
        now: Instant,
    ) {
        let (prefixes, at) = self.snapshot.take(&self.rib, &self.changes);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let own = peer.link(connection).map(|link| link.own).unwrap_or_default();
        let config = &peer.config;
        let own = own.toward(config.address, self.topology.is_on_link(config.address));
        let neighbor = Arc::new(Neighbor {
            id,
            name: Arc::clone(&config.name),
            address: config.address,
            router_id: negotiated.remote_router_id,
            asn: negotiated.remote_asn,
            external: negotiated.peering != Peering::Internal,
            client: config.route_reflector_client,
        });
        let format = Format {
            families: negotiated.families,
            encoding: Encoding { link_local: own.with_link_local(), ..negotiated.encoding() },
            enhanced_refresh: negotiated.enhanced_refresh,
        };
        let out = AdjOut::new(format, config.max_prefixes_out, prefixes, at, self.seed);
        let over_tunnel = self.topology.tunnel_peer(config.address).is_some();
        let exports = ExportCache::default();
        let end_of_rib = Families::NONE;
        let refresh = Refresh::new(&negotiated);
        let agreed = Arc::clone(&negotiated);
        peer.up = Some(Up {
            connection,
            neighbor,
            negotiated,
            own,
            out,
            exports,
            end_of_rib,
            refresh,
            asked: Families::NONE,
            over_tunnel,
        });
        peer.away = None;
        let orders = peer.keeper.handle_up(&agreed, now);
        let remote = peer.remote();
        self.keep(id, orders);
        self.members.handle_up(remote);
        self.renew_rules(id);
        if self.deferral.handle_up(id, &agreed) {
            self.release();
        }
    }

    /// Writes down what changed, for the peers and for the driver.
    pub(super) fn note(&mut self, prefix: IpNet, change: Change) {
        if change == Change::None {
            return;
        }
        self.changes.push(prefix, change);
        self.changed.push(prefix);
        // A driver that asks seldom costs each prefix twice at most.
        if self.changed.len() > 2 * self.changed_distinct + JOURNAL {
            self.changed.sort_unstable();
            self.changed.dedup();
            self.changed_distinct = self.changed.len();
        }
    }

    pub(super) fn note_all(&mut self, changes: Vec<(IpNet, Change)>) {
        for (prefix, change) in changes {
            self.note(prefix, change);
        }
    }

    /// Forgets what every peer knows, and does not wait for those that are far behind.
    pub(super) fn trim(&mut self) {
        let limit = self.rib.len().max(JOURNAL);
        for peer in self.peers.values_mut() {
            let Some(up) = peer.up.as_mut() else { continue };
            if self.changes.unread(up.out.cursor()) > limit {
                let (prefixes, at) = self.snapshot.take(&self.rib, &self.changes);
                up.out.catch_up(prefixes, at);
            }
        }
        let readers = self.peers.values().filter_map(|peer| peer.up.as_ref()).map(|up| up.out.cursor());
        self.changes.forget(readers);
        self.rib.tidy();
    }

    /// A peer's export rules changed: it is sent what is different now.
    pub(super) fn review_exports(&mut self, id: PeerId) {
        let (prefixes, _) = self.snapshot.take(&self.rib, &self.changes);
        let Some(up) = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut()) else { return };
        up.exports.clear();
        up.out.review(prefixes);
    }

    pub(super) fn set_export_limit(&mut self, id: PeerId, limit: Option<u32>) {
        if let Some(up) = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut()) {
            up.out.set_limit(limit);
        }
    }

    /// The peer asks for a family again.
    pub(super) fn refresh_exports(&mut self, id: PeerId, family: Family) {
        let (prefixes, _) = self.snapshot.take(&self.rib, &self.changes);
        if let Some(up) = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut()) {
            up.out.refresh(family, prefixes);
        }
    }

    pub(super) fn originate(&mut self, prefix: IpNet) {
        let unspecified = match Family::of(&prefix) {
            Family::Ipv4Unicast => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::Ipv6Unicast => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let attributes = self.rib.intern(Attributes::originated(unspecified));
        let bundle = self.rib.bundle(Source::Local, attributes, None);
        // One path of one source always has room.
        let change = self.rib.announce(prefix, 0, &bundle, None).unwrap_or(Change::None);
        self.note(prefix, change);
    }
}

impl Peer {
    /// True if there are routes to send.
    pub(super) fn has_routes(&self, changes: &Changes) -> bool {
        self.up.as_ref().is_some_and(|up| up.out.is_pending(changes))
    }
}

/// What one peer is told of a prefix.
struct Exporter<'a> {
    rib: &'a mut Rib,
    exports: &'a mut ExportCache,
    target: &'a ExportTarget,
    /// Families in which it takes several paths.
    send: Families,
    selection: AddPathSelection,
}

impl Exporter<'_> {
    fn wanted(&mut self, prefix: IpNet, paths: &mut Vec<Sent>) {
        if !self.send.contains(Family::of(&prefix)) {
            let Some(best) = self.rib.best(prefix).map(|path| Arc::clone(path.bundle())) else { return };
            let rib = &mut *self.rib;
            let sent = self.exports.export(prefix, &best, self.target, |attributes| rib.intern(attributes));
            return paths.extend(sent.ok().map(|attributes| (0, attributes)));
        }
        let usable = self.rib.paths(prefix).iter().filter(|path| path.verdict().ineligible().is_none());
        let mut usable: Vec<_> = usable.cloned().collect();
        usable.sort_by_key(|path| rank(path.verdict()));
        let most = match self.selection {
            AddPathSelection::All => usize::MAX,
            AddPathSelection::Best(others) => 1 + usize::from(others),
        };
        for path in usable {
            let rib = &mut *self.rib;
            let sent = self.exports.export(prefix, path.bundle(), self.target, |new| rib.intern(new));
            paths.extend(sent.ok().map(|attributes| (u32::from(path.local_id()), attributes)));
            if paths.len() >= most {
                break;
            }
        }
    }
}

/// The best first, then what is as good.
fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Best => 0,
        Verdict::Equal => 1,
        Verdict::Lost(_) | Verdict::Undecided | Verdict::Ineligible(_) => 2,
    }
}
