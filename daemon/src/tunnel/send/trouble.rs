//! What the kernel refused on which path, so that it is not tried with every batch.

use std::{
    collections::HashMap,
    hash::Hash,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use isthmus_tunnel::buffer::OuterPath;

use crate::tunnel::sys::Message;

/// After this long the direct way is tried again: a route or a link may have changed.
const RETRY: Duration = Duration::from_secs(10);
/// Paths remembered at most; more than these are found out anew.
const PATHS: usize = 1024;

/// A way to send a message that was refused as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// From an address that the kernel chooses, not from where the peer was heard.
    any_source: bool,
    /// Datagram by datagram.
    singly: bool,
}

impl Way {
    /// The ways that differ from how the message is, the least different first. What was too much for the link is not mended by
    /// another source address.
    pub(super) fn all(message: &Message<'_>, error: &io::Error) -> impl Iterator<Item = Self> + use<> {
        let (has_source, is_merged) = (message.path.local.is_some(), message.segment.is_some());
        let is_link = matches!(error.raw_os_error(), Some(libc::EIO | libc::EMSGSIZE));
        let ways = [(true, false), (false, true), (true, true)];
        ways.into_iter()
            .filter(move |(any_source, singly)| *any_source <= has_source && *singly <= is_merged)
            .filter(move |(_, singly)| *singly || !is_link)
            .map(|(any_source, singly)| Self { any_source, singly })
    }

    /// The first of what is left of the message, sent this way.
    pub(super) fn apply<'a>(self, message: &Message<'a>) -> Message<'a> {
        let mut next = *message;
        if self.any_source {
            next.path.local = None;
        }
        let size = next.segment.map_or(next.bytes.len(), usize::from);
        if self.singly {
            next.bytes = &next.bytes[..size.min(next.bytes.len())];
        }
        if next.bytes.len() <= size {
            next.segment = None;
        }
        next
    }
}

/// Empty on a good day.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Datagrams of this size or more can't be merged to this destination, until then.
    merging: HashMap<SocketAddr, (usize, Instant)>,
    /// Our address of this path is not ours any more, or does not lead there, until then.
    sources: HashMap<OuterPath, Instant>,
}

impl Trouble {
    /// True if datagrams of this size may be merged on this path.
    pub(super) fn may_merge(&self, path: OuterPath, size: usize, now: Instant) -> bool {
        self.merging.is_empty()
            || self.merging.get(&path.remote).is_none_or(|(limit, until)| size < *limit || now >= *until)
    }

    /// The message without what is known to be refused.
    pub(super) fn improve<'a>(&self, mut message: Message<'a>, now: Instant) -> Message<'a> {
        if !self.sources.is_empty() && self.sources.get(&message.path).is_some_and(|until| now < *until) {
            message.path.local = None;
        }
        message
    }

    /// Remembers that the message, refused with `error`, went this way. Returns where it went, if its datagrams are larger than the
    /// route takes.
    pub(super) fn note(
        &mut self,
        message: &Message<'_>,
        way: Way,
        error: &io::Error,
        now: Instant,
    ) -> Option<SocketAddr> {
        let until = now + RETRY;
        if way.singly {
            // EIO says that the link cannot do it, whatever the size.
            let refused = message.segment.map_or(0, usize::from);
            let is_size = error.raw_os_error() != Some(libc::EIO);
            let limit = if is_size { refused } else { 0 };
            if remember(&mut self.merging, message.path.remote, (limit, until)) {
                tracing::info!(to = %message.path.remote, size = refused, reason = %error, "datagrams are sent one by one");
            }
            return is_size.then_some(message.path.remote);
        }
        if let (true, Some(from)) = (way.any_source, message.path.local)
            && remember(&mut self.sources, message.path, until)
        {
            let to = message.path.remote;
            tracing::info!(%from, %to, reason = %error, "source address does not serve: the kernel chooses another");
        }
        None
    }
}

/// True if that is news: what comes back after each [`RETRY`] is told once.
fn remember<K: Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, value: V) -> bool {
    if map.len() >= PATHS {
        map.clear();
    }
    map.insert(key, value).is_none()
}
