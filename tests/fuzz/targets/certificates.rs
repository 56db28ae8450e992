//! A chain, a bundle or any file with keys and certificates in PEM or DER: read whole, or refused with a reason.
#![no_main]

use isthmus_pki::verify::{Purpose, verify};
use isthmus_pki::{Bundle, Key, TrustStore, bundle, inspect};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

fuzz_target!(|data: &[u8]| {
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_800);
    for item in inspect::inspect(data, now) {
        let _ = inspect::lines(&item);
    }
    drop(Key::from_pem(data, None));
    drop(Key::from_pkcs8(data));
    let Ok(chain) = bundle::certificates(data) else { return };
    assert_eq!(bundle::certificates(bundle::to_pem(&chain).as_bytes()).as_ref(), Ok(&chain));
    let mut store = TrustStore::default();
    if let Ok(bundle) = Bundle::parse(data) {
        assert_eq!(Bundle::parse(&bundle.to_der()).as_ref(), Ok(&bundle));
        store.insert(bundle);
    }
    let _ = verify(&chain, &store, Purpose::Server, now);
});
