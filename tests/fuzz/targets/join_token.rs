//! Join tokens, from a file or a stranger: what is read is written back as it was.
#![no_main]

use isthmusd::identity::enroll::Token;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(token) = Token::parse(text) {
        assert_eq!(text.trim(), token.reveal().as_str());
    }
});
