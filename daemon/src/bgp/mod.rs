//! The BGP shell: sockets, a clock and a task around the pure speaker of `isthmus-bgp`.
//!
//! One task (`driver`) owns the speaker. Each connection has a reader and a writer task, joined to it by bounded channels: a peer that
//! floods waits for its turn, one that does not read is simply asked for nothing more. What the speaker decides goes to the routes board.

mod config;
mod connection;
mod dial;
mod driver;
mod error;
mod handle;
mod link_down;
mod listen;
mod metrics;
mod next_hops;
mod paths;
mod publish;

use std::time::Instant;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{lifecycle::Readiness, routes::Board};
pub use config::*;
use driver::Driver;
pub use error::Error;
pub use handle::{Handle, NeighborStatus};
pub use paths::{PathNote, PathNotes};

/// Binds the listeners and starts every session.
///
/// The task ends within two seconds of `shutdown`, each peer told by Cease/Administrative Shutdown. What is on the board stays: whoever
/// stops BGP decides about the routes.
///
/// # Errors
/// An address that cannot be listened on.
pub async fn start(
    config: Config,
    board: Board,
    readiness: &Readiness,
    shutdown: CancellationToken,
) -> Result<(Handle, JoinHandle<()>), Error> {
    let listening = readiness.wait_for("bgp: listening");
    metrics::describe();
    let listeners = listen::bind(&config.listen)?;
    let (driver, handle) = Driver::new(config, board, listeners, shutdown, Instant::now())?;
    let task = tokio::spawn(driver.run());
    drop(listening);
    Ok((handle, task))
}

#[cfg(test)]
mod tests;
