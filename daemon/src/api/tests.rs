//! The API over its real socket.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use super::*;

fn parts() -> Parts {
    let node = crate::config::Node { name: "gw1".into(), site: None, state_dir: "/nonexistent".into() };
    let state = ConfigState::first(Path::new("x.toml"), UNIX_EPOCH);
    Parts {
        node: Arc::new(node),
        started_at: UNIX_EPOCH,
        readiness: Readiness::new(),
        service: lifecycle::Service::new(),
        board: Board::new(),
        tunnel: None,
        bgp: None,
        bfd: None,
        speaker: None,
        fib: None,
        identity: None,
        events: Journal::new(),
        config: watch::Sender::new(state).subscribe(),
    }
}

/// Frames of `GetStatus` with this `:authority` (RFC 7541 section 6, no Huffman code).
fn get_status(authority: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let named = |name: &str, value: &str| [vec![0], text(name), text(value)].concat();
    let block = [
        vec![0x83, 0x86, 0x04],
        text("/isthmus.v1.Control/GetStatus"),
        vec![0x41],
        text(authority),
        named("content-type", "application/grpc"),
        named("te", "trailers"),
    ]
    .concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &block), frame(0, 1, 1, &[0; 5])].concat()
}

/// grpcurl and the libraries for Python, C++ and Java put the socket's path there.
#[tokio::test]
async fn a_path_as_authority_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { socket: dir.path().join("x.sock"), required: true };
    let server = start(&config, parts(), CancellationToken::new()).await.unwrap();
    for authority in ["%2Frun%2Fisthmus%2Fisthmusd.sock", "/run/isthmus/isthmusd.sock", "localhost"] {
        let mut stream = UnixStream::connect(&config.socket).await.unwrap();
        stream.write_all(&get_status(authority)).await.unwrap();
        let message = first_data(&mut stream).await;
        assert!(message.windows(3).any(|window| window == b"gw1"), "{authority}: {message:?}");
    }
    server.abort();
}

async fn first_data(stream: &mut UnixStream) -> Vec<u8> {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        let length = header[..3].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        match header[3] {
            0 => return payload,
            3 => panic!("RST_STREAM {payload:?}"),
            7 => panic!("GOAWAY {payload:?}"),
            _ => {}
        }
    }
}
