//! The Workload API over its real socket: who gets which identity, for how long, and when it ends.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::{Node, unix_channel},
    peers::{installed, skipped},
    pki::{Pki, TRUST_DOMAIN, identity_config},
    sandbox,
};
use isthmus_pki::{Bundle, Key, TrustStore, bundle::certificates, verify};
use isthmus_proto::workload::{
    X509BundlesRequest, X509svidRequest, X509svidResponse,
    spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use nix::sys::signal::Signal;
use time::OffsetDateTime;
use tonic::{Code, Request, Status, Streaming, metadata::MetadataValue, transport::Channel};

const LIMIT: Duration = Duration::from_secs(20);
const WORKLOAD: u32 = 1000;

/// One issuer, with its Workload API where every user can reach it: in the sandbox's own `/run`.
struct Rig {
    node: Node,
    pki: Pki,
    dir: PathBuf,
    _files: tempfile::TempDir,
}

impl Rig {
    fn start(entries: &str, bins: &Bins) -> Self {
        let (files, dir) = (tempfile::tempdir().unwrap(), PathBuf::from("/run/workload"));
        fs::create_dir(&dir).unwrap();
        fs::copy(&bins.isthmusctl, dir.join("isthmusctl")).unwrap();
        fs::set_permissions(dir.join("isthmusctl"), fs::Permissions::from_mode(0o755)).unwrap();
        let netns = Netns::create("issuer").unwrap();
        let mut node = Node::new("gw1", &netns, files.path(), bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(node.dir(), "gw1").unwrap();
        node.start(&config(&node, entries)).unwrap();
        node.wait_ready(LIMIT).unwrap();
        Self { node, pki, dir, _files: files }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("workload.sock")
    }

    /// `isthmusctl svid fetch` as a user and group; `None` where there is only one user.
    fn fetch_as(&self, uid: u32, gid: u32, arguments: &[&str]) -> Option<Output> {
        let mut command = Command::new(self.dir.join("isthmusctl"));
        command.args(["svid", "fetch", "--workload-socket"]);
        command.arg(format!("unix://{}", self.socket().display())).args(arguments);
        if (uid, gid) != (0, 0) {
            command.uid(uid).gid(gid);
        }
        match command.current_dir("/").output() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
            output => Some(output.unwrap()),
        }
    }

    /// In a thread of its own: the caller may be a future, and the lab has runtimes of its own.
    fn reload(&mut self, entries: &str) {
        thread::scope(|scope| scope.spawn(|| self.reload_here(entries)).join()).unwrap();
    }

    fn reload_here(&mut self, entries: &str) {
        let generation = |node: &Node| anyhow::Ok(node.status()?.config.unwrap_or_default().generation);
        let before = generation(&self.node).unwrap();
        self.node.write_config(&config(&self.node, entries)).unwrap();
        self.node.signal(Signal::SIGHUP).unwrap();
        let applied = |node: &Node| {
            anyhow::ensure!(generation(node)? > before, "{:?}", node.status()?.config);
            Ok(())
        };
        self.node.wait_until("the reload", LIMIT, applied).unwrap();
    }
}

fn config(node: &Node, entries: &str) -> String {
    let identity = identity_config(node, "s1");
    format!(
        "{identity}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n\
         [workload_api]\nsocket = \"/run/workload/workload.sock\"\n{entries}"
    )
}

fn entry(path: &str, selectors: &[String], ttl: &str) -> String {
    format!("[[workload_api.entry]]\nspiffe_id = \"{path}\"\nselectors = {selectors:?}\nttl = \"{ttl}\"\n")
}

fn uid(uid: u32) -> String {
    format!("unix:uid:{uid}")
}

fn id(path: &str) -> String {
    format!("spiffe://{TRUST_DOMAIN}{path}")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn selectors_decide_who_gets_what() {
    sandbox::run_with_bins("selectors_decide_who_gets_what", |bins| {
        let both = [uid(WORKLOAD), format!("unix:gid:{WORKLOAD}")];
        let entries = entry("/sa/root", &[uid(0)], "1h") + &entry("/sa/app", &both, "1h");
        let rig = Rig::start(&entries, bins);
        let roots = said(&rig.fetch_as(0, 0, &[]).unwrap());
        assert!(roots.contains(&id("/sa/root")) && !roots.contains(&id("/sa/app")), "{roots}");

        let Some(output) = rig.fetch_as(WORKLOAD, WORKLOAD, &[]) else {
            return skipped(
                "selectors_decide_who_gets_what",
                "only one user is mapped in this user namespace",
            );
        };
        assert!(output.status.success(), "{}", said(&output));
        let apps = said(&output);
        assert!(apps.contains(&id("/sa/app")) && !apps.contains(&id("/sa/root")), "{apps}");
        for (uid, gid) in [(WORKLOAD + 1, WORKLOAD), (WORKLOAD, WORKLOAD + 1), (WORKLOAD + 1, 0)] {
            let output = rig.fetch_as(uid, gid, &[]).unwrap();
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("no identity issued") && said.contains("workload_api.entry"), "{said}");
        }
    });
}

type Client = SpiffeWorkloadApiClient<Channel>;

fn with_header<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
    request
}

/// A client whose streams may last: the lab's own ends each call after some seconds.
async fn client(socket: &Path) -> Client {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    let endpoint = tonic::transport::Endpoint::try_from("http://localhost").unwrap();
    Client::new(endpoint.connect_with_connector(connect).await.unwrap())
}

fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn next(stream: &mut Streaming<X509svidResponse>, limit: Duration) -> Result<X509svidResponse, Status> {
    let message = tokio::time::timeout(limit, stream.message()).await.expect("an answer in time")?;
    Ok(message.expect("a stream ends with a status"))
}

#[test]
fn calls_without_the_header_are_refused() {
    sandbox::run_with_bins("calls_without_the_header_are_refused", |bins| {
        let rig = Rig::start(&entry("/sa/root", &[uid(0)], "1h"), bins);
        in_runtime(async {
            let mut client = Client::new(unix_channel(&rig.socket()).unwrap());
            let refused = client.fetch_x509svid(X509svidRequest {}).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            let refused = client.fetch_x509_bundles(X509BundlesRequest {}).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            let mut wrong = Request::new(X509svidRequest {});
            wrong.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("yes"));
            assert_eq!(client.fetch_x509svid(wrong).await.unwrap_err().code(), Code::InvalidArgument);

            let mut bundles =
                client.fetch_x509_bundles(with_header(X509BundlesRequest {})).await.unwrap().into_inner();
            let bundles = bundles.message().await.unwrap().unwrap().bundles;
            assert_eq!(bundles.keys().collect::<Vec<_>>(), [&id("")]);
        });
    });
}

#[test]
fn a_reload_pushes_what_is_new_and_ends_what_is_gone() {
    sandbox::run_with_bins("a_reload_pushes_what_is_new_and_ends_what_is_gone", |bins| {
        let [one, two] = ["/sa/one", "/sa/two"].map(|path| entry(path, &[uid(0)], "1h"));
        let mut rig = Rig::start(&one, bins);
        let socket = rig.socket();
        in_runtime(async {
            let mut client = client(&socket).await;
            let mut stream =
                client.fetch_x509svid(with_header(X509svidRequest {})).await.unwrap().into_inner();
            let ids = |message: &X509svidResponse| -> Vec<String> {
                message.svids.iter().map(|svid| svid.spiffe_id.clone()).collect()
            };
            assert_eq!(ids(&next(&mut stream, LIMIT).await.unwrap()), [id("/sa/one")]);

            rig.reload(&(one.clone() + &two));
            assert_eq!(ids(&next(&mut stream, LIMIT).await.unwrap()), [id("/sa/one"), id("/sa/two")]);
            rig.reload(&two);
            assert_eq!(ids(&next(&mut stream, LIMIT).await.unwrap()), [id("/sa/two")]);
            rig.reload(&entry("/sa/two", &[uid(4242)], "1h"));
            let ended = next(&mut stream, LIMIT).await.unwrap_err();
            assert_eq!((ended.code(), ended.message()), (Code::PermissionDenied, "no identity issued"));
        });
    });
}

/// Strict clients stop using what they have until they have worked off the next message: there must be none without a reason.
#[test]
fn who_comes_first_after_a_start_is_told_once() {
    sandbox::run_with_bins("who_comes_first_after_a_start_is_told_once", |bins| {
        let rig = Rig::start(&entry("/sa/one", &[uid(0)], "1h"), bins);
        in_runtime(async {
            let mut client = client(&rig.socket()).await;
            let mut stream =
                client.fetch_x509svid(with_header(X509svidRequest {})).await.unwrap().into_inner();
            let first = next(&mut stream, LIMIT).await.unwrap();
            let second = tokio::time::timeout(Duration::from_secs(3), stream.message()).await;
            assert!(second.is_err(), "{first:?} and then {second:?}");
        });
    });
}

#[test]
fn renewal_is_pushed_at_half_life() {
    sandbox::run_with_bins("renewal_is_pushed_at_half_life", |bins| {
        let rig = Rig::start(&entry("/sa/short", &[uid(0)], "1m"), bins);
        in_runtime(async {
            let mut client = client(&rig.socket()).await;
            let mut stream =
                client.fetch_x509svid(with_header(X509svidRequest {})).await.unwrap().into_inner();
            let first = next(&mut stream, LIMIT).await.unwrap();
            let second = next(&mut stream, Duration::from_secs(50)).await.unwrap();
            let now = OffsetDateTime::now_utc();
            let (old, new) = (&first.svids[0], &second.svids[0]);
            assert_eq!(old.spiffe_id, new.spiffe_id);
            assert_ne!(old.x509_svid_key, new.x509_svid_key, "a new certificate has a new key");
            // It came while the old one still served; and it serves too.
            for svid in [old, new] {
                let chain = certificates(&svid.x509_svid).unwrap();
                let store = TrustStore::from(Bundle::parse(&svid.bundle).unwrap());
                let verified = verify::verify(&chain, &store, verify::Purpose::Server, now).unwrap();
                assert_eq!(verified.id.to_string(), id("/sa/short"));
                let key = Key::from_pkcs8(&svid.x509_svid_key).unwrap();
                assert_eq!(key.public().spki(), verified.leaf.spki);
            }
        });
    });
}

/// As the kubelet does it, and nobody tells the daemon: `site-ca.pem` and its key are links into a directory that is another now.
#[test]
fn a_swapped_secret_reaches_workloads_without_a_signal() {
    let (name, limit) = ("a_swapped_secret_reaches_workloads_without_a_signal", Duration::from_secs(180));
    sandbox::run_with_bins_for(limit, name, |bins| {
        let mut rig = Rig::start(&entry("/sa/root", &[uid(0)], "1h"), bins);
        let dir = rig.node.dir().to_owned();
        in_runtime(async {
            let request = with_header(X509svidRequest {});
            let mut stream = client(&rig.socket()).await.fetch_x509svid(request).await.unwrap().into_inner();
            let before = next(&mut stream, LIMIT).await.unwrap();
            rig.pki.renew_site(OffsetDateTime::now_utc()).unwrap();
            fs::create_dir(dir.join("..2")).unwrap();
            rig.pki.write_site(&dir.join("..2")).unwrap();
            std::os::unix::fs::symlink("..2", dir.join("..data")).unwrap();
            for file in ["site-ca.pem", "site-ca.key"] {
                std::os::unix::fs::symlink(Path::new("..data").join(file), dir.join("link")).unwrap();
                fs::rename(dir.join("link"), dir.join(file)).unwrap();
            }
            // Two looks, 15 seconds apart.
            let after = next(&mut stream, Duration::from_secs(60)).await.unwrap();
            let issuer =
                |state: &X509svidResponse| certificates(&state.svids[0].x509_svid).unwrap().swap_remove(1);
            assert_ne!(issuer(&before), issuer(&after));
            let written = certificates(&fs::read(dir.join("site-ca.pem")).unwrap()).unwrap();
            assert_eq!(issuer(&after), written[0]);
        });
    });
}

#[test]
fn written_files_satisfy_openssl() {
    sandbox::run_with_bins("written_files_satisfy_openssl", |bins| {
        let rig = Rig::start(&entry("/sa/files", &[uid(0)], "1h"), bins);
        let out = rig.node.dir().join("out");
        let output = rig.fetch_as(0, 0, &["--write", out.to_str().unwrap()]).unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let file = |name: &str| out.join(name);
        assert_eq!(fs::metadata(file("key.pem")).unwrap().permissions().mode() & 0o777, 0o600);

        let mut openssl = Command::new("openssl");
        openssl.args(["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"]).arg(file("bundle.pem"));
        openssl.arg("-untrusted").arg(file("svid.pem")).arg(file("svid.pem"));
        if !installed("written_files_satisfy_openssl", &["openssl"]) {
            return;
        }
        let verified = openssl.output().unwrap();
        assert!(verified.status.success(), "{}", said(&verified));
        // The key is the certificate's: both have the same public key.
        let public = |arguments: &[&str], name: &str| {
            let output = Command::new("openssl").args(arguments).arg("-in").arg(file(name)).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            output.stdout
        };
        assert_eq!(
            public(&["pkey", "-pubout"], "key.pem"),
            public(&["x509", "-noout", "-pubkey"], "svid.pem")
        );
        let strangers = verify_with(&file("svid.pem"), &file("svid.pem"));
        assert!(!strangers, "openssl must not accept just anything");
    });
}

/// Does openssl accept `svid` with no root but the site CA's certificate, which is none?
fn verify_with(bundle: &Path, svid: &Path) -> bool {
    let mut command = Command::new("openssl");
    command.args(["verify", "-x509_strict", "-CAfile"]).arg(bundle).arg(svid);
    command.output().unwrap().status.success()
}
