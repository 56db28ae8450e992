//! The committed code is what the .proto files generate. `ISTHMUS_BLESS=1` rewrites it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use prost::Message as _;

const UPDATE: &str = "ISTHMUS_BLESS=1 cargo test -p isthmus-proto --test fresh";

#[test]
fn generated_code_is_fresh() {
    let fresh = tempfile::tempdir().expect("temporary directory");
    generate(fresh.path());
    let committed = root().join("src/gen");
    if env::var_os("ISTHMUS_BLESS").is_some_and(|v| v == "1") {
        bless(fresh.path(), &committed);
    }
    assert_eq!(
        names(fresh.path()),
        names(&committed),
        "src/gen has other files than generated; run: {UPDATE}"
    );
    for name in names(&committed) {
        let (want, have) = (read(&fresh.path().join(&name)), read(&committed.join(&name)));
        assert!(want == have, "src/gen/{name} differs from what proto/ generates; run: {UPDATE}");
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn generate(out: &Path) {
    let dir = root().join("proto");
    // The last is the name that the generator gives to code of that package; files of one package would overwrite each other.
    for (file, module, generated) in [
        ("control.proto", "isthmus.v1", "isthmus.v1.rs"),
        ("issuance.proto", "issuance", "isthmus.v1.rs"),
        ("tokens.proto", "tokens", "isthmus.v1.rs"),
        ("workload.proto", "workload", "_.rs"),
    ] {
        let descriptors = protox::compile([dir.join(file)], [&dir]).unwrap_or_else(|e| panic!("{file}: {e}"));
        fs::write(out.join(format!("{module}.bin")), descriptors.encode_to_vec()).expect("descriptor set");
        let one = tempfile::tempdir().expect("temporary directory");
        tonic_prost_build::configure()
            .build_client(true)
            .build_server(true)
            .emit_rerun_if_changed(false)
            // Keys and tokens must not reach a log: redacted by hand in `redact.rs`.
            .skip_debug([
                ".X509SVID",
                ".JWTSVID",
                ".ValidateJWTSVIDRequest",
                ".isthmus.v1.EnrollRequest",
                ".isthmus.v1.IssueJwtResponse",
                ".isthmus.v1.CreateTokenResponse",
            ])
            .out_dir(one.path())
            .compile_fds(descriptors)
            .unwrap_or_else(|e| panic!("{file}: {e}"));
        fs::copy(one.path().join(generated), out.join(format!("{module}.rs"))).expect("generated code");
    }
}

fn bless(fresh: &Path, committed: &Path) {
    fs::remove_dir_all(committed).ok();
    fs::create_dir_all(committed).expect("src/gen");
    for name in names(fresh) {
        fs::copy(fresh.join(&name), committed.join(&name)).expect("copy");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}; run: {UPDATE}", dir.display()))
        .map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
