//! What happened to packets. Every packet is either carried or counted under exactly one reason to drop it; only
//! [`Drop::EndpointRefused`] counts packets that are carried.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A reason to drop a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Drop {
            $($(#[$doc])* $name,)*
        }

        impl Drop {
            /// All reasons.
            pub const ALL: &'static [Drop] = &[$(Drop::$name,)*];

            /// The name in metrics and commands.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Drop::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// No prefix, or none with a peer, covers the destination.
    NoRoute = "no_route",
    /// The peer's outer address is not known yet.
    NoEndpoint = "no_endpoint",
    /// No session yet, and the queue that waits for one was full or given up.
    NoSession = "no_session",
    /// The sending peer is no feasible path for the inner source address (RFC 3704).
    SourceNotFeasible = "source_not_feasible",
    /// Not a message of the tunnel protocol, or an inner packet whose lengths do not agree.
    Malformed = "malformed",
    /// Authentication failed.
    DecryptFailed = "decrypt_failed",
    /// Seen before, or too old to tell.
    Replayed = "replayed",
    /// The source address exceeded its handshake budget.
    RateLimited = "rate_limited",
    /// A handshake that must prove its source address first; a cookie was sent.
    CookieRequired = "cookie_required",
    /// No session with this receiver index.
    UnknownIndex = "unknown_index",
    /// A handshake from a key that is not a peer's.
    UnknownPeer = "unknown_peer",
    /// A handshake that does not fit: wrong key, preshared key, timestamp or state.
    HandshakeFailed = "handshake_failed",
    /// Came from an outer address that our own routes lead into the tunnel: what it holds is taken, the address is not followed.
    EndpointRefused = "endpoint_refused",
    /// A datagram of our own that was routed back into the tunnel.
    OwnOuterPacket = "own_outer_packet",
    /// Longer than the path to the peer carries, and not to be fragmented: its sender was told.
    TooBig = "too_big",
    /// Congestion on the outer path that the inner packet has no way to tell (RFC 6040 section 4.2).
    CongestionLost = "congestion_lost",
    /// The kernel refused the inner packet.
    TunWrite = "tun_write",
    /// The kernel refused the outer datagram.
    Send = "send",
}

/// Counters of dropped packets, one for each reason.
#[derive(Debug, Default)]
pub struct Drops([AtomicU64; Drop::ALL.len()]);

impl Drops {
    /// Counts `packets` packets.
    pub fn add(&self, reason: Drop, packets: u64) {
        self.0[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Packets dropped for this reason.
    pub fn get(&self, reason: Drop) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// Every reason with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (Drop, u64)> {
        Drop::ALL.iter().map(|reason| (*reason, self.get(*reason)))
    }
}

/// What one peer carried. Bytes and packets are those of inner packets: handshakes, keepalives and padding do not count.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets received from the peer.
    pub received_packets: AtomicU64,
    /// Their bytes.
    pub received_bytes: AtomicU64,
    /// Packets sent to the peer.
    pub sent_packets: AtomicU64,
    /// Their bytes.
    pub sent_bytes: AtomicU64,
    /// Packets to or from the peer that were dropped.
    pub drops: Drops,
}

/// Packets and bytes of one batch, added to the shared counters in one go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    pub(crate) fn flush(self, packets: &AtomicU64, bytes: &AtomicU64) {
        if self.packets > 0 {
            packets.fetch_add(self.packets, Ordering::Relaxed);
            bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let drops = Drops::default();
        for (n, reason) in (1..).zip(Drop::ALL) {
            drops.add(*reason, n);
        }
        let counts: Vec<u64> = drops.iter().map(|(_, count)| count).collect();
        assert_eq!(counts, (1..=u64::try_from(Drop::ALL.len()).unwrap()).collect::<Vec<_>>());
    }
}
