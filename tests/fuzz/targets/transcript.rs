//! A transcript from somebody else: never believed without a seal, and never gone on after if it is broken.
#![no_main]

use isthmus_pki::transcript::{self, Log};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    assert!(transcript::verify(data, &[]).is_err(), "nobody sealed it");
    let _ = Log::resume(data);
});
