//! The name of a key in a token: refused, or what it says is kept as it was written.
#![no_main]

use isthmus_token::Uri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(uri) = Uri::parse(text) else { return };
    assert_eq!(uri.to_string(), text);
    assert!(!text.contains("pin-value="), "a PIN got through");
});
