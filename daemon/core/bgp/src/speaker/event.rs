//! What the speaker tells the driver.

use std::{fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{ConnectionId, PeerId};
use crate::{
    Family,
    fsm::State,
    rib::Ineligible,
    wire::{Fault, Notification},
};

/// What the driver has to do or may want to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Connect to the peer; answer with [`super::Speaker::handle_connected`] or [`super::Speaker::handle_dial_failed`].
    Dial {
        /// Whom.
        peer: PeerId,
        /// Its address.
        address: IpAddr,
        /// Its TCP port.
        port: u16,
    },
    /// Write the last words if the transport takes them soon, then close. The speaker has forgotten the connection.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Whole messages, perhaps none.
        last_words: Vec<u8>,
    },
    /// A session changed its state.
    StateChanged {
        /// Its name.
        peer: Arc<str>,
        /// Before.
        from: State,
        /// Now.
        to: State,
        /// Why, for a person.
        reason: String,
    },
    /// A NOTIFICATION was sent or received.
    Notified {
        /// The peer's name.
        peer: Arc<str>,
        /// True: by us.
        sent: bool,
        /// It.
        notification: Notification,
    },
    /// An UPDATE had a fault that did not end the session (RFC 7606).
    UpdateFault {
        /// The peer's name.
        peer: Arc<str>,
        /// The worst fault of the message, and what was done about it.
        fault: Fault,
    },
    /// A path is not used because of its next hop. One event for each UPDATE, or for each look at all of a peer's paths.
    NextHopRefused {
        /// The peer's name.
        peer: Arc<str>,
        /// The first such prefix.
        prefix: IpNet,
        /// Its next hop.
        next_hop: IpAddr,
        /// The rule.
        why: Ineligible,
    },
    /// The peer has reached the number of prefixes that it may be sent; others are held back from it.
    ExportLimit {
        /// The peer's name.
        peer: Arc<str>,
        /// The family.
        family: Family,
        /// The limit.
        limit: u32,
    },
    /// What a restarted peer had announced before is gone: all of it, or what it did not announce again.
    StaleGone {
        /// The peer's name.
        peer: Arc<str>,
        /// The family.
        family: Family,
        /// How many paths.
        paths: u32,
    },
    /// This node has come back: its own routes are selected and told from now on. Once, and only after [`super::Speaker::defers`] was true.
    RestartOver,
    /// The drain is through: every session has ended, the peers expect nothing of us any more.
    Drained,
    /// The peer announces too many paths to one prefix; those above the limit are not taken. One event for each UPDATE.
    TooManyPaths {
        /// The peer's name.
        peer: Arc<str>,
        /// The prefix.
        prefix: IpNet,
    },
    /// Prefixes could not be announced: their attributes fit into no message.
    Unsendable {
        /// The peer's name.
        peer: Arc<str>,
        /// Why.
        error: String,
    },
}

/// Why an incoming connection is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The address is no configured peer's.
    Unknown,
    /// As many peers as allowed have come by this name's template.
    Full(Arc<str>),
    /// The peer's session does not want it now.
    Unwanted(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no neighbor is configured with this address"),
            Self::Full(template) => write!(f, "{template} has as many neighbors as its limit allows"),
            Self::Unwanted(why) => f.write_str(why),
        }
    }
}
