//! A certificate request as a site brings it to the ceremony: refused, or its key is what was asked for.
#![no_main]

use isthmus_pki::{PublicKey, csr};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = csr::parse(data) {
        let key = PublicKey::from_spki(request.public_key.spki());
        assert_eq!(key.map(|key| key.sha256()), Ok(request.public_key.sha256()));
    }
});
