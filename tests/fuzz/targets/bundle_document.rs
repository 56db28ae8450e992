//! A bundle document as a stranger's endpoint serves it: refused, or what is taken of it reads back the same.
#![no_main]

use isthmus_pki::{Bundle, TrustDomain};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

fuzz_target!(|data: &[u8]| {
    let domain = TrustDomain::parse("td").expect("a trust domain");
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_800);
    for document in [Bundle::from_jwks(&domain, data), Bundle::foreign(&domain, data)].into_iter().flatten() {
        let bundle = document.bundle;
        let again =
            Bundle::from_jwks(&domain, bundle.to_jwks().as_bytes()).expect("what we write we read").bundle;
        assert_eq!(again.jwt_authorities(), bundle.jwt_authorities());
        assert_eq!((again.sequence(), again.refresh_hint()), (bundle.sequence(), bundle.refresh_hint()));
        let _ = bundle.is_out_of_date(now);
    }
});
