//! `isthmusctl audit`: reads the issuer's log and holds it against its chain and its signed head. Asks no daemon.

mod cli;
mod consistency;
mod files;
mod head;
mod prove;
mod search;
#[cfg(test)]
mod tests;
mod verify;

use crate::failure::Failure;
use crate::output::Output;

pub(crate) use cli::AuditVerb;

/// # Errors
/// A log that is broken, with file, line and reason; files that cannot be read; nothing found.
pub(crate) fn run(output: &Output, verb: AuditVerb) -> Result<(), Failure> {
    match verb {
        AuditVerb::Head { log, trust } => output.print(&head::show(&log.file, trust.bundle.as_deref())?),
        AuditVerb::Verify { log, trust, since } => {
            output.print(&verify::verify(&log.file, trust.bundle.as_deref(), &since)?)
        }
        AuditVerb::Search { log, query } => output.print(&search::search(&log.file, query)?),
        AuditVerb::Prove { log, what } => match (what.serial, what.since) {
            (Some(serial), _) => output.print(&prove::prove(&log.file, &serial)?),
            (None, Some(since)) => output.print(&consistency::prove(&log.file, &since)?),
            (None, None) => Err(Failure::usage("give --serial or --since")),
        },
        AuditVerb::Check { proof, since, trust } => {
            output.print(&consistency::check(&proof, &since, trust.bundle.as_deref())?)
        }
    }
}
