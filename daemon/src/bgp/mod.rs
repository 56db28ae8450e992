//! The BGP shell: sockets, a clock and a task around the pure speaker of `isthmus-bgp`.
//!
//! One task (`driver`) owns the speaker. Each connection has a reader and a writer task, joined to it by bounded channels: a peer that
//! floods waits for its turn, one that does not read is simply asked for nothing more. What the speaker decides goes to the routes board.

mod ask;
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
mod paths_watched;
mod publish;
mod socket;
mod to_core;
mod walk;

use std::time::Instant;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    lifecycle::{Readiness, Service},
    routes::Board,
};
pub use ask::Unanswered;
pub use config::*;
use driver::Driver;
pub use error::Error;
pub use handle::{Handle, NeighborStatus};
pub use isthmus_bgp::{Families, Family};
use listen::Listeners;
pub use paths::{PathNote, PathNotes};
pub use to_core::index as interface_index;
pub use walk::Walk;

/// Binds the listeners and starts every session.
///
/// `forwarding`: families in which the kernel has gone on forwarding by an earlier run's routes (RFC 4724 section 4.1).
///
/// The task follows the orders in `service`. It ends within two seconds of `shutdown`, each peer told by Cease/Administrative Shutdown;
/// where the service is suspended, so that peers keep our routes. What is on the board stays: whoever stops BGP decides about the routes.
///
/// # Errors
/// An address that cannot be listened on, or a password that the kernel does not take.
pub async fn start(
    config: Config,
    board: Board,
    readiness: &Readiness,
    forwarding: Families,
    service: Service,
    shutdown: CancellationToken,
) -> Result<(Handle, JoinHandle<()>), Error> {
    let listening = readiness.wait_for("bgp: listening");
    metrics::describe();
    let listeners = Listeners::bind(&config.listen, &driver::passwords(&config))?;
    let (driver, handle) =
        Driver::new(config, board, listeners, (forwarding, service), shutdown, Instant::now())?;
    let task = tokio::spawn(driver.run());
    drop(listening);
    Ok((handle, task))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transport_tests;
