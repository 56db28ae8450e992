//! The body of a NOTIFICATION: what it says is short, and harms no terminal.
#![no_main]

use isthmus_bgp::wire::{Notification, frame};
use libfuzzer_sys::fuzz_target;

/// Code and subcode in words, and either a shutdown text of 255 bytes, of which each may become a character of three, or the names of as
/// many capabilities as fit into a message.
const LONGEST: usize = 64 * 1024;

fuzz_target!(|body: &[u8]| {
    let Ok(notification) = Notification::decode(body) else {
        assert!(body.len() < 2);
        return;
    };
    for text in [Some(notification.to_string()), notification.explanation()].into_iter().flatten() {
        assert!(text.len() < LONGEST, "{} bytes", text.len());
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    let mut again = Vec::new();
    if notification.encode(&mut again).is_ok() {
        let message = frame(&again).expect("our own header is right").expect("our own message is whole");
        assert_eq!(Notification::decode(message.body).as_ref(), Ok(&notification));
    }
    if let Some(reason) = notification.reset_reason() {
        assert_eq!(Notification::hard_reset(&reason), notification);
    }
});
