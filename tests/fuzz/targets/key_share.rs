//! A share as a scanner or a typist brings it: refused, or its text says the same again.
#![no_main]

use isthmus_pki::share::{self, Named, Share};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = share::marked(data);
    let Ok(share) = Share::parse(data) else { return };
    assert_eq!(Share::parse(share.to_text().as_bytes()).as_ref(), Ok(&share));
    let named = Named { file: "share".into(), share };
    assert!(share::combine(&[named.clone(), named], None).is_err(), "one share twice is no quorum");
});
