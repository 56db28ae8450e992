//! A configuration file: valid, or refused with problems that can be shown.
#![no_main]

use std::path::Path;

use isthmusd::config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // No file is where relative names in the text point to.
    if let Err(error) = config::parse(Path::new("/nonexistent/isthmusd.toml"), text) {
        assert!(!error.one_line().is_empty());
        assert!(!error.to_string().is_empty());
    }
});
