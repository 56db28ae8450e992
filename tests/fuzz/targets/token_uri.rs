//! The name of a key in a token: refused, or what it says is kept as it was written.
#![no_main]

use isthmus_token::Uri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(uri) = Uri::parse(text) else { return };
    assert_eq!(uri.to_string(), text);
    // As part of another's value it is only a strange label: `object=pin-value=1`.
    let is_pin = |attribute: &str| attribute.starts_with("pin-value=");
    let rest = &text["pkcs11:".len()..];
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    assert!(!path.split(';').any(is_pin) && !query.split('&').any(is_pin), "a PIN got through");
});
