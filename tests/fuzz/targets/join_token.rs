//! Join tokens, from a file or a stranger: what is read is written back as it was.
#![no_main]

use isthmus_pki::key::sha256_hex;
use isthmusd::identity::enroll::Token;
use libfuzzer_sys::fuzz_target;

fn check(text: &str) {
    if let Ok(token) = Token::parse(text) {
        assert_eq!(text.trim(), token.reveal().as_str());
        assert!(token.issuer().node().is_some());
    }
}

fuzz_target!(|text: &str| {
    check(text);
    // With digits at its end that fit, which no fuzzer finds: so what stands before them is looked at too.
    check(&format!("{text}.{}", &sha256_hex(text.as_bytes())[..8]));
});
