//! Before others, where the kernel lets us.

use std::io;

/// The lowest of the real-time priorities, which is above everything that has none.
const REAL_TIME: libc::c_int = 1;
const NICE: libc::c_int = -15;

/// Asks for real-time scheduling of this thread, or else for niceness; without both it goes on. What it got, in words.
pub(super) fn raise() -> String {
    match real_time() {
        Ok(()) => "real-time".into(),
        Err(refused) => match nice() {
            Ok(()) => format!("nice {NICE} (no real-time: {refused})"),
            Err(also) => format!("ordinary (no real-time: {refused}; no nice: {also})"),
        },
    }
}

/// What this thread starts must not inherit it.
fn real_time() -> io::Result<()> {
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    let parameters = libc::sched_param { sched_priority: REAL_TIME };
    // SAFETY: sched_setscheduler reads the parameters through a pointer that is valid for the call; 0 is the calling thread.
    checked(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })
}

fn nice() -> io::Result<()> {
    // SAFETY: setpriority takes no pointers; Linux applies it to the calling thread for 0.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
