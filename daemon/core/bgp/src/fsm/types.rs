//! The words of the state machine.

use std::{fmt, net::Ipv4Addr, sync::Arc, time::Duration};

use super::{AsnSet, Ending};
use crate::{
    ConnectionId, Families,
    wire::{Capability, Encoding, Notification, Open, Peering, Role, RouteRefresh, UpdateContext},
};

/// What a session is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Own AS number.
    pub local_asn: u32,
    /// Own BGP identifier.
    pub router_id: Ipv4Addr,
    /// The AS numbers that the peer may have.
    pub remote_asn: AsnSet,
    /// The peer connects, we never dial.
    pub passive: bool,
    /// Hold time offered, in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// Families offered.
    pub families: Families,
    /// What else is offered.
    pub offer: Offer,
}

/// Capabilities that are a matter of configuration. Route refresh, plain and enhanced, is always offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Families in which we want several paths to a prefix, and those in which we would send them (RFC 7911).
    pub add_path: AddPath,
    /// IPv4 prefixes with an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// `None`: we neither keep the peer's routes nor ask it to keep ours.
    pub restart: Option<RestartOffer>,
    /// What we are to an external peer (RFC 9234).
    pub role: Option<Role>,
    /// Without the peer's role there is no session (RFC 9234 section 4.2).
    pub strict_role: bool,
}

/// Directions of add-path, by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddPath {
    /// Families in which we send several paths.
    pub send: Families,
    /// Families in which we receive them.
    pub receive: Families,
}

/// Our side of graceful restart (RFC 4724).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartOffer {
    /// How long the peer should keep our routes, in seconds, at most 4095.
    pub time: u16,
    /// We have just restarted: true in the OPENs of the first session after a start, never later.
    pub restarting: bool,
    /// Families that this node went on forwarding meanwhile.
    pub forwarding: Families,
}

impl RestartOffer {
    /// The longest time that fits into the capability, in seconds.
    pub const LONGEST: u16 = 4095;
}

/// States of RFC 4271 section 8.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Not trying, and refusing connections.
    Idle,
    /// Waiting for the next try, and for the peer to connect.
    Active,
    /// Dialing.
    Connect,
    /// Connected, waiting for the peer's OPEN.
    OpenSent,
    /// OPEN agreed, waiting for its confirmation.
    OpenConfirm,
    /// Routes flow.
    Established,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// We dialed.
    Outgoing,
    /// The peer did.
    Incoming,
}

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The peer's AS number.
    pub remote_asn: u32,
    /// The peer's BGP identifier.
    pub remote_router_id: Ipv4Addr,
    /// Hold time; zero: none, the session lives until TCP says otherwise.
    pub hold_time: Duration,
    /// Interval between KEEPALIVEs, a third of the hold time.
    pub keepalive: Duration,
    /// Families that both sides carry.
    pub families: Families,
    /// AS numbers are four octets wide in AS_PATH.
    pub four_octet: bool,
    /// Kind of peer.
    pub peering: Peering,
    /// Families with several paths to a prefix.
    pub add_path: AddPath,
    /// IPv4 prefixes may have an IPv6 next hop, both ways.
    pub extended_next_hop: bool,
    /// The peer sends a family again when asked.
    pub route_refresh: bool,
    /// Both sides mark begin and end of that (RFC 7313).
    pub enhanced_refresh: bool,
    /// The peer's side of graceful restart; `None` unless both sides offered it.
    pub restart: Option<PeerRestart>,
    /// Our role, if we have one; the peer's is then its counterpart or unknown (RFC 9234).
    pub role: Option<Role>,
    /// Everything we said that we can do, for showing.
    pub offered: Vec<Capability>,
    /// Everything the peer said that it can do, known to us or not, for showing.
    pub capabilities: Vec<Capability>,
}

/// What the peer said about its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRestart {
    /// It has just restarted.
    pub restarting: bool,
    /// Both sides keep routes through a NOTIFICATION that is no Hard Reset (RFC 8538).
    pub notification: bool,
    /// How long its routes are to be kept.
    pub time: Duration,
    /// Families that it can keep.
    pub families: Families,
    /// Families that it went on forwarding.
    pub forwarding: Families,
}

impl Negotiated {
    /// What an UPDATE's meaning depends on.
    pub fn update_context(&self) -> UpdateContext {
        UpdateContext {
            four_octet: self.four_octet,
            peering: self.peering,
            families: self.families,
            add_path: self.add_path.receive,
            extended_next_hop: self.extended_next_hop,
        }
    }

    /// What the way to write an UPDATE depends on; our addresses on the link are the caller's to add.
    pub fn encoding(&self) -> Encoding {
        Encoding {
            four_octet: self.four_octet,
            add_path: self.add_path.send,
            extended_next_hop: self.extended_next_hop,
            link_local: None,
        }
    }
}

/// A message as far as the state machine looks into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// OPEN.
    Open(Open),
    /// KEEPALIVE.
    Keepalive,
    /// UPDATE; its content is for the RIB.
    Update,
    /// NOTIFICATION.
    Notification(Notification),
    /// ROUTE-REFRESH.
    RouteRefresh(RouteRefresh),
}

impl Input {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "OPEN",
            Self::Keepalive => "KEEPALIVE",
            Self::Update => "UPDATE",
            Self::Notification(_) => "NOTIFICATION",
            Self::RouteRefresh(_) => "ROUTE-REFRESH",
        }
    }
}

/// What the owner of the session has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection; answer with [`super::Session::handle_connected`] or [`super::Session::handle_dial_failed`].
    Dial,
    /// Send our OPEN.
    SendOpen(ConnectionId, Open),
    /// Send a KEEPALIVE.
    SendKeepalive(ConnectionId),
    /// Send this if there is one, and close. The connection is already forgotten here.
    Close(ConnectionId, Option<Notification>),
    /// Routes may flow on this connection.
    Up(ConnectionId, Arc<Negotiated>),
    /// The established connection is gone. What was learned from it goes too, unless graceful restart keeps it after such an end.
    Down(ConnectionId, Ending),
    /// The reported state changed.
    Changed {
        /// State before.
        from: State,
        /// State now.
        to: State,
    },
}
