//! What is asked of the daemon, and the nouns that ask no daemon.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use isthmus_proto::control::{DrainResponse, DrainStage};
use tempfile::TempDir;
use tonic::Status;

use crate::answers;
use crate::server::{Answers, Server};
use crate::{Run, isthmusctl, run};

const NOWHERE: &str = "/nonexistent/isthmusd.sock";

#[test]
fn prefixes_go_out_canonical_and_addresses_as_given() {
    let server = Server::start(answers::healthy());
    for arguments in ["routes", "routes 10.20.3.4/16", "routes fd00::1", "routes why 10.20.3.4"] {
        run(&server.socket(), arguments).data();
    }
    // The last one is put to BGP, too.
    assert_eq!(server.asked(), ["", "10.20.0.0/16", "fd00::1/128", "10.20.3.4", "10.20.3.4"]);
}

#[test]
fn a_drain_is_waited_for() {
    let answer = |stage: DrainStage| DrainResponse { stage: stage.into(), remaining_ms: 0 };
    let drain = vec![answer(DrainStage::Draining), answer(DrainStage::Draining), answer(DrainStage::Drained)];
    let server = Server::start(Answers { drain, ..answers::healthy() });
    let said = run(&server.socket(), "drain --wait 3s").data();
    assert_eq!(said, "drained: nobody sends anything here, the node may be stopped\n");
    assert_eq!(server.asked(), ["Start 3000", "Unspecified 0", "Unspecified 0"]);
}

#[test]
fn a_drain_that_somebody_takes_back_has_failed() {
    let drain = vec![DrainResponse { stage: DrainStage::Serving.into(), remaining_ms: 0 }];
    let server = Server::start(Answers { drain, ..answers::healthy() });
    assert_eq!(run(&server.socket(), "drain").code, Some(1));
    assert_eq!(run(&server.socket(), "drain --undo").data(), "serving\n");
    assert_eq!(server.asked(), ["Start 10000", "Undo 0"]);
    for refused in ["drain --watch", "drain --undo --wait 1s", "drain --wait soon"] {
        assert_eq!(run(&server.socket(), refused).code, Some(2), "{refused}");
    }
}

#[test]
fn a_switch_goes_out_by_its_name() {
    let server = Server::start(answers::healthy());
    let names = ["tun-tso", "tun-uso", "tun-tcp-gro", "tun-udp-gro", "udp-gso", "udp-gro"];
    for name in names {
        for to in ["on", "off"] {
            run(&server.socket(), &format!("tunnel offload {name} {to}")).data();
        }
    }
    let expected = names.map(|name| [format!("{name} true"), format!("{name} false")]).concat();
    assert_eq!(server.asked(), expected);
}

#[test]
fn an_unknown_switch_is_a_usage_mistake_that_names_the_known_ones() {
    let ran = run(Path::new(NOWHERE), "tunnel offload udp-gos on");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    for part in ["tun-tso, tun-uso, tun-tcp-gro, tun-udp-gro, udp-gso, udp-gro", "similar", "'udp-gso'"] {
        assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
    }
}

#[test]
fn a_switch_that_a_daemon_of_another_version_does_not_know_is_a_usage_mistake_too() {
    let refusal = Some(Status::invalid_argument("there is no offload \"udp-gso\"; the offloads are none"));
    let server = Server::start(Answers { refusal, ..Answers::default() });
    let ran = run(&server.socket(), "tunnel offload udp-gso on");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("the offloads are none"), "{}", ran.stderr);
}

#[test]
fn a_switch_that_the_kernel_refuses_fails_with_its_words() {
    let words = "the kernel refuses tun-uso: Invalid argument (os error 22). It stays off";
    let refusal = Some(Status::failed_precondition(words));
    let server = Server::start(Answers { refusal, ..Answers::default() });
    let ran = run(&server.socket(), "tunnel offload tun-uso on");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
}

/// A copy of the program beside an `isthmusd` that ends with this code after it has told its arguments.
fn beside_a_daemon(directory: &Path, code: u8) -> std::process::Command {
    let daemon = directory.join("isthmusd");
    fs::write(&daemon, format!("#!/bin/sh\necho \"$@\" >&2\nexit {code}\n")).expect("writable");
    fs::set_permissions(&daemon, Permissions::from_mode(0o755)).expect("ours");
    let copy = directory.join("isthmusctl");
    fs::copy(env!("CARGO_BIN_EXE_isthmusctl"), &copy).expect("room for a copy");
    std::process::Command::new(copy)
}

#[test]
fn config_check_passes_on_what_the_daemon_says() {
    for code in [0, 1, 3] {
        let directory = TempDir::new().expect("a temporary directory");
        let output = beside_a_daemon(directory.path(), code).args(["config", "check", "a b.toml"]).output();
        let ran = Run::from(output.expect("the binary starts"));
        assert_eq!(ran.code, Some(i32::from(code)));
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "--check --config a b.toml\n"));
    }
}

#[test]
fn config_check_as_a_document() {
    let directory = TempDir::new().expect("a temporary directory");
    let mut command = beside_a_daemon(directory.path(), 3);
    let output =
        command.args(["config", "check", "x.toml", "-o", "json"]).output().expect("the binary starts");
    let ran = Run::from(output);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""));
    let document = serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("valid JSON");
    let expected = serde_json::json!({
        "schema": "isthmus.v1/config-check", "file": "x.toml", "valid": false, "messages": ["--check --config x.toml"],
    });
    assert_eq!(document, expected);
}

#[test]
fn config_check_without_a_daemon_says_so() {
    let directory = TempDir::new().expect("a temporary directory");
    let mut command = beside_a_daemon(directory.path(), 0);
    fs::remove_file(directory.path().join("isthmusd")).expect("it is there");
    let output = command.env("PATH", directory.path()).args(["config", "check", "x.toml"]).output();
    let ran = Run::from(output.expect("the binary starts"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("found no isthmusd"), "{}", ran.stderr);
}

#[test]
fn completions_exist_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(Path::new(NOWHERE), &format!("generate completions {shell}")).data();
        assert!(script.contains("isthmusctl") && script.contains("neighbors"), "{shell}");
        // The generator for fish knows no values of arguments without a dash.
        let switches = shell == "fish" || script.contains("tun-tcp-gro");
        assert!(script.contains("offload") && switches, "{shell}");
    }
}

#[test]
fn manual_pages_are_written() {
    let directory = TempDir::new().expect("a temporary directory");
    let man = directory.path().join("man1");
    let output = isthmusctl().args(["generate", "man"]).arg(&man).output().expect("the binary starts");
    assert_eq!(Run::from(output).data(), "");
    for page in [
        "isthmusctl.1",
        "isthmusctl-peers.1",
        "isthmusctl-bgp-neighbors.1",
        "isthmusctl-bgp-rib.1",
        "isthmusctl-bgp-clear.1",
        "isthmusctl-events.1",
        "isthmusctl-tunnel-offload.1",
    ] {
        assert!(man.join(page).is_file(), "{page}");
    }
}
