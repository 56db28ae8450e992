//! A stream of BGP messages: every one decodes or is refused, and what decodes survives being encoded and decoded again.
#![no_main]

use isthmus_bgp::Families;
use isthmus_bgp::wire::{
    Encoding, Frame, MessageType, Notification, Open, Peering, RouteRefresh, Update, UpdateContext,
    encode_announcement, encode_withdrawal, frame,
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
    let context = UpdateContext {
        four_octet: choice & 1 == 0,
        peering,
        families: Families::ALL,
        add_path: if choice & 4 == 0 { Families::NONE } else { Families::ALL },
        extended_next_hop: choice & 8 != 0,
    };
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
        MessageType::RouteRefresh => {
            for enhanced in [false, true] {
                match RouteRefresh::decode(message.body, enhanced) {
                    Ok(refresh) => {
                        let mut again = Vec::new();
                        refresh.encode(&mut again).expect("it always fits");
                        assert_eq!(RouteRefresh::decode(body(&again), enhanced), Ok(refresh));
                    }
                    Err(refused) => refused.encode(&mut Vec::new()).expect("a refusal can be sent"),
                }
            }
        }
        MessageType::Update => match Update::decode(message.body, context) {
            Ok(update) => {
                announce_again(&update, context);
                withdraw_again(&update, context);
            }
            Err(refused) => refused.encode(&mut Vec::new()).expect("a refusal can be sent"),
        },
        MessageType::Keepalive => {}
    }
}

/// The attributes and the prefixes of an announcement come back the same from a message of our own.
fn announce_again(update: &Update, context: &UpdateContext) {
    for announced in &update.announced {
        let mut out = Vec::new();
        let Ok(count) =
            encode_announcement(&announced.attributes, &announced.prefixes, &encoding(context), &mut out)
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

/// What is withdrawn comes back the same.
fn withdraw_again(update: &Update, context: &UpdateContext) {
    let mut out = Vec::new();
    let count = encode_withdrawal(&update.withdrawn, &encoding(context), &mut out).expect("one fits");
    if count > 0 {
        let again = Update::decode(body(&out), context).expect("our own message is well formed");
        assert_eq!(again.withdrawn, update.withdrawn[..count]);
    }
}

/// How to write for a reader with this context.
fn encoding(context: &UpdateContext) -> Encoding {
    Encoding {
        four_octet: context.four_octet,
        add_path: context.add_path,
        extended_next_hop: context.extended_next_hop,
        link_local: None,
    }
}

fn body(message: &[u8]) -> &[u8] {
    let message = frame(message).expect("our own header is right").expect("our own message is whole");
    message.body
}
