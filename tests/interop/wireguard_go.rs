//! Tunnels between `isthmusd` and `wireguard-go`.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

mod foreign;

use foreign::Program;

const PROGRAM: Program = Program { name: "wireguard-go", arguments: &["-f"] };

interop_tests!(PROGRAM);
