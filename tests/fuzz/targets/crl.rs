//! A revocation list in PEM or DER: refused, or read; no list of a stranger gets into a store.
#![no_main]

use isthmus_pki::{Crl, TrustStore};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

fuzz_target!(|data: &[u8]| {
    let Ok(crl) = Crl::parse(data) else { return };
    let _ = crl.stale(OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_800));
    assert_eq!(Crl::parse(crl.der()).as_ref(), Ok(&crl));
    assert!(TrustStore::default().with_crls([crl]).is_err());
});
