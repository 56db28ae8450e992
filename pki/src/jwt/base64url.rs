//! base64url without padding (RFC 7515 section 2), one spelling for each value: no padding, no blanks, unused bits zero.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

pub(crate) fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}
