//! Runs the body of a `#[test]` in a sandbox, by running the test binary again inside one.

use std::{
    env,
    io::{self, PipeReader, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use super::{Lifetime, Support, enter_on_exec, processes, support};
use crate::{bins::Bins, peers::skipped};

/// Names the test whose body this process is to run.
const INSIDE: &str = "ISTHMUS_LAB_INSIDE";
/// What the inner process says when the body has returned: an inner run that matched no test says nothing.
const HELD: &str = "isthmus-lab: held:";

/// Runs `body` in a sandbox; `name` is the path of the calling test function as libtest prints it. Two minutes at most.
///
/// Where no sandbox is possible the test is skipped with a line on standard error, unless `ISTHMUS_PEERS=required`.
///
/// # Panics
/// When the body panicked, did not end in time, or could not be run.
pub fn run(name: &str, body: impl FnOnce()) {
    run_for(Duration::from_secs(120), name, body);
}

/// [`run`] with the daemon's binaries, built before the sandbox cuts off the network.
///
/// # Panics
/// As [`run`], and when the build failed.
pub fn run_with_bins(name: &str, body: impl FnOnce(&Bins)) {
    run_with_bins_for(Duration::from_secs(120), name, body);
}

/// [`run_with_bins`] with another time limit.
///
/// # Panics
/// As [`run_with_bins`].
pub fn run_with_bins_for(limit: Duration, name: &str, body: impl FnOnce(&Bins)) {
    if is_inside(name) {
        inside(name, || body(&Bins::from_env().expect("the outer process passes the binaries on")));
    } else if let Some(user) = possible(name) {
        let bins = Bins::build().expect("the binaries build");
        outside(limit, name, user, |command| bins.export(command));
    }
}

/// [`run`] with another time limit.
///
/// # Panics
/// As [`run`].
pub fn run_for(limit: Duration, name: &str, body: impl FnOnce()) {
    if is_inside(name) {
        inside(name, body);
    } else if let Some(user) = possible(name) {
        outside(limit, name, user, |_| ());
    }
}

/// Whether a sandbox needs a user namespace; `None`: there can't be one, and the test is skipped.
fn possible(name: &str) -> Option<bool> {
    match support() {
        Support::Root => Some(false),
        Support::UserNamespace => Some(true),
        Support::None(why) => {
            skipped(name, &format!("no sandbox: {why}"));
            None
        }
    }
}

fn is_inside(name: &str) -> bool {
    env::var(INSIDE).is_ok_and(|inside| inside == name)
}

fn inside(name: &str, body: impl FnOnce()) {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(()) => show(&format!("{HELD}{name}\n")),
        Err(panic) => resume_unwind(panic),
    }
}

fn outside(limit: Duration, name: &str, user: bool, prepare: impl FnOnce(&mut Command)) {
    let (mut child, output) = spawn(name, user, prepare).expect("the sandbox starts");
    let (said, in_time) = relay(limit, output);
    if !in_time {
        let running = processes::listing_below(child.id());
        let _ = child.kill();
        let _ = child.wait();
        panic!("{name} did not end in time ({limit:?}); in the sandbox ran:\n{running}");
    }
    // What a body had to leave out shows although the test passes.
    for (_, what) in said.lines().filter_map(|line| line.split_once("SKIPPED ")) {
        let _ = writeln!(io::stderr(), "SKIPPED {what}");
    }
    let status = child.wait().expect("our own child can be waited for");
    assert!(status.success(), "{name} failed in its sandbox ({status})");
    assert!(
        said.contains(&format!("{HELD}{name}")),
        "no test is called {name}: correct the name given to the sandbox"
    );
}

fn spawn(name: &str, user: bool, prepare: impl FnOnce(&mut Command)) -> io::Result<(Child, PipeReader)> {
    let (output, into) = io::pipe()?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", name, "--nocapture", "--include-ignored", "--test-threads=1"]).env(INSIDE, name);
    command.stdin(Stdio::null()).stdout(into.try_clone()?).stderr(into);
    prepare(&mut command);
    Ok((enter_on_exec(&mut command, Lifetime::Caller, user).spawn()?, output))
}

/// Passes the output on as it comes; returns it whole, and whether it ended in time.
fn relay(limit: Duration, output: PipeReader) -> (String, bool) {
    let chunks = read_in_background(output);
    let deadline = Instant::now() + limit;
    let mut said = String::new();
    loop {
        match chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(chunk) => {
                let text = String::from_utf8_lossy(&chunk);
                show(&text);
                said.push_str(&text);
            }
            Err(RecvTimeoutError::Disconnected) => return (said, true),
            Err(RecvTimeoutError::Timeout) => return (said, false),
        }
    }
}

fn read_in_background(mut output: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, chunks) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    chunks
}

/// By the macro, so that libtest shows it with the test that it belongs to.
#[expect(clippy::print_stdout, reason = "this is the output of a test")]
fn show(text: &str) {
    print!("{text}");
}
