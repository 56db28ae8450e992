//! From a fork of this process to a program inside fresh namespaces.
//!
//! ```text
//! caller ── A: new namespaces ── B: PID 1, reaps, mounts /proc and /run ── C: PID 2, execs the program
//! ```
//! C ends: B ends with C's status, and the kernel ends the rest. A or the caller is killed: B is killed too.

use std::{
    fs::{create_dir, write},
    io,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use nix::{
    libc,
    mount::{MsFlags, mount},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, getegid, geteuid, getpid, setsid},
};

/// Who ends the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It is killed when the thread that spawned it ends.
    Caller,
    /// It outlives the caller, in a session of its own, until its program ends.
    Own,
}

/// Makes `command` start inside a new sandbox, as its root; with `user` in a new user namespace, which needs no privilege.
///
/// The child that `spawn` returns stands for the sandbox: its status is the program's, and killing it kills everything inside.
pub fn enter_on_exec(command: &mut Command, lifetime: Lifetime, user: bool) -> &mut Command {
    let maps = (format!("0 {} 1", geteuid()), format!("0 {} 1", getegid()));
    let enter = move || {
        let result = enter(lifetime, user.then_some((&maps.0, &maps.1)));
        result.map_err(|(step, error)| {
            complain(step);
            error
        })
    };
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe work is sound. It makes system calls only: paths
    // and file contents are short enough for the stack or were formatted before the fork, and errors carry bare error numbers.
    unsafe { command.pre_exec(enter) }
}

type Step<T> = Result<T, (&'static str, io::Error)>;

fn at<T>(step: &'static str, result: nix::Result<T>) -> Step<T> {
    result.map_err(|errno| (step, errno.into()))
}

/// The error that crosses exec is only a number; the step that failed goes to standard error.
fn complain(step: &str) {
    for part in ["isthmus-lab: the sandbox cannot be entered at step: ", step, "\n"] {
        let _ = nix::unistd::write(io::stderr(), part.as_bytes());
    }
}

/// Returns in C only.
fn enter(lifetime: Lifetime, maps: Option<(&String, &String)>) -> Step<()> {
    if lifetime == Lifetime::Own {
        at("setsid", setsid())?;
    }
    let mut namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if maps.is_some() {
        namespaces |= CloneFlags::CLONE_NEWUSER;
    }
    at("unshare", unshare(namespaces))?;
    if let Some(maps) = maps {
        become_root(maps).map_err(|error| ("map user to root", error))?;
    }
    if lifetime == Lifetime::Caller {
        // After the change of credentials, which would clear it.
        at("prctl", prctl::set_pdeathsig(Signal::SIGKILL))?;
    }
    let outer = pidfd_of_self().map_err(|error| ("pidfd_open", error))?;
    match fork_here("fork init")? {
        ForkResult::Parent { child } => stand_for(child),
        ForkResult::Child => init(&outer),
    }
}

fn become_root((uids, gids): (&String, &String)) -> io::Result<()> {
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", uids)?;
    write("/proc/self/gid_map", gids)
}

fn pidfd_of_self() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, getpid().as_raw(), 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn fork_here(step: &'static str) -> Step<ForkResult> {
    // SAFETY: we are the only thread of a process forked a moment ago; both sides go on to async-signal-safe work only.
    at(step, unsafe { fork() })
}

/// A: waits for init and ends as it ended.
fn stand_for(init: Pid) -> ! {
    close_all();
    loop {
        match waitpid(init, None) {
            Ok(WaitStatus::Exited(_, code)) => exit_now(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => exit_now(128 + signal as i32),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => exit_now(1),
        }
    }
}

/// B: sets the stage, forks C and reaps whatever dies, until C does. Returns in C only.
fn init(outer: &OwnedFd) -> Step<()> {
    at("prctl", prctl::set_pdeathsig(Signal::SIGKILL))?;
    let mut gone = [PollFd::new(outer.as_fd(), PollFlags::POLLIN)];
    if at("poll", poll(&mut gone, PollTimeout::ZERO))? != 0 {
        exit_now(1); // A died before we had asked to die with it.
    }
    mounts()?;
    match fork_here("fork program")? {
        ForkResult::Child => Ok(()),
        ForkResult::Parent { child } => reap_until(child),
    }
}

fn mounts() -> Step<()> {
    let none = None::<&str>;
    at("mount / private", mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none))?;
    // Refused where /proc has masked parts (in many containers); the outer /proc serves too, with outer process numbers.
    let _ = mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none);
    at("mount /run", mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=755")))?;
    create_dir("/run/netns").map_err(|error| ("mkdir /run/netns", error))
}

fn reap_until(program: Pid) -> ! {
    close_all();
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => exit_now(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => exit_now(128 + signal as i32),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => exit_now(1),
        }
    }
}

/// A and B hold on to nothing: the caller's `spawn` waits until every copy of its error pipe is closed, and whoever reads the
/// program's output waits until every copy of that is.
fn close_all() {
    // SAFETY: nothing in this process uses any descriptor any more; all it does is wait and exit.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) };
}

fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process at once; no destructor or atexit handler copied from the parent may run here.
    unsafe { libc::_exit(code) }
}
