//! The words of the state machine.

use std::{fmt, net::Ipv4Addr, sync::Arc, time::Duration};

use crate::{
    ConnectionId, Families,
    wire::{Notification, Open, Peering, RouteRefresh, UpdateContext},
};

/// What a session is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Own AS number.
    pub local_asn: u32,
    /// Own BGP identifier.
    pub router_id: Ipv4Addr,
    /// The AS number that the peer must have.
    pub remote_asn: u32,
    /// Hold time offered, in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// Families offered.
    pub families: Families,
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
}

impl Negotiated {
    /// What an UPDATE's meaning depends on.
    pub fn update_context(&self) -> UpdateContext {
        UpdateContext { four_octet: self.four_octet, peering: self.peering, families: self.families }
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
    /// The established connection is gone: so is everything learned from it.
    Down(ConnectionId),
    /// The reported state changed.
    Changed {
        /// State before.
        from: State,
        /// State now.
        to: State,
    },
}
