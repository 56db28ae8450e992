//! Texts of policies, as they come from configurations: what is accepted is written as a text that means the same.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use isthmus_bgp::policy::{AsPathPattern, CommunityPattern, LargeCommunityPattern};
use isthmus_bgp::wire::{Community, LargeCommunity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    again::<AsPathPattern>(text);
    again::<CommunityPattern>(text);
    again::<LargeCommunityPattern>(text);
    again::<Community>(text);
    again::<LargeCommunity>(text);
});

fn again<T: FromStr + Display + Debug + PartialEq>(text: &str) {
    if let Ok(parsed) = text.parse::<T>() {
        let written = parsed.to_string();
        assert_eq!(written.parse::<T>().ok(), Some(parsed), "{text:?} became {written:?}");
    }
}
