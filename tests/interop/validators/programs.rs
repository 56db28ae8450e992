//! The programs that judge.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use isthmus_lab::{corpus::Case, peers::installed};
use isthmus_pki::{bundle::to_pem, x509};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What is said of a server's and of a client's certificate; nothing: it is accepted.
pub(crate) type Verdicts = [String; 2];

#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Server,
    Client,
}

impl Purpose {
    pub(crate) const BOTH: [Self; 2] = [Self::Server, Self::Client];
}

pub(crate) fn run(dir: &Path, command: &[&str]) -> Output {
    Command::new(command[0]).args(&command[1..]).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

fn complaint(output: &Output) -> String {
    if output.status.success() {
        return String::new();
    }
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    format!("{}: {}", output.status, text.trim())
}

/// `openssl verify -x509_strict`.
pub(crate) fn openssl(dir: &Path, case: &Case, purpose: Purpose) -> String {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    write("leaf.pem", to_pem(&case.chain[..1]));
    write("untrusted.pem", to_pem(&case.chain[1..]));
    write("roots.pem", to_pem(&case.roots));
    write("crls.pem", case.crls.iter().map(|der| x509::to_pem("X509 CRL", der)).collect());
    let at = case.at.unix_timestamp().to_string();
    let purpose = match purpose {
        Purpose::Server => "sslserver",
        Purpose::Client => "sslclient",
    };
    let mut command = vec!["openssl", "verify", "-x509_strict", "-purpose", purpose, "-attime", &at];
    command.extend(["-no-CApath", "-no-CAstore", "-CAfile", "roots.pem"]);
    if !case.crls.is_empty() {
        command.extend(["-crl_check_all", "-CRLfile", "crls.pem"]);
    }
    if case.chain.len() > 1 {
        command.extend(["-untrusted", "untrusted.pem"]);
    }
    command.push("leaf.pem");
    complaint(&run(dir, &command))
}

/// `certtool --verify`.
pub(crate) fn certtool(dir: &Path, case: &Case) -> String {
    fs::write(dir.join("chain.pem"), to_pem(&case.chain)).unwrap();
    fs::write(dir.join("roots.pem"), to_pem(&case.roots)).unwrap();
    let command = ["certtool", "--verify", "--load-ca-certificate", "roots.pem", "--infile", "chain.pem"];
    complaint(&run(dir, &command))
}

/// The program in tests/peers/validate.go.
pub(crate) struct Go {
    _dir: TempDir,
    program: PathBuf,
}

impl Go {
    /// Compiled once for each test program; nothing where there is no Go.
    pub(crate) fn build() -> Option<&'static Self> {
        static GO: OnceLock<Option<Go>> = OnceLock::new();
        GO.get_or_init(|| {
            if !installed("what Go says", &["go"]) {
                return None;
            }
            let dir = tempfile::tempdir().unwrap();
            let (program, source) =
                (dir.path().join("validate"), concat!(env!("CARGO_MANIFEST_DIR"), "/peers/validate.go"));
            let mut command = Command::new("go");
            command
                .args(["build", "-o"])
                .arg(&program)
                .arg(source)
                .env("GOFLAGS", "-mod=mod")
                .current_dir(dir.path());
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(Self { _dir: dir, program })
        })
        .as_ref()
    }

    /// What it complains of.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        complaint(&Command::new(&self.program).args(arguments).output().unwrap())
    }

    /// Verdicts by the names of the cases.
    pub(crate) fn judge(&self, cases: &[Case]) -> BTreeMap<String, Verdicts> {
        let mut command = Command::new(&self.program);
        let mut child = command.arg("chains").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines: Vec<String> = cases.iter().map(question).collect();
        let writer = std::thread::spawn(move || input.write_all(lines.join("\n").as_bytes()).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let answers = String::from_utf8(output.stdout).unwrap();
        answers.lines().map(answer).collect()
    }
}

fn question(case: &Case) -> String {
    let encode = |list: &[rustls_pki_types::CertificateDer<'_>]| -> Vec<String> {
        list.iter().map(|der| BASE64_STANDARD.encode(der)).collect()
    };
    let (chain, roots) = (encode(&case.chain), encode(&case.roots));
    json!({"name": case.name, "chain": chain, "roots": roots, "at": case.at.unix_timestamp()}).to_string()
}

fn answer(line: &str) -> (String, Verdicts) {
    let answer: Value = serde_json::from_str(line).unwrap();
    let text = |key: &str| answer[key].as_str().unwrap().to_owned();
    (text("name"), [text("server"), text("client")])
}
