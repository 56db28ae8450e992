//! The body of a ROUTE-REFRESH, on a session that has the enhanced kind or has it not (by the first byte).
#![no_main]

use isthmus_bgp::wire::{RouteRefresh, code, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else { return };
    let enhanced = choice & 1 != 0;
    match RouteRefresh::decode(body, enhanced) {
        Ok(refresh) => {
            assert!(body.len() == 4 || (enhanced && refresh.subtype > RouteRefresh::END));
            let mut again = Vec::new();
            refresh.encode(&mut again).expect("it always fits");
            let message = frame(&again).expect("our own header is right").expect("our own message is whole");
            assert_eq!(RouteRefresh::decode(message.body, enhanced), Ok(refresh));
        }
        Err(refused) => {
            assert_ne!(body.len(), 4);
            assert!(enhanced || refused.code == code::HEADER, "RFC 7313 was not negotiated");
            refused.encode(&mut Vec::new()).expect("a refusal can be sent");
        }
    }
});
