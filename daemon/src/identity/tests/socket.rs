//! The socket itself: what comes in that is no gRPC, a clean stop, another path.

use super::*;

#[tokio::test]
async fn random_bytes_at_the_socket_harm_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let path = node.files.path("workload.sock");
    for round in 0..64u32 {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let mut junk: Vec<u8> =
            if round % 2 == 0 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() } else { vec![] };
        junk.extend((0..256).map(|_| rand::random::<u8>()));
        // The server may hang up at any time.
        let _ = stream.write_all(&junk).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(node.fetch().await.unwrap().message().await.unwrap().is_some());
}

/// Frames of a call whose `:authority` is the socket's path, as gRPC for Python writes it (RFC 7541 section 6, no Huffman code).
fn call_with_a_path_as_authority() -> Vec<u8> {
    let literal =
        |head: &[u8], value: &str| [head, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let named = |name: &str, value: &str| literal(&literal(&[0], name), value);
    let block = [
        vec![0x83, 0x86],
        literal(&[0x04], "/SpiffeWorkloadAPI/FetchX509SVID"),
        literal(&[0x41], "%2Ftmp%2Fworkload.sock"),
        named("content-type", "application/grpc"),
        named("te", "trailers"),
        named("workload.spiffe.io", "true"),
    ]
    .concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &block), frame(0, 1, 1, &[0; 5])].concat()
}

#[tokio::test]
async fn a_path_as_authority_is_no_obstacle() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = tokio::net::UnixStream::connect(node.files.path("workload.sock")).await.unwrap();
    stream.write_all(&call_with_a_path_as_authority()).await.unwrap();
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        match header[3] {
            // DATA: the first message, after its five bytes of gRPC header.
            0 => {
                let id = b"spiffe://fabric.example/a";
                assert!(payload.windows(id.len()).any(|window| window == id));
                return;
            }
            3 => panic!("RST_STREAM {payload:?}"),
            7 => panic!("GOAWAY {payload:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_clean_stop_tells_the_streams_and_removes_the_socket() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    // A client that neither speaks nor reads does not hold the daemon up.
    let _mute = tokio::net::UnixStream::connect(node.files.path("workload.sock")).await.unwrap();
    node.shutdown.cancel();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    node.handle.stopped().await;
    assert!(!node.files.path("workload.sock").exists());
}

#[tokio::test]
async fn the_socket_can_be_moved() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let files = &node.files;
    let mut api = files.workload_api(vec![hour("/a")]);
    api.socket = files.path("other.sock");
    node.handle.apply(Some(files.config()), Some(files.issuer()), Some(api)).await.unwrap();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    assert!(files.path("other.sock").exists());
    node.shutdown.cancel();
    node.handle.stopped().await;
    assert!(!files.path("other.sock").exists() && !files.path("workload.sock").exists());
}
