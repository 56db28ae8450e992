//! Why a connection ends: what the peer is told, when to try again, whose fault it is, and what happens to the routes.

use std::{fmt, time::Instant};

use super::retry::Failure;
use crate::wire::{
    Notification,
    code::{self, cease},
};

/// How an established session ended, as graceful restart sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The transport went without a word, or a peer that restarted came back over it.
    Transport,
    /// BFD, or whoever else watches the path, says that it is dead.
    PathDown,
    /// One side sent a NOTIFICATION; `hard`: one after which nothing is kept (RFC 8538 section 3).
    Notification {
        /// Hard Reset, or what we send as one where the peer knows it.
        hard: bool,
    },
    /// We ended it for good, or under another configuration: nothing is kept.
    Stopped,
}

/// Who has to do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What lies between the two.
    Network,
    /// The peer broke the protocol.
    Peer,
    /// This node did, as the peer sees it.
    Here,
    /// The two configurations do not fit.
    Configuration,
    /// Somebody wanted it so.
    Operator,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "the network",
            Self::Peer => "the peer",
            Self::Here => "this node, as the peer says",
            Self::Configuration => "the two configurations do not fit",
            Self::Operator => "an operator",
        })
    }
}

/// What last ended or prevented a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When.
    pub at: Instant,
    /// We sent the NOTIFICATION; without one this is false.
    pub sent: bool,
    /// The NOTIFICATION, if there was one.
    pub notification: Option<Notification>,
    /// For a person.
    pub text: String,
}

impl LastError {
    /// Whose fault it was.
    pub fn fault(&self) -> Fault {
        let Some(notification) = &self.notification else { return Fault::Network };
        match (notification.code, notification.subcode) {
            (code::OPEN, _) | (code::CEASE, cease::MAX_PREFIXES) => Fault::Configuration,
            (code::HOLD_TIMER | code::SEND_HOLD_TIMER, _) | (code::CEASE, cease::BFD_DOWN) => Fault::Network,
            (code::CEASE, _) => Fault::Operator,
            _ if self.sent => Fault::Peer,
            _ => Fault::Here,
        }
    }
}

/// Why a connection ends.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    /// The transport is gone; for a person.
    Transport(String),
    /// We say so, for a reason in words.
    Sent(Notification, String),
    /// The peer says so.
    Received(Notification),
}

impl Cause {
    pub(super) fn sent(notification: Notification) -> Self {
        let why = format!("we sent {notification}");
        Self::Sent(notification, why)
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Transport(why) | Self::Sent(_, why) => why.clone(),
            Self::Received(notification) => format!("peer sent {notification}"),
        }
    }

    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Transport(_) => Failure::Transport,
            Self::Sent(notification, _) | Self::Received(notification) => Failure::of(notification),
        }
    }

    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::Transport(_) => Ending::Transport,
            Self::Sent(n, _) | Self::Received(n) if is_cease(n, cease::BFD_DOWN) => Ending::PathDown,
            Self::Sent(n, _) => Ending::Notification { hard: is_hard(n) },
            Self::Received(n) => Ending::Notification { hard: is_cease(n, cease::HARD_RESET) },
        }
    }

    pub(super) fn to_send(&self) -> Option<Notification> {
        match self {
            Self::Sent(notification, _) => Some(notification.clone()),
            Self::Transport(_) | Self::Received(_) => None,
        }
    }

    pub(super) fn into_error(self, at: Instant) -> LastError {
        let text = self.text();
        let (sent, notification) = match self {
            Self::Transport(_) => (false, None),
            Self::Sent(notification, _) => (true, Some(notification)),
            Self::Received(notification) => (false, Some(notification)),
        };
        LastError { at, sent, notification, text }
    }
}

fn is_cease(notification: &Notification, subcode: u8) -> bool {
    (notification.code, notification.subcode) == (code::CEASE, subcode)
}

/// What leaves nothing to keep: the peer would hold on to routes of a session that is not coming back.
pub(super) fn is_hard(notification: &Notification) -> bool {
    use cease::{DECONFIGURED, HARD_RESET, MAX_PREFIXES, SHUTDOWN};
    [MAX_PREFIXES, SHUTDOWN, DECONFIGURED, HARD_RESET].iter().any(|s| is_cease(notification, *s))
}
