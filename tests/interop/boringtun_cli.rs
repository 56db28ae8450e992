//! Tunnels between `isthmusd` and `boringtun-cli`.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

mod foreign;

use foreign::Program;

const PROGRAM: Program = Program {
    name: "boringtun-cli",
    arguments: &["-f", "--disable-drop-privileges", "--disable-connected-udp"],
};

interop_tests!(PROGRAM);
