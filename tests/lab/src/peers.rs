//! Programs of other people, and what else a machine may lack: without it a test is skipped aloud, or fails where it is required.

use std::{
    env,
    io::{self, Write as _},
    path::Path,
};

/// Where libfaketime is; the daemon under it sees another wall clock.
pub const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// Envoy, as `tests/install-peers.sh` installs it.
pub const ENVOY: &str = "/usr/local/lib/isthmus-peers/python/bin/envoy";

/// True if all of `needed` are there: names on PATH, or paths. Else `test` is [`skipped`].
///
/// # Panics
/// When one is missing and `ISTHMUS_PEERS=required`.
pub fn installed(test: &str, needed: &[&str]) -> bool {
    let missing: Vec<&str> = needed.iter().copied().filter(|one| !is_installed(one)).collect();
    if !missing.is_empty() {
        skipped(test, &format!("{} not installed (tests/install-peers.sh)", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether a program is on PATH, or a path leads to something. Nothing is said.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // A path that begins with a slash stays what it is, whatever it is joined to.
    Path::new(program).is_absolute() && Path::new(program).exists()
        || env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Says that `what` is left out, and why, although it passes.
///
/// # Panics
/// Where nothing may be missing: `ISTHMUS_PEERS=required`.
pub fn skipped(what: &str, why: &str) {
    assert!(!required(), "{what}: {why}, and ISTHMUS_PEERS=required");
    // Not by the macro, whose output libtest keeps of a test that passes.
    let _ = writeln!(io::stderr(), "SKIPPED {what}: {why}");
}

/// Whether nothing may be missing here.
pub fn required() -> bool {
    env::var("ISTHMUS_PEERS").as_deref() == Ok("required")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_on_path_and_paths_as_they_are() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(!is_installed("isthmus-no-such-program") && !is_installed("/nowhere/sh"));
    }
}
