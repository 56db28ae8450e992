//! A way past the device for what others in this daemon say to a peer: no queue of the device and no kernel in between, so that it
//! proves the path that data takes, and nothing else.

use std::sync::{Arc, Weak};

use isthmus_tunnel::{buffer::Outbox, packet};

use super::{
    engine::{self, Engine},
    send::{Sender, WhenFull},
};

/// Gets what a peer, by name, sends to the tapped port; true: it is not delivered to the device. Called by the packet threads, so it
/// must not wait.
pub type TapHook = Arc<dyn Fn(&str, &[u8]) -> bool + Send + Sync>;

/// UDP packets to one port are shown to somebody before they are delivered.
pub(super) struct Tap {
    pub(super) port: u16,
    pub(super) hook: TapHook,
}

impl Tap {
    /// True if somebody took the packet.
    pub(super) fn takes(&self, peer: &str, bytes: &[u8]) -> bool {
        let ports = packet::parse(bytes).ok().and_then(|packet| packet.udp_ports());
        ports.is_some_and(|(_, to)| to == self.port) && (self.hook)(peer, bytes)
    }
}

/// Sends inner packets to peers, whatever the routes say and also to a peer that is held down.
pub struct Injector {
    engine: Weak<Engine>,
    outbox: Outbox,
    sender: Sender,
}

impl Injector {
    pub(super) fn new(engine: Weak<Engine>) -> Self {
        Self { engine, outbox: Outbox::new(), sender: Sender::new() }
    }

    /// Seals a whole IP packet and sends it at once, so that packets leave in the order of the calls; if there is no session yet it is
    /// given up and a handshake starts. False: there is no such peer, or the tunnel has stopped.
    pub fn send(&mut self, peer: &str, packet: &[u8]) -> bool {
        let Some(engine) = self.engine.upgrade() else { return false };
        let snapshot = engine.snapshot.load();
        let found = snapshot.peers.iter().find(|other| *other.name == *peer);
        let (Some(peer), Some(sockets)) = (found, engine.sockets.first()) else { return false };
        let now = engine::now();
        if peer.session.seal_news(packet, now, &mut self.outbox) {
            engine.look_at(peer);
        }
        engine.send(&mut self.sender, sockets, &mut self.outbox, WhenFull::Drop, now);
        true
    }
}
