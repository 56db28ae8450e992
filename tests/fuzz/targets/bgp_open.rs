//! The body of an OPEN: it decodes or is refused, and what decodes survives being encoded and decoded again.
#![no_main]

use isthmus_bgp::wire::{Open, code, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    match Open::decode(body) {
        Ok(open) => read_again(&open),
        Err(refused) => {
            assert_eq!(refused.code, code::OPEN);
            refused.encode(&mut Vec::new()).expect("a refusal can be sent");
        }
    }
});

/// A message over 4096 bytes cannot be ours to send, although a body like that can be handed over here.
fn read_again(open: &Open) {
    let _ = (open.asn(), open.families());
    let mut again = Vec::new();
    if open.encode(&mut again).is_ok() {
        let message = frame(&again).expect("our own header is right").expect("our own message is whole");
        assert_eq!(Open::decode(message.body).as_ref(), Ok(open));
    }
}
