//! A charter as it comes from a file or another node, the text that its signatures are over, and the draft that a person writes.
#![no_main]

use isthmus_pki::{
    charter::{self, sealed},
    statement,
};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

fuzz_target!(|data: &[u8]| {
    let _ = sealed::open(data, &[], OffsetDateTime::UNIX_EPOCH);
    let texts = [charter::from_json(data).ok(), sealed::look(data).ok().map(|(charter, _)| charter)];
    for charter in texts.into_iter().flatten() {
        assert!(charter::differences(&charter, &charter).is_empty());
        assert_eq!(charter.succeeds(&charter), Ok(charter::Succession::Same));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = statement::open(text, statement::Kind { typ: "isthmus-taint", longest: 1 << 20 });
    // Certificates are files of their own: each name in the draft stands for the draft itself.
    let _ = charter::from_toml(text, 0, &mut |_| Ok(data.to_vec()));
});
