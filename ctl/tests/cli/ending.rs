//! Exit codes and what is said with them.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use isthmus_proto::control::Health;
use tempfile::TempDir;
use tonic::{Code, Status};

use crate::answers;
use crate::server::{Answers, Server};
use crate::{Run, isthmusctl, run};

/// Nothing on stdout, exit 4, and a message that names the socket and has these parts.
#[track_caller]
fn is_unreachable(ran: &Run, socket: &Path, parts: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{}", ran.stderr);
    for part in parts.iter().copied().chain([socket.to_str().expect("UTF-8"), "help: "]) {
        assert!(ran.stderr.contains(part), "no {part:?} in: {}", ran.stderr);
    }
}

#[test]
fn no_socket_means_not_running_or_another_path() {
    let directory = TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("absent.sock");
    let parts = ["No such file", "not running or listens elsewhere", "--socket", "systemctl start isthmusd"];
    is_unreachable(&run(&socket, "status"), &socket, &parts);
}

#[test]
fn a_socket_without_a_listener_means_it_has_stopped() {
    let directory = TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("stale.sock");
    drop(UnixListener::bind(&socket).expect("a free path"));
    is_unreachable(&run(&socket, "peers"), &socket, &["Connection refused", "nobody listens"]);
}

#[test]
fn a_file_that_is_no_socket_is_named_as_such() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("isthmusd.toml");
    fs::write(&file, "").expect("writable");
    is_unreachable(&run(&file, "peers"), &file, &["that path is no socket", "--socket"]);
}

#[test]
fn a_path_too_long_for_a_socket_is_named_as_such() {
    let path = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
    is_unreachable(&run(&path, "peers"), &path, &["at most 107 bytes"]);
}

#[test]
fn permission_denied_says_who_may() {
    let server = Server::start(answers::healthy());
    fs::set_permissions(server.socket(), Permissions::from_mode(0o000)).expect("ours");
    fs::set_permissions(server.directory(), Permissions::from_mode(0o755)).expect("ours");
    let mut command = as_nobody(server.directory());
    let output =
        command.arg("--socket").arg(server.socket()).arg("peers").output().expect("the binary starts");
    is_unreachable(&output.into(), &server.socket(), &["Permission denied", "run as root"]);
}

/// The program as a user without privileges: as we are, or as "nobody" from a copy that it can reach.
fn as_nobody(directory: &Path) -> Command {
    let root =
        fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0);
    if !root {
        return isthmusctl();
    }
    let copy = directory.join("isthmusctl");
    fs::copy(env!("CARGO_BIN_EXE_isthmusctl"), &copy).expect("room for a copy");
    let mut command = Command::new(copy);
    command.uid(65_534).gid(65_534).current_dir("/");
    command
}

#[test]
fn a_listener_that_speaks_something_else_is_named_as_such() {
    let directory = TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("other.sock");
    let listener = UnixListener::bind(&socket).expect("a free path");
    let server = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = listener.accept().expect("a connection");
        stream
            .write_all(b"SSH-2.0-OpenSSH_9.9\r\nthis is no HTTP/2 at all, not in the least\r\n")
            .expect("a reader");
        // Until the other side has had enough.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    is_unreachable(
        &run(&socket, "peers"),
        &socket,
        &["gave no answer but an error", "something else listens"],
    );
    server.join().expect("it ends with its peer");
}

#[test]
fn a_listener_that_hangs_up_is_unreachable() {
    let directory = TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("rude.sock");
    let listener = UnixListener::bind(&socket).expect("a free path");
    let server = std::thread::spawn(move || drop(listener.accept().expect("a connection")));
    is_unreachable(&run(&socket, "peers"), &socket, &[]);
    server.join().expect("it ends at once");
}

#[test]
fn what_the_daemon_refuses_is_a_failure_with_its_words() {
    let cases = [
        (Code::Internal, "the table is gone", 1, "isthmusd: the table is gone"),
        (Code::Unimplemented, "", 1, "different versions"),
        (Code::Unavailable, "shutting down", 4, "shutting down"),
    ];
    for (code, message, exit, expected) in cases {
        let server =
            Server::start(Answers { refusal: Some(Status::new(code, message)), ..Answers::default() });
        let ran = run(&server.socket(), "peers");
        assert_eq!(ran.code, Some(exit), "{code:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{code:?}: {}", ran.stderr);
    }
}

#[test]
fn usage_mistakes_exit_2_and_ask_nobody() {
    let nowhere = Path::new("/nonexistent/isthmusd.sock");
    let mistakes = [
        "",
        "frobnicate",
        "peers -o xml",
        "routes 10.0.0.0/33",
        "routes why gw1",
        "bgp",
        "status --watch --exit-code",
        "--watch config check x.toml",
        "peers extra",
        "tunnel offload udp-gso",
        "tunnel offload udp-gso maybe",
        "tunnel offload udp-gso off --watch",
    ];
    for arguments in mistakes {
        let ran = run(nowhere, arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{arguments}");
    }
}

#[test]
fn help_and_version_go_to_stdout_with_0() {
    let nowhere = Path::new("/nonexistent/isthmusd.sock");
    let help = run(nowhere, "--help").data();
    for part in [
        "status",
        "peers",
        "tunnel",
        "routes",
        "bgp",
        "certs",
        "fabric",
        "svid",
        "config",
        "drain",
        "5 degraded",
    ] {
        assert!(help.contains(part), "no {part} in {help}");
    }
    for absent in ["generate", "doctor"] {
        assert!(!help.contains(absent), "{absent} in {help}");
    }
    assert_eq!(run(nowhere, "--version").data(), concat!("isthmusctl ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn status_exit_code_tells_degraded_from_healthy() {
    let server = Server::start(answers::healthy());
    run(&server.socket(), "status --exit-code").data();
    drop(server);

    let mut unready = answers::status();
    unready.ready = false;
    unready.waiting_for = vec!["bgp".to_owned()];
    let mut unhealthy = answers::status();
    unhealthy.subsystems[0] = answers::subsystem("tunnel", Health::Degraded, "1 of 2 peers up");
    let mut not_reloaded = answers::status();
    not_reloaded.config.as_mut().expect("set").last_error = "line 3: unknown key".to_owned();
    let cases = [
        (unready, "not ready, waiting for bgp"),
        (unhealthy, "tunnel degraded: 1 of 2 peers up"),
        (not_reloaded, "the last reload was refused: line 3: unknown key"),
    ];
    for (status, reason) in cases {
        let server = Server::start(Answers { status, ..Answers::default() });
        assert_eq!(run(&server.socket(), "status").code, Some(0), "without the option");
        let ran = run(&server.socket(), "status --exit-code -o json");
        assert_eq!(ran.code, Some(5), "{reason}: {}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
        let document =
            serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("data comes all the same");
        assert_eq!(document["degraded_reasons"][0], reason);
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let mut answers = answers::healthy();
    let route = answers.routes.routes[0].clone();
    answers.routes.routes = vec![route; 20_000];
    let server = Server::start(answers);
    for arguments in ["routes", "routes --watch", "routes -o json"] {
        let mut child = isthmusctl()
            .arg("--socket")
            .arg(server.socket())
            .args(arguments.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let mut reader = BufReader::new(child.stdout.take().expect("piped"));
        reader.read_line(&mut line).expect("a first line");
        drop(reader);
        let ran = Run::from(child.wait_with_output().expect("it ends"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments}");
    }
}

#[test]
fn a_full_disk_is_told() {
    let server = Server::start(answers::healthy());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = isthmusctl().arg("--socket").arg(server.socket()).arg("peers").stdout(full).output();
    let ran = Run::from(output.expect("the binary starts"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("cannot write to stdout: No space left"), "{}", ran.stderr);
}
