//! How many messages of each type there were.

use crate::wire::{MessageType, frame};

/// Messages in one direction since the peer was configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// OPEN.
    pub open: u64,
    /// UPDATE, the End-of-RIB markers among them.
    pub update: u64,
    /// NOTIFICATION.
    pub notification: u64,
    /// KEEPALIVE.
    pub keepalive: u64,
    /// ROUTE-REFRESH: requests and the marks around answers.
    pub route_refresh: u64,
}

impl Messages {
    /// Messages of any type.
    pub fn total(&self) -> u64 {
        self.open + self.update + self.notification + self.keepalive + self.route_refresh
    }

    pub(super) fn add(&mut self, kind: MessageType) {
        let count = match kind {
            MessageType::Open => &mut self.open,
            MessageType::Update => &mut self.update,
            MessageType::Notification => &mut self.notification,
            MessageType::Keepalive => &mut self.keepalive,
            MessageType::RouteRefresh => &mut self.route_refresh,
        };
        *count += 1;
    }

    /// Adds whole messages, as we wrote them.
    pub(super) fn count(&mut self, mut bytes: &[u8]) {
        while let Ok(Some(message)) = frame(bytes) {
            self.add(message.kind);
            bytes = &bytes[message.wire_length()..];
        }
    }
}
