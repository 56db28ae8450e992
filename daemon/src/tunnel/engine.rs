//! What the packet threads and the control task share.

use std::{
    io,
    net::SocketAddr,
    os::fd::AsFd,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use isthmus_tunnel::{
    Now,
    buffer::Outbox,
    counters::{Drop, Drops},
};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{
    Error, Offload,
    attention::Attention,
    histogram::{BatchSizes, Histogram},
    offload::Offloads,
    peer::Peer,
    send::{Sender, WhenFull},
    snapshot::Snapshot,
    sockets::Sockets,
    tap::Tap,
    tun::Tun,
    waiter::{Set, Waiter},
};

/// Shared by the packet threads and the control task.
pub(super) struct Engine {
    pub(super) snapshot: ArcSwap<Snapshot>,
    /// One pair for each worker.
    pub(super) sockets: Vec<Sockets>,
    pub(super) tun: Tun,
    pub(super) offloads: Offloads,
    /// Drops that belong to no peer.
    pub(super) drops: Drops,
    pub(super) batches: Batches,
    /// Who is shown packets before they are delivered.
    pub(super) tap: ArcSwapOption<Tap>,
    attention: Arc<Attention>,
    stop: EventFd,
}

/// How many packets each kind of system call carried.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// Read from the TUN device with one read.
    pub(super) tun_read: Histogram,
    /// Written to the TUN device with one write.
    pub(super) tun_write: Histogram,
    /// Sent as one message.
    pub(super) udp_send: Histogram,
    /// Received as one message.
    pub(super) udp_receive: Histogram,
}

impl Batches {
    pub(super) fn sizes(&self) -> [(&'static str, BatchSizes); 4] {
        let all = [&self.tun_read, &self.tun_write, &self.udp_send, &self.udp_receive];
        let names = ["tun_read", "tun_write", "udp_send", "udp_receive"];
        std::array::from_fn(|i| (names[i], all[i].sizes()))
    }
}

impl Engine {
    pub(super) fn new(
        snapshot: Snapshot,
        sockets: Vec<Sockets>,
        tun: Tun,
        offloads: Offloads,
        attention: Arc<Attention>,
    ) -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = EventFd::from_flags(flags)
            .map_err(|error| Error::System { what: "make an eventfd", reason: error.into() })?;
        Ok(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            sockets,
            tun,
            offloads,
            drops: Drops::default(),
            batches: Batches::default(),
            tap: ArcSwapOption::empty(),
            attention,
            stop,
        })
    }

    /// Sends and forgets what is in the outbox.
    pub(super) fn send(
        &self,
        sender: &mut Sender,
        sockets: &Sockets,
        outbox: &mut Outbox,
        when_full: WhenFull,
        now: Now,
    ) {
        if outbox.is_empty() {
            return;
        }
        let batches = &self.batches.udp_send;
        let dropped = sender.send(sockets, &self.offloads, outbox, when_full, now.instant, batches);
        if dropped > 0 {
            self.drops.add(Drop::Send, dropped);
        }
        outbox.clear();
        sender.take_narrow().into_iter().for_each(|remote| self.doubt(remote, now.instant));
    }

    /// The way to there is narrower than thought: whoever is there is measured anew.
    fn doubt(&self, remote: SocketAddr, now: Instant) {
        let snapshot = self.snapshot.load();
        let there = |peer: &&Arc<Peer>| peer.session.endpoint() == Some(remote);
        for peer in snapshot.peers.iter().filter(there) {
            peer.session.path_refused(now);
            self.look_at(peer);
        }
    }

    /// The UDP port.
    pub(super) fn port(&self) -> u16 {
        self.sockets.first().map_or(0, Sockets::port)
    }

    /// Asks the control task to look at a peer: its timers or its state changed.
    pub(super) fn look_at(&self, peer: &Peer) {
        self.attention.ask(peer.index);
    }

    /// Uses an offload, or doesn't, from the next batch on.
    ///
    /// # Errors
    /// When the kernel refuses it; then it is off.
    pub(super) fn switch(&self, offload: Offload, on: bool) -> Result<(), Error> {
        self.offloads.want(offload, on);
        let done = match offload {
            Offload::TunTso | Offload::TunUso => self.tun.set_offloads(&self.offloads),
            Offload::UdpGro => self.sockets.iter().try_for_each(|pair| pair.accept_merged(on)),
            Offload::TunTcpGro | Offload::TunUdpGro | Offload::UdpGso => Ok(()),
        };
        if let Err(error) = done {
            self.offloads.refuse(offload, format!("the kernel refuses it: {error}"));
        }
        match self.offloads.refusal(offload) {
            Some(reason) if on => Err(Error::Offload { offload: offload.as_str(), reason }),
            _ => {
                tracing::info!(offload = offload.as_str(), on, "offload switched");
                Ok(())
            }
        }
    }

    /// Lets the kernel merge what arrives, where that is wanted.
    pub(super) fn accept_merged(&self) {
        let on = self.offloads.is_on(Offload::UdpGro);
        if let Err(error) = self.sockets.iter().try_for_each(|pair| pair.accept_merged(on)) {
            self.offloads.refuse(Offload::UdpGro, format!("this kernel (before 5.0?) refuses it: {error}"));
        }
    }

    /// A way to wait for what is in the set, or for the engine to stop.
    ///
    /// # Errors
    /// When the kernel has no room for that.
    pub(super) fn waiter(&self, set: Set) -> io::Result<Waiter> {
        Waiter::new(set, self.stop.as_fd())
    }

    /// Ends every [`Waiter::wait`], now and later.
    pub(super) fn stop(&self) {
        // It fails only when the counter is about to overflow, and then it is readable already.
        let _ = self.stop.write(1);
    }
}

/// Both clocks.
pub(super) fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { instant: Instant::now(), unix }
}
