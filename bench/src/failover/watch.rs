//! BFD over the near end's tunnel marks peers down as the daemon has it done: its verdicts, and when it gave them.

use std::{
    num::NonZeroU8,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use isthmusd::{
    bfd::{self, Event, Route, SessionConfig},
    config::Bfd,
    lifecycle::CancellationToken,
    tunnel,
};

use super::{flow::now, rig};
use crate::tunnel::LIMIT;

/// UDP port of single-hop BFD (RFC 5881 section 4).
const PORT: u16 = 3784;
/// Three packets of this interval may be lost.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
const MULTIPLIER: NonZeroU8 = NonZeroU8::new(3).expect("three is not zero");

/// What BFD said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// A path is dead since then, in nanoseconds by the clock of [`now`].
    Dead(u64),
    /// One is there.
    Alive,
}

/// Watches both far ends; stops with the value.
pub(super) struct Watch {
    verdicts: Receiver<Verdict>,
    token: CancellationToken,
}

impl Watch {
    /// Starts, and waits for both far ends to answer.
    ///
    /// # Errors
    /// When BFD does not start or an end does not answer.
    pub(super) async fn start(tunnel: &tunnel::Handle) -> Result<Self> {
        let mut injector = tunnel.injector();
        let carry: bfd::Carry = Box::new(move |peer, packet| injector.send(peer, packet));
        let (told, verdicts) = channel();
        let token = CancellationToken::new();
        let (handle, _task) =
            bfd::start(sessions(), carry, hook(tunnel.clone(), told), token.clone()).await?;
        tunnel.tap(PORT, Arc::new(move |peer, packet| handle.deliver(peer, packet)));
        let watch = Self { verdicts, token };
        rig::PEERS.iter().try_for_each(|_| watch.alive())?;
        Ok(watch)
    }

    /// Forgets what was said so far: a path may come and go before it stays.
    pub(super) fn forget(&self) {
        while self.verdicts.try_recv().is_ok() {}
    }

    /// When a path died, as BFD has it.
    ///
    /// # Errors
    /// When none does.
    pub(super) fn dead(&self) -> Result<u64> {
        loop {
            let said = self.verdicts.recv_timeout(LIMIT);
            if let Verdict::Dead(at) = said.context("BFD calls no path dead")? {
                return Ok(at);
            }
        }
    }

    /// Waits for a path to be there.
    ///
    /// # Errors
    /// When there is none in time.
    pub(super) fn alive(&self) -> Result<()> {
        while self.verdicts.recv_timeout(LIMIT).context("BFD finds no path")? != Verdict::Alive {}
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// As the daemon's: the bit of the data plane before anything else.
fn hook(tunnel: tunnel::Handle, told: Sender<Verdict>) -> bfd::Hook {
    Box::new(move |event: &Event| {
        let Some(peer) = event.session.route.tunnel_peer() else { return };
        let verdict = if event.change.is_failure() {
            tunnel.hold_down(peer, Some("BFD"));
            Verdict::Dead(now().saturating_sub(nanoseconds(event.change.at.elapsed())))
        } else if event.change.to == bfd::State::Up {
            tunnel.hold_down(peer, None);
            Verdict::Alive
        } else {
            return;
        };
        // Whoever measures may have given up.
        let _ = told.send(verdict);
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn sessions() -> Vec<SessionConfig> {
    let timing = Bfd { interval: INTERVAL, multiplier: MULTIPLIER, multihop: false };
    let session = |(name, remote): (&&str, _)| SessionConfig {
        name: (*name).into(),
        route: Route::Tunnel { peer: (*name).into(), remote },
        local: Some(rig::SOURCE),
        timing,
        neighbors: Vec::new(),
    };
    rig::PEERS.iter().zip(rig::far_inner()).map(session).collect()
}
