//! What the control task has to send.

use std::sync::Arc;

use isthmus_tunnel::buffer::Outbox;

use super::{
    engine::{self, Engine},
    send::{Sender, WhenFull},
    sys::{Message, SendSpace},
};

/// Datagrams of timers, and the way they leave.
pub(super) struct Post {
    engine: Arc<Engine>,
    /// What leaves with the next [`Post::send`].
    pub(super) outbox: Outbox,
    /// Path probes; each leaves alone, at once, by [`Post::send_probes`].
    pub(super) probes: Outbox,
    sender: Sender,
    space: SendSpace,
}

impl Post {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let (outbox, probes) = (Outbox::new(), Outbox::new());
        Self { engine, outbox, probes, sender: Sender::new(), space: SendSpace::new() }
    }

    /// Sends the outbox.
    pub(super) fn send(&mut self) {
        if let Some(sockets) = self.engine.sockets.first() {
            self.engine.send(&mut self.sender, sockets, &mut self.outbox, WhenFull::Drop, engine::now());
        }
    }

    /// Sends the probes, whole or not at all; false: one is too big for the link. What fails otherwise is as good as lost on the way.
    pub(super) fn send_probes(&mut self) -> bool {
        let Some(sockets) = self.engine.sockets.first() else { return true };
        let mut fits = true;
        for (bytes, path, ecn) in self.probes.iter() {
            let probe = Message { bytes, segment: None, path, ecn };
            match sockets.send_whole(&mut self.space, &probe) {
                Ok(sent) => fits &= sent,
                Err(error) => tracing::debug!(to = %path.remote, %error, "path probe not sent"),
            }
        }
        self.probes.clear();
        fits
    }
}
