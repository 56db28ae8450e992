//! What leaves, and when (RFC 5880 section 6.8.7).

use std::time::Instant;

use super::{Poll, Session};
use crate::{Interval, Packet};

impl Session {
    /// The next packet to send at once, if there is one.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        // An answer waits for no timer. It tells what changed as well: two packets for one received would multiply between two sides
        // whose packets cross.
        if std::mem::take(&mut self.answer) {
            self.due = false;
            return Some(Packet { fin: true, ..self.packet() });
        }
        if !self.may_send_periodically() || !std::mem::take(&mut self.due) {
            return None;
        }
        self.sent = Some(now);
        self.draw_jitter();
        let mut packet = self.packet();
        if let Poll::Running { asked, .. } = &mut self.poll {
            *asked = true;
            packet.poll = true;
        }
        Some(packet)
    }

    pub(super) fn packet(&self) -> Packet {
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: false,
            fin: false,
            independent: false,
            demand: false,
            multiplier: self.config.multiplier,
            mine: self.discriminator,
            yours: self.remote.map(|remote| remote.discriminator),
            desired_min_tx: self.timing.told.tx,
            required_min_rx: self.timing.told.rx,
            required_min_echo_rx: Interval::default(),
        }
    }

    /// 75 to 100 % of the interval; at most 90 % where not a single packet may be late.
    fn draw_jitter(&mut self) {
        let most = if self.config.multiplier.get() == 1 { 900 } else { 1000 };
        self.jitter = 750 + self.random.below(most - 750 + 1);
    }
}
