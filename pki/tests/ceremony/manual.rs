//! The manual, tried as written: every `sh` block of the page, in its order, in one directory.

use std::{env, fs, path::Path, process::Command};

use crate::rig::openssl_is_there;

/// The text of each block that is marked `sh`; other blocks are for reading.
fn blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for line in page.lines() {
        match (line, open.take()) {
            ("```sh", None) => open = Some(String::new()),
            ("```", Some(block)) => blocks.push(block),
            (line, Some(block)) => open = Some(block + line + "\n"),
            _ => {}
        }
    }
    blocks
}

#[test]
fn the_page_on_ceremonies_works_as_written() {
    if !openssl_is_there() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/ceremony.md");
    let blocks = blocks(&fs::read_to_string(page).unwrap());
    assert!(blocks.len() >= 10, "only {} blocks", blocks.len());
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_isthmus-ca")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    for block in blocks {
        let mut shell = Command::new("bash");
        let output = shell
            .args(["-euo", "pipefail", "-c", &block])
            .current_dir(dir.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    for made in ["signed/crl-12.pem", "lists/crl.pem", "gw1/node.pem", "new-custodians/share-5.txt"] {
        assert!(dir.path().join(made).exists(), "{made}");
    }
}
