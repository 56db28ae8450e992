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
    let usual = "tonic_prost::ProstCodec";
    // Code of one package gets one name: the first go out of the way.
    for module in ["bgp", "events", "fabric", "issuance", "rotation", "tokens"] {
        compile(out, &[&format!("{module}.proto")], module, usual);
        fs::rename(out.join("isthmus.v1.rs"), out.join(format!("{module}.rs"))).expect(module);
    }
    compile(out, &["control.proto"], "isthmus.v1", usual);
    compile(out, &["workload.proto"], "workload", "crate::codec::LeanCodec");
    compile(out, &["sds/secret.proto", "sds/tls.proto"], "sds", "crate::codec::LeanCodec");
    // The name that code of a file without a package gets.
    fs::rename(out.join("_.rs"), out.join("workload.rs")).expect("workload.rs");
}

fn compile(out: &Path, files: &[&str], module: &str, codec: &str) {
    let dir = root().join("proto");
    let paths = files.iter().map(|file| dir.join(file));
    let descriptors = protox::compile(paths, [&dir]).unwrap_or_else(|e| panic!("{module}: {e}"));
    fs::write(out.join(format!("{module}.bin")), descriptors.encode_to_vec()).expect("descriptor set");
    let mut config = tonic_prost_build::Config::new();
    if module == "sds" {
        // What goes into a google.protobuf.Any is named in full there.
        config.enable_type_names();
    }
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .emit_rerun_if_changed(false)
        .codec_path(codec)
        // Keys and tokens must not reach a log: redacted by hand in `redact.rs`.
        .skip_debug([
            ".X509SVID",
            ".JWTSVID",
            ".ValidateJWTSVIDRequest",
            ".isthmus.v1.EnrollRequest",
            ".isthmus.v1.IssueJwtResponse",
            ".isthmus.v1.CreateTokenResponse",
            ".envoy.config.core.v3.DataSource",
            ".envoy.service.discovery.v3.DiscoveryResponse",
        ])
        .out_dir(out)
        .compile_fds_with_config(descriptors, config)
        .unwrap_or_else(|e| panic!("{module}: {e}"));
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
