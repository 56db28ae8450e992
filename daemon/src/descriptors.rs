//! How many files, sockets and processes this daemon may have open at a time.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What everything but the counted connections may need.
const SPARE: u64 = 4096;

/// Raises the limit on open descriptors (RLIMIT_NOFILE) as far as it must for `connections` with `each` descriptors, and may. What is
/// missing then is told in the log, with the remedy: connections beyond it wait until others end.
pub(crate) fn make_room(connections: usize, each: usize) {
    let wanted = u64::try_from(connections.saturating_mul(each)).unwrap_or(u64::MAX).saturating_add(SPARE);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft >= wanted {
        return;
    }
    // Whoever may not raise the hard limit gets as much as there is.
    let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_ok();
    if !raised && setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_err() {
        tracing::debug!("the limit on open descriptors can't be raised");
    }
    if !raised && hard < wanted {
        tracing::warn!(
            limit = hard,
            wanted,
            "too few descriptors for all the connections that are allowed: set LimitNOFILE= of the service, or lower [workload_api] max_connections"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_only_ever_rises() {
        let (before, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        make_room(0, 2);
        let (after, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(after >= before && after >= SPARE.min(before));
        // Out of reach of every machine: as much as there is, and no panic.
        make_room(usize::MAX, 2);
        let (most, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(most >= after && most <= hard);
    }
}
