//! A stream of BGP messages: every one decodes or is refused, and what decodes survives being encoded and decoded again.
#![no_main]

use isthmus_bgp::Families;
use isthmus_bgp::wire::{
    Frame, MessageType, Notification, Open, Peering, RouteRefresh, Update, UpdateContext,
    encode_announcement, frame,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((context, mut stream)) = split(data) else { return };
    while let Ok(Some(message)) = frame(stream) {
        decode(&message, &context);
        stream = &stream[message.wire_length()..];
    }
});

/// The first byte says what the session negotiated.
fn split(data: &[u8]) -> Option<(UpdateContext, &[u8])> {
    let (choice, stream) = data.split_first()?;
    let peering = if choice & 2 == 0 { Peering::Internal } else { Peering::External { asn: 65_001 } };
    let context = UpdateContext { four_octet: choice & 1 == 0, peering, families: Families::ALL };
    Some((context, stream))
}

fn decode(message: &Frame<'_>, context: &UpdateContext) {
    match message.kind {
        MessageType::Open => {
            if let Ok(open) = Open::decode(message.body) {
                let mut again = Vec::new();
                if open.encode(&mut again).is_ok() {
                    assert_eq!(Open::decode(body(&again)), Ok(open));
                }
            }
        }
        MessageType::Notification => {
            if let Ok(notification) = Notification::decode(message.body) {
                let mut again = Vec::new();
                notification.encode(&mut again).expect("it fitted into a message before");
                assert_eq!(Notification::decode(body(&again)), Ok(notification.clone()));
                let _ = (notification.to_string(), notification.explanation());
            }
        }
        MessageType::RouteRefresh => drop(RouteRefresh::decode(message.body)),
        MessageType::Update => {
            if let Ok(update) = Update::decode(message.body, context) {
                announce_again(&update, context);
            }
        }
        MessageType::Keepalive => {}
    }
}

/// The attributes and the prefixes of an announcement come back the same from a message of our own.
fn announce_again(update: &Update, context: &UpdateContext) {
    for announced in &update.announced {
        let mut out = Vec::new();
        let Ok(count) =
            encode_announcement(&announced.attributes, &announced.prefixes, context.four_octet, &mut out)
        else {
            continue;
        };
        let again = Update::decode(body(&out), context).expect("our own message is well formed");
        assert_eq!(again.faults, [], "our own message has faults");
        assert_eq!(again.announced.len(), 1);
        assert_eq!(again.announced[0].attributes, announced.attributes);
        assert_eq!(again.announced[0].prefixes, announced.prefixes[..count]);
    }
}

fn body(message: &[u8]) -> &[u8] {
    let message = frame(message).expect("our own header is right").expect("our own message is whole");
    message.body
}
