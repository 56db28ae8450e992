//! A connection of the Workload API: any bytes in any pieces, and whatever is asked is answered. What is kept stays within its bounds.
#![no_main]

use std::time::Instant;

use isthmus_http2::{Connection, Event};
use libfuzzer_sys::fuzz_target;

const START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (mut connection, now) = (Connection::default(), Instant::now());
    if choice & 1 == 0 && connection.receive(START, now).is_err() {
        panic!("a beginning as the standard has it was refused");
    }
    for piece in bytes.chunks(usize::from(choice >> 1) + 1) {
        let Ok(events) = connection.receive(piece, now) else { return };
        events.into_iter().for_each(|event| answer(&mut connection, event));
        // One piece is at most 128 bytes, so it is fourteen frames that want an answer.
        assert!(connection.output().len() < 128 << 10);
        connection.sent(connection.output().len());
    }
});

fn answer(connection: &mut Connection, event: Event) {
    match event {
        Event::Request { stream, request, is_last } => {
            assert!(!request.path.is_empty());
            connection.send_fields(stream, [(&b":status"[..], &b"200"[..])], false);
            connection.send(stream, &mut vec![7; 1000].into());
            if is_last {
                connection.finish(stream);
            }
        }
        Event::Data { stream, bytes, is_last } => {
            connection.read(stream, bytes.len());
            if is_last {
                connection.send_fields(stream, [(&b"grpc-status"[..], &b"0"[..])], true);
            }
        }
        Event::Reset { stream } => assert_eq!(connection.room(stream), 0),
    }
}
