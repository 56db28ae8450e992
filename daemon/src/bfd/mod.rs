//! BFD: is the path to a neighbor there, many times a second (RFC 5880 to 5883)?
//!
//! One thread of its own (`thread`) owns the sessions of `isthmus-bfd`, so that neither a flood of routes nor a busy runtime delays a
//! packet. Packets to and from tunnel peers do not pass the kernel: the tunnel hands over what came out of it ([`Handle::deliver`]), and
//! [`Carry`] sends. Everybody else is reached by UDP (`sockets`). What a change of state means for others is decided by the [`Hook`],
//! which the thread calls before it does anything else; the log is written by a task (`notices`), since a log can block.

mod error;
mod handle;
mod inner;
mod metrics;
mod notices;
mod priority;
mod session;
mod sockets;
mod thread;

pub use error::Error;
pub use handle::Handle;
pub use isthmus_bfd::{Diagnostic, State};
pub use session::{Event, Route, SessionConfig, SessionStatus};
pub use thread::{Carry, Hook};

use tokio::task::JoinHandle;

use crate::lifecycle::CancellationToken;

/// Starts the thread with these sessions. It ends soon after `shutdown`, every peer told by AdminDown; `task` ends after it.
///
/// # Errors
/// When a port cannot be had, or there is no thread.
pub async fn start(
    sessions: Vec<SessionConfig>,
    carry: Carry,
    hook: Hook,
    shutdown: CancellationToken,
) -> Result<(Handle, JoinHandle<()>), Error> {
    metrics::describe();
    let (notices, inbox) = notices::channel();
    let (handle, ended) = thread::spawn(carry, hook, notices)?;
    let log = tokio::spawn(notices::write(inbox));
    if let Err(error) = handle.apply(sessions).await {
        handle.stop();
        return Err(error);
    }
    let stopping = handle.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => stopping.stop(),
            () = stopping.stopped() => {}
        }
        // Its sender is gone when the thread has ended, for whatever reason.
        let _ = ended.await;
        let _ = log.await;
    });
    Ok((handle, task))
}

#[cfg(test)]
mod tests;
