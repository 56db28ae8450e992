//! How many files, sockets and processes this daemon may have open at a time.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What everything but the counted connections may need.
const SPARE: u64 = 4096;

/// Raises the limit on open descriptors (RLIMIT_NOFILE) as far as it must for `connections` with `each` descriptors, and may. How many
/// connections there is room for then: they never take what the rest of the daemon needs. If it is fewer, the log says so, with the remedy.
pub(crate) fn make_room(connections: usize, each: usize) -> usize {
    let wanted = u64::try_from(connections.saturating_mul(each)).unwrap_or(u64::MAX).saturating_add(SPARE);
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        raise(wanted, hard);
    }
    // Without a word from the kernel: what is asked for, as if there were no limit.
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    connections.min(fitting(limit, each))
}

/// Connections of `each` descriptors that fit under a limit, with as much left for the rest: half of a small one, [`SPARE`] of a large one.
fn fitting(limit: u64, each: usize) -> usize {
    let room = limit - (limit / 2).min(SPARE);
    usize::try_from(room).unwrap_or(usize::MAX) / each.max(1)
}

fn raise(wanted: u64, hard: u64) {
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
        assert_eq!(make_room(0, 2), 0);
        let (after, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(after >= before && after >= SPARE.min(before));
        // Out of reach of every machine: as much as there is, and no panic.
        assert!(make_room(usize::MAX, 2) < usize::MAX);
        let (most, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(most >= after && most <= hard);
    }

    #[test]
    fn the_rest_of_the_daemon_keeps_its_share() {
        for (limit, connections) in [(1024, 256), (8192, 2048), (20_000, 7952), (65_536, 30_720), (0, 0)] {
            assert_eq!(fitting(limit, 2), connections, "{limit}");
        }
    }
}
