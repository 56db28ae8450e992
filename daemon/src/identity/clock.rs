//! When somebody sets the wall clock, all that lives by it looks again, and at once.
//!
//! Everybody here sleeps by the steady clock until a time of the wall clock. So that word of a jump is an improvement and never a need,
//! nobody sleeps longer than a minute: where the kernel says nothing, that is how late a jump is seen.

use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::handle::Handle;
use crate::wall_clock::{Jump, Jumps, WallClock};

/// Between two looks: a clock that runs wild must not keep ten thousand streams busy.
const PAUSE: Duration = Duration::from_secs(1);

/// Until the shutdown, or until the kernel has nothing to say.
pub(super) async fn follow(handle: Handle, shutdown: CancellationToken) {
    tokio::select! {
        Err(error) = listen(&handle) => {
            tracing::info!(%error, "the kernel does not tell when the clock is set; it is looked at every minute");
        }
        () = shutdown.cancelled() => {}
    }
}

async fn listen(handle: &Handle) -> std::io::Result<()> {
    let mut clock = WallClock::watch()?;
    let mut jumps = Jumps::since(SystemTime::now(), Instant::now());
    loop {
        clock.set().await?;
        if let Some(jump) = jumps.seen(SystemTime::now(), Instant::now()) {
            tell(jump);
            handle.look_again(SystemTime::now()).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn tell(jump: Jump) {
    let (seconds, direction) = match jump {
        Jump::Ahead(by) => (by.as_secs(), "ahead"),
        Jump::Back(by) => (by.as_secs(), "back"),
    };
    tracing::info!(
        seconds,
        direction,
        "the clock was set; certificates and what waits for a time are looked at again"
    );
}
