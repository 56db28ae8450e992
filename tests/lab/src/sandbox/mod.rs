//! A world of its own for a test: user, mount, PID, network, IPC and host-name namespaces under a private init.
//!
//! When the init goes, the kernel ends every process in the sandbox and with them every namespace, device and mount; so nothing can
//! be left behind, whatever the test did and however it ended.

mod enter;
pub mod processes;
mod support;
mod test;

pub use enter::{Lifetime, enter_on_exec};
pub use support::{Support, support};
pub use test::{run, run_for, run_with_bins, run_with_bins_for};
