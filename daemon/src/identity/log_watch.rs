//! Reads along with the log of all tests of identity: no line may hold a key, a token, or at INFO and above the value of a selector.
//! (spiffe/spire#6732, rust-spiffe 0.17)

use std::{
    io,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing_subscriber::EnvFilter;

/// A selector's value that nothing else has.
pub(super) const SELECTOR: u32 = 4_000_000_123;
/// PEM; a JWS's first letters (`{"`); PKCS#8 of a P-256 key in base64 and in hex.
const SECRETS: [&str; 5] =
    ["-----BEGIN", "PRIVATE KEY", "eyJ", "MIGHAgEAMBMGByqGSM49", "308187020100301306072a86"];

static LINES: AtomicU64 = AtomicU64::new(0);
static FAULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Watcher;

impl io::Write for Watcher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        LINES.fetch_add(1, Ordering::Relaxed);
        if let Some(what) = fault(&line) {
            FAULTS.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{what} in {line}"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn fault(line: &str) -> Option<&'static str> {
    let loud = !line.contains("DEBUG") && !line.contains("TRACE");
    let secret = SECRETS.into_iter().find(|secret| line.contains(secret));
    let secret = secret.or(holds_join_token(line).then_some("a join token"));
    secret.or((loud && line.contains(&SELECTOR.to_string())).then_some("a selector's value"))
}

/// The prefix alone is in an error that says what a token looks like.
fn holds_join_token(line: &str) -> bool {
    let secret = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c));
    line.split("isthmus-join_").skip(1).any(secret)
}

/// From now on every line of this process is read.
pub(super) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::new("debug,isthmusd=trace,isthmus_pki=trace");
        let subscriber =
            tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| Watcher);
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    });
}

/// Panics if a line held what it must not.
pub(super) fn check() {
    let faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    // A second panic while one unwinds would hide the first.
    assert!(faults.is_empty() || std::thread::panicking(), "{faults:?}");
}

pub(super) fn lines() -> u64 {
    LINES.load(Ordering::Relaxed)
}

#[test]
fn the_watcher_knows_what_to_look_for() {
    let key = isthmus_pki::Key::generate(isthmus_pki::Curve::P256).unwrap();
    let base64 = key.to_pem().lines().nth(1).unwrap().to_owned();
    for (line, found) in [
        (key.to_pem().to_string(), true),
        (format!("TRACE key={base64}"), true),
        ("DEBUG token=eyJhbGciOiJFUzI1NiJ9".into(), true),
        ("INFO token=isthmus-join_mF3kQ.td/s/gw1.4c1d09be".into(), true),
        ("WARN makes one that starts with \"isthmus-join_\"".into(), false),
        (format!("INFO gid={SELECTOR}"), true),
        (format!("DEBUG gid={SELECTOR}"), false),
        ("INFO issued an X.509-SVID id=spiffe://td/w".into(), false),
    ] {
        assert_eq!(fault(&line).is_some(), found, "{line}");
    }
}
