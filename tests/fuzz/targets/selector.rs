//! Selectors of registration entries.
#![no_main]

use isthmusd::identity::Selector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(Selector::Path(path)) = Selector::parse(text) {
        assert!(path.is_absolute() && text.ends_with(path.to_str().expect("it was text")));
    }
});
