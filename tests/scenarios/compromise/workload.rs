//! An honest workload: its stream, and all that it was given, watched in a thread of its own.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use isthmus_lab::node::unix_channel;
use isthmus_pki::{
    Bundle, Facts, KeyHash, TrustStore,
    bundle::certificates,
    verify::{self, Purpose},
};
use isthmus_proto::workload::{
    JwtsvidRequest, ValidateJwtsvidRequest, X509svidRequest, X509svidResponse,
    spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use time::OffsetDateTime;
use tonic::{Code, Request, Response, Status, Streaming, metadata::MetadataValue, transport::Channel};

/// What it had at one moment.
#[derive(Clone, Debug)]
struct Given {
    issuer: KeyHash,
    not_after: i64,
    roots: usize,
}

#[derive(Default)]
struct Seen {
    given: Vec<Given>,
    /// The first thing that an honest workload must not see.
    wrong: Option<String>,
    /// How often it was told to come again: it keeps what it has, and does.
    sent_away: usize,
}

pub(super) struct Workload(Arc<Mutex<Seen>>);

impl Workload {
    /// Opens the stream and waits for the first message.
    pub(super) fn connect(socket: &Path) -> Self {
        let (seen, socket) = (Arc::new(Mutex::new(Seen::default())), socket.to_owned());
        let this = Self(seen.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(watch(&seen, socket));
        });
        this.until("its first SVID", Duration::from_secs(20), |_| true);
        this
    }

    /// Until it was given a leaf of this CA.
    pub(super) fn until_issued_by(&self, ca: &KeyHash, limit: Duration) {
        self.until(&format!("a leaf of {}", ca.short()), limit, |given| given.issuer == *ca);
    }

    /// Until its bundle has so many roots.
    pub(super) fn until_roots(&self, roots: usize, limit: Duration) {
        self.until(&format!("{roots} roots"), limit, |given| given.roots == roots);
    }

    fn until(&self, what: &str, limit: Duration, holds: impl Fn(&Given) -> bool) {
        let begun = Instant::now();
        while !self.0.lock().unwrap().given.last().is_some_and(&holds) {
            self.is_well();
            let last = self.0.lock().unwrap().given.last().cloned();
            assert!(begun.elapsed() < limit, "the workload waited {limit:?} for {what}; it has {last:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Its stream never ended.
    pub(super) fn was_never_sent_away(&self) {
        assert_eq!(self.0.lock().unwrap().sent_away, 0);
    }

    /// It never was without an SVID that its own bundle accepts, and is not now.
    pub(super) fn is_well(&self) {
        let seen = self.0.lock().unwrap();
        assert_eq!(seen.wrong, None, "{:?}", seen.given);
        if let Some(last) = seen.given.last() {
            assert!(last.not_after >= now(), "its SVID ended {} s ago", now() - last.not_after);
        }
    }
}

/// A token for the audience "db", by this socket.
pub(super) fn token(socket: &Path) -> String {
    let request = || JwtsvidRequest { audience: vec!["db".into()], spiffe_id: String::new() };
    let answer = ask(socket, async |mut client| client.fetch_jwtsvid(marked(request())).await);
    answer.unwrap().svids.remove(0).svid
}

/// Does the node behind this socket accept it?
pub(super) fn accepts(socket: &Path, token: &str) -> Result<(), String> {
    let request = || ValidateJwtsvidRequest { audience: "db".into(), svid: token.to_owned() };
    let answer = ask(socket, async |mut client| client.validate_jwtsvid(marked(request())).await);
    answer.map(drop).map_err(|status| status.message().to_owned())
}

fn ask<T>(
    socket: &Path,
    call: impl AsyncFn(SpiffeWorkloadApiClient<Channel>) -> Result<Response<T>, Status>,
) -> Result<T, Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = SpiffeWorkloadApiClient::new(unix_channel(socket).unwrap());
        call(client).await.map(Response::into_inner)
    })
}

/// With the header that the Workload API wants.
fn marked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
    request
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

async fn watch(seen: &Mutex<Seen>, socket: PathBuf) {
    let mut stream = open(&socket).await;
    loop {
        let message = match &mut stream {
            Ok(stream) => stream.message().await,
            Err(status) => Err(status.clone()),
        };
        let next = match message {
            Ok(Some(message)) => read(&message),
            Ok(None) => Err("the stream ended without a status".into()),
            // What clients wait for and come again.
            Err(status) if status.code() == Code::Unavailable => {
                seen.lock().unwrap().sent_away += 1;
                tokio::time::sleep(Duration::from_millis(200)).await;
                stream = open(&socket).await;
                continue;
            }
            Err(status) => Err(format!("the stream ended: {status:?}")),
        };
        let mut seen = seen.lock().unwrap();
        let late = seen.given.last().is_some_and(|last| last.not_after < now());
        match next {
            Ok(_) if late => seen.wrong = Some("the next SVID came after the end of the last".into()),
            Ok(given) => seen.given.push(given),
            Err(reason) => {
                seen.wrong.get_or_insert(reason);
                return;
            }
        }
    }
}

async fn open(socket: &Path) -> Result<Streaming<X509svidResponse>, Status> {
    let request = marked(X509svidRequest {});
    let mut client = SpiffeWorkloadApiClient::new(unix_channel(socket).unwrap());
    client.fetch_x509svid(request).await.map(Response::into_inner)
}

/// What comes is a whole: the SVID holds under the bundle beside it.
fn read(message: &X509svidResponse) -> Result<Given, String> {
    let svid = message.svids.first().ok_or("a message without an SVID")?;
    let chain = certificates(&svid.x509_svid).map_err(|e| e.to_string())?;
    let bundle = Bundle::parse(&svid.bundle).map_err(|e| e.to_string())?;
    let (roots, store) = (bundle.anchors().len(), TrustStore::from(bundle));
    let verified = verify::verify(&chain, &store, Purpose::Server, OffsetDateTime::now_utc());
    let leaf = verified.map_err(|e| format!("its own bundle refuses it: {e}"))?.leaf;
    let ca = Facts::parse(&chain[1]).map_err(|e| e.to_string())?;
    Ok(Given { issuer: KeyHash::of(&ca), not_after: leaf.not_after, roots })
}
