//! What we say to senders of packets that are too big: with measure, since everything said can be provoked.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use isthmus_tunnel::{buffer::Plaintext, icmp};

use crate::tunnel::tun::{Queue, Sink};

/// One message each so often, over all senders; a sender needs one.
const INTERVAL: Duration = Duration::from_millis(1);
/// Messages at once.
const BURST: u32 = 50;
/// Longest packet that there can be.
const LONGEST: usize = 65_535;

/// A bucket of messages, and memory to write them in.
pub(super) struct Notices {
    /// When the bucket will be full again.
    full_at: Option<Instant>,
    packet: Vec<u8>,
    answer: [u8; icmp::LONGEST],
}

impl Default for Notices {
    fn default() -> Self {
        Self { full_at: None, packet: Vec::new(), answer: [0; icmp::LONGEST] }
    }
}

impl Notices {
    /// Tells the sender of `packet` what fits (ICMP "fragmentation needed", ICMPv6 "packet too big"). The message comes from where the
    /// packet was going: this host would not believe one of its own addresses, and its programs are senders too.
    pub(super) fn too_big(
        &mut self,
        packet: &impl Plaintext,
        mtu: u16,
        destination: IpAddr,
        queue: &Queue,
        now: Instant,
    ) {
        if destination.is_multicast() || !self.may_speak(now) {
            return;
        }
        self.packet.resize(packet.len().min(LONGEST), 0);
        packet.write(&mut self.packet);
        if let Some(length) = icmp::too_big(&self.packet, mtu, destination, &mut self.answer)
            && let Err(error) = queue.write_packet(&self.answer[..length])
        {
            tracing::debug!(%error, "the kernel refuses an ICMP message");
        }
    }

    fn may_speak(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + INTERVAL;
        let allowed = full_at.saturating_duration_since(now) <= INTERVAL * BURST;
        if allowed {
            self.full_at = Some(full_at);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_answered_with_measure() {
        let (mut notices, start) = (Notices::default(), Instant::now());
        let spoken = |notices: &mut Notices, at| (0..1000).filter(|_| notices.may_speak(at)).count();
        assert_eq!(spoken(&mut notices, start), 50);
        assert_eq!(spoken(&mut notices, start + INTERVAL * 7), 7);
        assert_eq!(spoken(&mut notices, start + Duration::from_secs(9)), 50);
    }
}
