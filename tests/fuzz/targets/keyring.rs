//! The file of a node's keyring, and what another node says of JWT keys: nothing is believed that no site CA signed, and what is read is
//! written back as it was.
#![no_main]

use std::sync::LazyLock;

use isthmus_pki::Bundle;
use isthmusd::identity::{Trust, enroll::Keyring};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let root = include_bytes!("../seeds/certificates/root_pem");
    Trust::new(Bundle::parse(root).expect("a trust bundle"))
});

fuzz_target!(|data: &[u8]| {
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_800);
    let mut heard = Keyring::default();
    let refused = heard.hear(&[data.to_vec()], &[], &TRUST, now);
    assert_eq!((refused.len(), heard.endorsed().count()), (1, 0));
    if let Ok(mut ring) = Keyring::parse(data) {
        assert_eq!(Keyring::parse(ring.to_text().as_bytes()).expect("what we write we read"), ring);
        ring.review(&TRUST, now);
        assert_eq!(ring.endorsed().count(), 0);
    }
});
