//! `svid fetch` against a Workload API with canned identities, and `certs inspect` on what it wrote.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use isthmus_proto::workload::spiffe_workload_api_server::{SpiffeWorkloadApi, SpiffeWorkloadApiServer};
use isthmus_proto::workload::*;
use rcgen::{CertificateParams, KeyPair, SanType};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::{Run, isthmusctl};

const ID: &str = "spiffe://fabric.example/ns/payments/sa/api";

/// A Workload API that sends one message and then keeps the stream open, as a real one does.
struct Canned(Result<X509svidResponse, Status>);

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl SpiffeWorkloadApi for Canned {
    type FetchX509SVIDStream = Messages<X509svidResponse>;
    type FetchX509BundlesStream = Messages<X509BundlesResponse>;
    type FetchJWTBundlesStream = Messages<JwtBundlesResponse>;

    async fn fetch_x509svid(
        &self,
        request: Request<X509svidRequest>,
    ) -> Result<Response<Self::FetchX509SVIDStream>, Status> {
        if request.metadata().get("workload.spiffe.io").is_none_or(|value| value != "true") {
            return Err(Status::invalid_argument("security header missing from request"));
        }
        let first = tokio_stream::once(self.0.clone());
        Ok(Response::new(Box::pin(first.chain(tokio_stream::pending()))))
    }

    async fn fetch_x509_bundles(
        &self,
        _: Request<X509BundlesRequest>,
    ) -> Result<Response<Self::FetchX509BundlesStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn fetch_jwtsvid(&self, _: Request<JwtsvidRequest>) -> Result<Response<JwtsvidResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn fetch_jwt_bundles(
        &self,
        _: Request<JwtBundlesRequest>,
    ) -> Result<Response<Self::FetchJWTBundlesStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn validate_jwtsvid(
        &self,
        _: Request<ValidateJwtsvidRequest>,
    ) -> Result<Response<ValidateJwtsvidResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

/// A running Workload API; dropping it stops it and removes its directory.
struct Workload {
    runtime: Option<Runtime>,
    directory: TempDir,
}

impl Workload {
    fn start(answer: Result<X509svidResponse, Status>) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = StdListener::bind(directory.path().join("workload.sock")).expect("a free path");
        listener.set_nonblocking(true).expect("a socket");
        runtime.spawn(async move {
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener).expect("non-blocking"));
            let service = SpiffeWorkloadApiServer::new(Canned(answer));
            Server::builder().add_service(service).serve_with_incoming(incoming).await
        });
        Self { runtime: Some(runtime), directory }
    }

    fn endpoint(&self) -> String {
        format!("unix://{}/workload.sock", self.directory.path().display())
    }

    fn fetch(&self, arguments: &[&str]) -> Run {
        let mut command = isthmusctl();
        command.env("SPIFFE_ENDPOINT_SOCKET", self.endpoint()).args(["svid", "fetch"]).args(arguments);
        command.output().expect("the binary starts").into()
    }

    fn out(&self) -> PathBuf {
        self.directory.path().join("out")
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn identity(id: &str, hint: &str) -> X509svid {
    let mut params = CertificateParams::new(vec!["api.example".to_owned()]).expect("a DNS name");
    params.subject_alt_names.push(SanType::URI(ID.try_into().expect("ASCII")));
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("signed").der().to_vec();
    X509svid {
        spiffe_id: id.to_owned(),
        x509_svid: [certificate.clone(), certificate.clone()].concat(),
        x509_svid_key: key.serialize_der(),
        bundle: certificate,
        hint: hint.to_owned(),
    }
}

fn identities(svids: Vec<X509svid>) -> Workload {
    Workload::start(Ok(X509svidResponse { svids, ..X509svidResponse::default() }))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn prints_identities_and_no_key() {
    let svid = identity(ID, "internal");
    let pem = pem::encode(&pem::Pem::new("PRIVATE KEY", svid.x509_svid_key.clone()));
    let workload = identities(vec![svid]);
    let table = workload.fetch(&[]).data();
    let lines = table.lines().collect::<Vec<_>>();
    assert!(
        lines[0].starts_with("SPIFFE ID ") && lines[1].starts_with(&format!("{ID}  internal  ")),
        "{table}"
    );
    let json = workload.fetch(&["-o", "json"]).data();
    let document = serde_json::from_str::<serde_json::Value>(&json).expect("valid JSON");
    assert_eq!(document["schema"], "isthmus.v1/svids");
    assert_eq!(document["svids"][0]["spiffe_id"], ID);
    assert_eq!(document["svids"][0]["chain_length"], 2);
    assert_eq!(document["written"], serde_json::json!([]));
    let line = pem.lines().nth(1).expect("a line of base64");
    assert!(!table.contains(line) && !json.contains(line));
}

#[test]
fn the_option_names_the_socket_too() {
    let workload = identities(vec![identity(ID, "")]);
    let output = isthmusctl().args(["svid", "fetch", "--workload-socket", &workload.endpoint()]).output();
    assert!(Run::from(output.expect("the binary starts")).data().contains(ID));
}

#[test]
fn writes_files_that_fit_together_with_the_key_for_the_owner_only() {
    let (first, second) = (identity(ID, ""), identity(ID, "other"));
    let keys = [first.x509_svid_key.clone(), second.x509_svid_key.clone()];
    let workload = identities(vec![first, second]);
    let out = workload.out();
    let ran = workload.fetch(&["--write", out.to_str().expect("UTF-8")]).data();
    assert!(ran.contains(&format!("wrote {}/svid.1.pem", out.display())), "{ran}");
    for (infix, key) in ["", ".1"].iter().zip(keys) {
        let read = |stem: &str| fs::read(out.join(format!("{stem}{infix}.pem"))).expect("written");
        let block = pem::parse(read("key")).expect("PEM");
        assert_eq!((block.tag(), block.contents()), ("PRIVATE KEY", &key[..]));
        assert_eq!(mode(&out.join(format!("key{infix}.pem"))), 0o600);
        assert_eq!(pem::parse_many(read("svid")).expect("PEM").len(), 2);
        assert_eq!(pem::parse_many(read("bundle")).expect("PEM").len(), 1);
    }
    assert_eq!(mode(&out), 0o700);
    assert_eq!(fs::read_dir(&out).expect("there").count(), 6);

    // An identity that is no longer given leaves no key behind.
    identities(vec![identity(ID, "")]).fetch(&["--write", out.to_str().expect("UTF-8")]).data();
    assert_eq!(fs::read_dir(&out).expect("there").count(), 3);
}

#[test]
fn certs_inspect_shows_what_was_written() {
    let workload = identities(vec![identity(ID, "")]);
    let out = workload.out();
    workload.fetch(&["--write", out.to_str().expect("UTF-8")]).data();
    let inspect = |file: &str, format: &str| {
        let output = isthmusctl().args(["certs", "inspect", "-o", format]).arg(out.join(file)).output();
        Run::from(output.expect("the binary starts"))
    };
    let table = inspect("svid.pem", "table").stdout;
    assert_eq!(table.matches(ID).count(), 2, "{table}");
    let ran = inspect("svid.pem", "json");
    let document = serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("JSON");
    assert_eq!(document["schema"], "isthmus.v1/inspected-file");
    assert_eq!(document["items"][1]["type"], "certificate");
    assert_eq!(document["items"][1]["dns_names"], serde_json::json!(["api.example"]));
    // A bare self-signed certificate is no SVID as the specification wants it, and that is told.
    assert_eq!((ran.code, &document["sound"]), (Some(1), &false.into()));
    assert!(ran.stderr.contains("svid.pem holds something that would be refused"), "{}", ran.stderr);

    let key = inspect("key.pem", "table").data();
    assert!(key.starts_with("Private key  not encrypted\n"), "{key}");
    let base64 = fs::read_to_string(out.join("key.pem")).expect("written");
    assert!(!key.contains(base64.lines().nth(1).expect("a line")), "a key must never be shown");
    let absent = inspect("absent.pem", "table");
    assert_eq!(absent.code, Some(1));
    assert!(absent.stderr.contains("absent.pem: No such file"), "{}", absent.stderr);
}

#[test]
fn no_identity_is_a_failure_that_says_where_to_look() {
    let ran = Workload::start(Err(Status::permission_denied("no identity issued"))).fetch(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(
        ran.stderr.contains("no identity issued") && ran.stderr.contains("workload_api.entry"),
        "{}",
        ran.stderr
    );
}

/// An audit log on a full disk: the daemon is there and well known, and trying again helps nobody.
#[test]
fn what_the_daemon_can_not_do_now_is_a_failure_and_not_a_daemon_that_is_away() {
    let full = "the audit log can't be written, so nothing is issued now; the daemon's log says why";
    let ran = Workload::start(Err(Status::unavailable(full))).fetch(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(full) && ran.stderr.contains("make room on its disk"), "{ran:?}");
    assert!(!ran.stderr.contains("starting or stopping"), "{ran:?}");
    let ran = Workload::start(Err(Status::unavailable("no identity yet"))).fetch(&[]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
}

#[test]
fn an_answer_that_makes_no_sense_is_refused_and_nothing_is_written() {
    let other = identity("spiffe://fabric.example/ns/other/sa/api", "");
    let mut broken = identity(ID, "");
    broken.x509_svid.truncate(100);
    let mut empty = identity(ID, "");
    empty.x509_svid.clear();
    let mut keyless = identity(ID, "");
    keyless.x509_svid_key.clear();
    let mut crossed = identity(ID, "");
    crossed.x509_svid_key = identity(ID, "").x509_svid_key;
    let cases = [
        (other, ID),
        (broken, "bad chain"),
        (empty, "bad chain"),
        (keyless, "bad key"),
        (crossed, "a key that does not belong to its certificate"),
    ];
    for (svid, reason) in cases {
        let workload = identities(vec![svid]);
        let ran = workload.fetch(&["--write", workload.out().to_str().expect("UTF-8")]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{reason}");
        assert!(ran.stderr.contains(reason), "no {reason:?} in {}", ran.stderr);
        assert!(!workload.out().exists(), "{reason}");
    }
}

#[test]
fn a_socket_that_is_not_there_is_unreachable_and_a_bad_uri_is_usage() {
    let fetch = |endpoint: &str| {
        let output = isthmusctl().args(["svid", "fetch", "--workload-socket", endpoint]).output();
        Run::from(output.expect("the binary starts"))
    };
    let absent = fetch("unix:///nonexistent/workload.sock");
    assert_eq!(absent.code, Some(4));
    assert!(absent.stderr.contains("/nonexistent/workload.sock") && absent.stderr.contains("[workload_api]"));
    assert_eq!(fetch("tcp://127.0.0.1:1").code, Some(2));
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let workload = identities(vec![identity(ID, "")]);
    let ran = workload.fetch(&["--write", "/dev/null/out"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("cannot write /dev/null/out"), "{}", ran.stderr);
}
