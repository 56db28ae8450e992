//! The demo holds, its kept lab can be looked into and removed, and the death of any daemon at any step ends it with a clear error.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use isthmus_lab::{
    peers::skipped,
    sandbox::{self, Support, processes},
    wait,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Longer than any demo may take, build included.
const LIMIT: Duration = Duration::from_secs(420);
/// From a daemon's death to the demo's end.
const SOON: Duration = Duration::from_secs(30);

/// Two demos at once would starve each other's three-second timers. `None`: no sandbox here, and that is allowed.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if let Support::None(why) = sandbox::support() {
        skipped("the demo", &why);
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A running demo, with what it has said so far on both streams.
struct Demo {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(lab(arguments))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        follow(child.stdout.take().unwrap(), &said);
        follow(child.stderr.take().unwrap(), &said);
        Self { child, said }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn wait_for(&mut self, words: &str) {
        wait::until(words, LIMIT, || {
            let said = self.said();
            assert!(
                said.contains(words) || self.child.try_wait().unwrap().is_none(),
                "it ended early:\n{said}"
            );
            anyhow::ensure!(said.contains(words), "so far:\n{said}");
            Ok(())
        })
        .unwrap();
    }

    /// Its exit code, and all it said.
    fn end(mut self, limit: Duration) -> (Option<i32>, String) {
        let ended = wait::until("the demo's end", limit, || {
            anyhow::Context::context(self.child.try_wait()?, "it runs")
        });
        (ended.unwrap_or_else(|error| panic!("{error:#}; it said:\n{}", self.said())).code(), self.said())
    }

    /// The process that runs this node.
    fn daemon(&self, node: &str) -> Option<u32> {
        let config = format!("/run/lab/{node}/isthmusd.toml");
        let mut below = vec![self.child.id()];
        while let Some(pid) = below.pop() {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if command.split(|byte| *byte == 0).any(|word| word == config.as_bytes()) {
                return Some(pid);
            }
            below.extend(processes::children_of(pid));
        }
        None
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the environment of everything that a demo of this test starts, so that other people's labs are not taken for ours.
const TOKEN: &str = "ISTHMUS_LAB_TEST";

fn token() -> String {
    format!("{TOKEN}={}", std::process::id())
}

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-lab"));
    command.args(arguments).env(TOKEN, std::process::id().to_string()).stdin(Stdio::null());
    command
}

fn follow(mut stream: impl Read + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = said.clone();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
}

fn nothing_runs() {
    let token = token();
    let ours =
        |environment: &[u8]| environment.split(|byte| *byte == 0).any(|entry| entry == token.as_bytes());
    let running = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let environments = processes.map(|entry| fs::read(entry.path().join("environ")).unwrap_or_default());
        environments.filter(|environment| ours(environment)).count()
    };
    wait::until_true("the end of everything that was started", SOON, || running() == 0).unwrap();
}

#[test]
fn every_step_holds() {
    let Some(_alone) = alone() else { return };
    let (code, said) = Demo::start(&["demo"]).end(LIMIT);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("9/9 leave") && said.contains("every step held"), "{said}");
    for blow in ["lost the internet without a word; ", "was killed; "] {
        assert!(said.contains(blow), "{said}");
    }
    nothing_runs();
}

#[test]
fn the_death_of_a_daemon_is_a_clear_failure() {
    let Some(_alone) = alone() else { return };
    // Each node, and each step in which daemons run.
    for (step, node) in [
        ("4/9 traffic", "azure-gw1"),
        ("4/9 traffic", "aws-host"),
        ("5/9 mutual TLS", "onprem-gw1"),
        ("7/9 failover", "aws-gw1"),
        ("7/9 failover", "aws-gw2"),
        ("6/9 silent loss", "azure-gw1"),
    ] {
        let mut demo = Demo::start(&["demo"]);
        demo.wait_for(&format!("{step}: "));
        kill(Pid::from_raw(demo.daemon(node).unwrap().cast_signed()), Signal::SIGKILL).unwrap();
        blames(demo, node);
    }
    let mut demo = Demo::start(&["demo"]);
    demo.wait_for("3/9 daemons: ");
    let pid = wait::until("the daemon's start", SOON, || {
        anyhow::Context::context(demo.daemon("onprem-gw1"), "not yet")
    });
    kill(Pid::from_raw(pid.unwrap().cast_signed()), Signal::SIGKILL).unwrap();
    blames(demo, "onprem-gw1");
}

fn blames(demo: Demo, node: &str) {
    let (code, said) = demo.end(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{node} ended by itself: signal: 9")), "{said}");
    assert!(said.contains(&format!("--- the end of /run/lab/{node}/isthmusd.log")), "{said}");
    nothing_runs();
}

#[test]
fn a_daemon_that_hangs_is_named() {
    let Some(_alone) = alone() else { return };
    for step in ["4/9 traffic", "5/9 mutual TLS", "7/9 failover"] {
        let mut demo = Demo::start(&["demo"]);
        demo.wait_for(&format!("{step}: "));
        kill(Pid::from_raw(demo.daemon("azure-gw1").unwrap().cast_signed()), Signal::SIGSTOP).unwrap();
        let (code, said) = demo.end(LIMIT);
        assert_eq!(code, Some(1), "{said}");
        let named = "azure-gw1 does not answer on its control socket within 1s (its process is stopped)";
        assert!(said.contains(named), "{step}: {said}");
        assert!(!said.contains("-host does not answer"), "{step}: {said}");
        nothing_runs();
    }
}

#[test]
fn a_machine_without_a_tun_device_is_told_at_the_first_step() {
    let Some(_alone) = alone() else { return };
    let mut command = Command::new("unshare");
    let hide = "mount -t tmpfs none /dev/net && exec \"$0\" demo";
    // The second mapping of root to root is what gives an unprivileged user the right to mount.
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", hide]);
    command.arg(env!("CARGO_BIN_EXE_isthmus-lab")).stdin(Stdio::null());
    command.env(TOKEN, std::process::id().to_string());
    let (code, said) = Demo::spawn(command).end(LIMIT);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1/9 network: FAILED") && !said.contains("2/9"), "{said}");
    assert!(said.contains("the daemons need /dev/net/tun") && said.contains("modprobe tun"), "{said}");
    nothing_runs();
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let Some(_alone) = alone() else { return };
    let mut demo = Demo::start(&["demo"]);
    demo.wait_for("4/9 traffic: ");
    assert!(demo.daemon("azure-gw1").is_some());
    kill(Pid::from_raw(demo.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let (code, said) = demo.end(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ended by SIGTERM"), "{said}");
    nothing_runs();
}

#[test]
fn a_kept_lab_can_be_looked_into_and_removed() {
    let Some(_alone) = alone() else { return };
    let runtime = tempfile::tempdir().unwrap();
    let in_it = |arguments: &[&str]| -> Output { with_runtime(runtime.path(), arguments).output().unwrap() };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    assert!(text(&in_it(&["exec", "aws-host", "--", "true"]).stderr).contains("no lab is up"));
    // As `cargo demo -- --keep` passes it on.
    let kept = Demo::spawn(with_runtime(runtime.path(), &["demo", "--", "--keep"]));
    let said = kept.said.clone();
    let (code, _) = kept.end(LIMIT);
    let _down = Down(runtime.path());
    // Whoever reads its output sees the end of it: what stays up holds no stream of its caller.
    wait::until_true("the end of both streams", SOON, || Arc::strong_count(&said) == 1).unwrap();
    let guide = said.lock().unwrap().clone();
    assert_eq!(code, Some(0), "{guide}");

    let command =
        guide.lines().find(|line| line.contains(" --socket ") && line.ends_with(" status")).unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let status = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(text(&status.stdout).contains("azure-gw1"), "{command}: {status:?}");
    assert_eq!(in_it(&["exec", "aws-host", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert!(
        text(&in_it(&["exec", "mars", "--", "true"]).stderr).contains("internet"),
        "it names those there are"
    );
    assert!(text(&in_it(&["demo", "--keep"]).stderr).contains("a lab is up already"));

    assert!(in_it(&["demo", "--", "down"]).status.success());
    nothing_runs();
    assert_eq!(text(&in_it(&["demo", "down"]).stderr), "no lab is up\n");
    assert_eq!(fs::read_dir(runtime.path()).unwrap().count(), 0, "the state file is gone");
}

#[test]
fn of_two_kept_labs_started_together_one_is_refused() {
    let Some(_alone) = alone() else { return };
    let runtime = tempfile::tempdir().unwrap();
    let keep = || Demo::spawn(with_runtime(runtime.path(), &["demo", "--keep"]));
    let _down = Down(runtime.path());
    let (first, second) = (keep(), keep());
    let mut ends = [first.end(LIMIT), second.end(LIMIT)];
    ends.sort();
    let [(kept, guide), (refused, why)] = ends;
    assert_eq!((kept, refused), (Some(0), Some(1)), "{guide}\n{why}");
    assert!(guide.contains("The lab is up"), "{guide}");
    assert!(why.contains("a lab is being started"), "{why}");
    assert!(!why.contains("1/8"), "refused before anything is made: {why}");
    assert!(with_runtime(runtime.path(), &["demo", "down"]).status().unwrap().success());
    nothing_runs();
}

#[test]
fn a_start_that_was_killed_stands_in_nobodys_way() {
    let Some(_alone) = alone() else { return };
    let runtime = tempfile::tempdir().unwrap();
    let _down = Down(runtime.path());
    let mut demo = Demo::spawn(with_runtime(runtime.path(), &["demo", "--keep"]));
    demo.wait_for("3/8 daemons: ");
    let down = || with_runtime(runtime.path(), &["demo", "down"]).output().unwrap();
    let refused = String::from_utf8(down().stderr).unwrap();
    assert!(refused.contains("a lab is being started"), "{refused}");
    demo.child.kill().unwrap();
    demo.child.wait().unwrap();
    nothing_runs();
    let output = down();
    assert!(output.status.success() && output.stderr == b"no lab is up\n", "{output:?}");
    assert_eq!(fs::read_dir(runtime.path()).unwrap().count(), 0);
}

fn with_runtime(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = lab(arguments);
    command.env("XDG_RUNTIME_DIR", runtime);
    command
}

/// Removes the lab even if the test fails.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = with_runtime(self.0, &["demo", "down"]).output();
    }
}
